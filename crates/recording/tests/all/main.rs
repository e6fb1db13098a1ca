//! Recordings over the emulator: made, written, read and replayed; and files that are not
//! recordings.

mod hostile;
mod round;

use ferrane_device::{Device, Tensor, Tensors};
use ferrane_emulator::{Emulator, EmulatorOptions, Faults, Numerics};
use ferrane_mil::{DataType, Program, Weights, parse};
use ferrane_recording::{Job, Recording};

/// A product whose sums are long enough to round differently.
const PRODUCT: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"a", "b"}})]
{
    func main<ios18>(tensor<fp16, [1, 1, 4, 512]> a) {
        bool no = const()[name = string("no"), val = bool(false)];
        tensor<fp16, [1, 1, 512, 16]> w = const()[name = string("w"), val = tensor<fp16, [1, 1, 512, 16]>(BLOBFILE(path = string("@model_path/weights/w.bin"), offset = uint64(64)))];
        tensor<fp16, [1, 1, 4, 16]> y = matmul(transpose_x = no, transpose_y = no, x = a, y = w)[name = string("y")];
    } -> (y);
}
"#;

fn halves(n: usize, seed: u64) -> Vec<u8> {
    let mut rng = ferrane_host::random::Rng::new(seed);
    (0..n).flat_map(|_| ferrane_host::f16::from_f64(2.0 * rng.uniform() - 1.0).to_le_bytes()).collect()
}

fn product() -> Program {
    let mut weights = Weights::new();
    weights.add("@model_path/weights/w.bin", DataType::Fp16, halves(512 * 16, 2));
    parse(PRODUCT, &weights).unwrap()
}

fn input() -> Tensors {
    [("a", Tensor::new(DataType::Fp16, [1, 1, 4, 512], halves(4 * 512, 1)).unwrap())].into()
}

/// An emulator with these options.
fn device(set: impl FnOnce(&mut EmulatorOptions)) -> Device {
    let mut options = EmulatorOptions::default();
    set(&mut options);
    Device::new(Emulator::new(options))
}

fn emulator(numerics: Numerics) -> Device {
    device(|o| o.numerics = numerics)
}

/// An emulator that fails as the faults say.
fn failing(faults: &str) -> Device {
    device(|o| o.faults = Faults::parse(faults).unwrap())
}

fn record(device: &Device, program: &Program, inputs: &Tensors, runs: usize) -> Recording {
    let job = Job { program, function: "main", label: "product.mil", inputs, states: &Tensors::new(), runs };
    Recording::record(device, "emulator", &job).unwrap()
}

/// The recording as it is read from its bytes.
fn again(recording: &Recording) -> Recording {
    ferrane_recording::read(bytes(recording)).unwrap()
}

fn bytes(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    ferrane_recording::write_to(recording, &mut bytes).unwrap();
    bytes
}
