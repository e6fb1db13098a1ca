//! The kinds of steps that a plan is made of, each by itself, at the sizes of stories110m with 256
//! tokens.
//!
//! `cargo bench -p ferrane-emulator --bench steps`; a word after `--` selects (`softmax`). Each is
//! a program, evaluated as a prepared request on inputs between -1 and 1; the throughput counts the
//! bytes of its ports once. RAYON_NUM_THREADS=1 measures one thread. Matrix products by themselves
//! are measured in `ferrane-host`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferrane_device::{Bindings, Device};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::{Weights, parse};

/// A name, the inputs, and the ops of a program whose result is `y`. Ops are given without their
/// names.
struct Case(&'static str, &'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const HIDDEN: &str = "tensor<fp16, [1, 2048, 1, 256]>";
const STREAM: &str = "tensor<fp16, [1, 768, 1, 256]>";
const ROW: &str = "tensor<fp16, [1, 1, 1, 256]>";
const HEADS: &str = "tensor<fp16, [1, 12, 256, 64]>";
const SCORES: &str = "tensor<fp16, [1, 12, 256, 256]>";

const CASES: [Case; 9] = [
    Case("softmax", &[("x", SCORES)], &[("softmax(x = x, axis = int32(-1))", SCORES)]),
    Case(
        "rms_norm",
        &[("x", STREAM), ("w", "tensor<fp16, [1, 768, 1, 1]>")],
        &[
            ("mul(x = x, y = x)", STREAM),
            ("reduce_mean(x = v0, axes = tensor<int32, [1]>([1]), keep_dims = bool(true))", ROW),
            ("rsqrt(x = v1, epsilon = fp16(0.00001))", ROW),
            ("mul(x = x, y = v2)", STREAM),
            ("mul(x = v3, y = w)", STREAM),
        ],
    ),
    Case(
        "layer_norm",
        &[("x", "tensor<fp16, [1, 256, 768]>")],
        &[(
            "layer_norm(x = x, axes = tensor<int32, [1]>([-1]), epsilon = fp16(0.00001))",
            "tensor<fp16, [1, 256, 768]>",
        )],
    ),
    Case("add", &[("x", STREAM), ("z", STREAM)], &[("add(x = x, y = z)", STREAM)]),
    Case(
        "swiglu",
        &[("x", HIDDEN), ("z", HIDDEN)],
        &[("sigmoid(x = x)", HIDDEN), ("mul(x = x, y = v0)", HIDDEN), ("mul(x = v1, y = z)", HIDDEN)],
    ),
    Case("gelu", &[("x", HIDDEN)], &[("gelu(x = x, mode = string(\"EXACT\"))", HIDDEN)]),
    Case(
        "attention",
        &[("q", HEADS), ("k", HEADS), ("v", HEADS), ("mask", "tensor<fp16, [1, 1, 256, 256]>")],
        &[
            ("matmul(x = q, y = k, transpose_x = bool(false), transpose_y = bool(true))", SCORES),
            ("mul(x = v0, y = fp16(0.125))", SCORES),
            ("add(x = v1, y = mask)", SCORES),
            ("softmax(x = v2, axis = int32(-1))", SCORES),
            ("matmul(x = v3, y = v, transpose_x = bool(false), transpose_y = bool(false))", HEADS),
        ],
    ),
    Case(
        "transpose",
        &[("x", HEADS)],
        &[("transpose(x = x, perm = tensor<int32, [4]>([0, 1, 3, 2]))", "tensor<fp16, [1, 12, 64, 256]>")],
    ),
    Case(
        "linear",
        &[("x", "tensor<fp16, [1, 256, 768]>"), ("w", "tensor<fp16, [1, 2048, 768]>")],
        &[(
            "matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(true))",
            "tensor<fp16, [1, 256, 2048]>",
        )],
    ),
];

impl Case {
    fn text(&self) -> String {
        let inputs: Vec<String> = self.1.iter().map(|(name, ty)| format!("{ty} {name}")).collect();
        let mut text = format!("program(1.3)\n{{\n    func main<ios18>({}) {{\n", inputs.join(", "));
        for (i, (op, ty)) in self.2.iter().enumerate() {
            let name = if i + 1 == self.2.len() { "y".to_string() } else { format!("v{i}") };
            text += &format!("        {ty} {name} = {op}[name = string(\"{name}\")];\n");
        }
        text + "    } -> (y);\n}\n"
    }
}

fn steps(c: &mut Criterion) {
    let device = Device::new(Emulator::new(EmulatorOptions::default()));
    let mut group = c.benchmark_group("steps");
    for case in &CASES {
        let text = case.text();
        let program = parse(text.as_bytes(), &Weights::new()).unwrap_or_else(|e| panic!("{}: {e:?}\n{text}", case.0));
        let executable = device.load(&program, case.0).unwrap();
        let procedure = executable.procedure("main").unwrap();
        let mut bindings = Bindings::new();
        let mut bytes = 0;
        for (name, surface) in device.surfaces(procedure).unwrap() {
            // Both signs, no zeros: other numbers have speeds of their own.
            let values = (0..surface.layout().elements()).map(|i| ((i * 7919 % 2003) as f32 - 1000.5) * 1e-3);
            surface.write_f32(&values.collect::<Vec<_>>()).unwrap();
            bytes += surface.layout().span();
            bindings = bindings.bind(name, &surface);
        }
        let request = executable.prepare(bindings).unwrap();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(case.0, |b| b.iter(|| request.evaluate().unwrap()));
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
