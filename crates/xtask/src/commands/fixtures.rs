//! Small files under the names that the pages use.

use super::Scratch;
use crate::workspace::Result;

/// `x` is `[1, 4, 1, 8]` and `w` is a weight.
const MODEL: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {
        tensor<fp16, [1, 4, 1, 1]> w = const()[name = string("w"), val = tensor<fp16, [1, 4, 1, 1]>([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])];
        tensor<fp16, [1, 4, 1, 8]> m = mul(x = x, y = w)[name = string("m")];
        tensor<fp16, [1, 4, 1, 8]> y = sigmoid(x = m)[name = string("y")];
    } -> (y);
}
"#;

/// Its product overflows in the engine's accumulator.
const SCORES: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [4, 8]> q, tensor<fp16, [4, 8]> k) {
        bool no = const()[name = string("no"), val = bool(false)];
        bool yes = const()[name = string("yes"), val = bool(true)];
        fp16 factor = const()[name = string("factor"), val = fp16(0.000244140625)];
        tensor<fp16, [4, 4]> scores = matmul(x = q, y = k, transpose_x = no, transpose_y = yes)[name = string("scores")];
        tensor<fp16, [4, 4]> y = mul(x = scores, y = factor)[name = string("y")];
    } -> (y);
}
"#;

/// A run of few updates of a small model.
const TRAIN: &str = "ferrane train --steps 2 --accum 1 --seq 64 --eval-windows 2";

/// Writes the fixtures, most of them by the command itself.
pub(super) fn write(scratch: &Scratch) -> Result<()> {
    scratch.write("fixture.mil", MODEL)?;
    scratch.write("scores.mil", SCORES)?;
    scratch.write("photo.npy", npy("<f2", "(1, 4, 1, 8)", &[0; 64]))?;
    for name in ["stories.txt", "other.txt"] {
        let story = "Once upon a time there was a cat. The cat liked the sun and the red ball.\n<|endoftext|>\n";
        scratch.write(name, story.repeat(400))?;
    }
    let text = "fuzz/corpus/hwx_text/h13";
    let made = [
        "cp crates/onnx/tests/models/mlp.onnx model.onnx".to_owned(),
        "mkdir model.aimodel && cp crates/coreai/tests/models/torch_mlp.mlirb model.aimodel/main.mlirb".to_owned(),
        "echo '{}' > model.aimodel/metadata.json".to_owned(),
        "ferrane convert fixture.mil -o model.mlpackage".to_owned(),
        "ferrane convert fixture.mil -o other.mlpackage".to_owned(),
        format!(
            "mkdir built && cp {text} model.txt && ferrane assemble model.txt -o built/model.hwx && cp built/model.hwx conv.hwx"
        ),
        "ferrane recording make fixture.mil --runs 2 --out model.anetrace".to_owned(),
        "mkdir my-mac && cp model.anetrace my-mac/".to_owned(),
        format!("{TRAIN} --out runs/default"),
        format!("{TRAIN} --data stories.txt --out runs/mine"),
        "mkdir books && cp stories.txt books/".to_owned(),
        r#"for i in $(seq 99); do echo '{"text": "Once upon a time there was a red ball."}'; done > web.jsonl"#
            .to_owned(),
    ];
    made.iter().try_for_each(|line| scratch.shell(line).map_err(|e| format!("the fixture of `{line}` fails: {e}")))
}

/// A file of NumPy's format, version 1.0.
fn npy(dtype: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    // The magic, the version, the length and this header with its line break have 128 bytes.
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.extend(bytes);
    file
}
