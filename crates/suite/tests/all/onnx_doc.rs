//! docs/onnx.md lists what the table of `ferrane-onnx` says about each operator. `FERRANE_BLESS=1`
//! writes it.

use std::fmt::Write as _;
use std::path::Path;

const INTRODUCTION: &str = "\
# ONNX models

`ferrane_onnx::Model` reads a `.onnx` file with its external data, and `to_mil` makes a program of it. The commands that take a program
take such a file, too:

```
ferrane inspect model.onnx --shape batch=1
ferrane run model.onnx --shape batch=1 --input x=random:1
ferrane convert model.onnx -o net.mlpackage --shape batch=1
ferrane convert model.onnx -o net16.mlpackage --shape batch=1 --fp16
```

- **Versions.** Formats (`ir_version`) from 3 to 13, opsets of `ai.onnx` from 7 to 27; older opsets where operators did not change.
- **Extents.** A program has fixed extents. `--shape batch=1,seq=128` gives each named extent its number; an extent without a name is
  `INPUT.AXIS`.
  Arithmetic on shapes is computed when the program is made, and leaves no ops.
- **Types.** Integers are int32, DOUBLE and BFLOAT16 are fp32: MIL computes with no others. FLOAT stays fp32; `--fp16` makes every
  float fp16, ports and weights included. Ports of bools are int32, because Core ML has no others.
- **Weights.** Initializers become records of the weight file. Quantized constants stay compressed where MIL can say it:
  `constexpr_blockwise_shift_scale` on iOS 18 (INT4, UINT4, INT8, UINT8; one scale, along an axis, or in blocks),
  `constexpr_affine_dequantize` on iOS 16 and 17 (8 bits; one scale or along an axis).
- **Control flow.** `If` with a known condition is its branch, else `cond`. `Loop` and `Scan` are unrolled if their counts are known;
  a `Loop` whose end depends on data is `while_loop`, without collected values.
- **Functions** of the model are inlined.

What a model has that MIL cannot express is listed at once: the node, its operator, the reason.

## Operators

Generated: `FERRANE_BLESS=1 cargo test -p ferrane-suite onnx_doc`.

| operator | |
|---|---|
";

#[test]
fn onnx_doc_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx.md");
    let mut wanted = INTRODUCTION.to_string();
    for (name, reason) in ferrane_onnx::operators() {
        let said = reason.map_or("yes".to_string(), |r| format!("no: {r}"));
        let _ = writeln!(wanted, "| `{name}` | {said} |");
    }
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/onnx.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/onnx.md");
    assert_eq!(found, wanted, "run with FERRANE_BLESS=1 to write docs/onnx.md");
}
