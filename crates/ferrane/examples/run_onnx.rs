//! Runs an ONNX model with random inputs.
//!
//! `cargo run -p ferrane --example run_onnx -- model.onnx batch=1,seq=128`
//!
//! The second argument gives named extents their numbers. Without arguments, a small perceptron.

#![allow(clippy::print_stdout)]

use ferrane::onnx::{Model, Options};
use ferrane::tensor_io::{Unnamed, arguments};

const SMALL: &[u8] = include_bytes!("mlp.onnx");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (model, extents) = match std::env::args().nth(1) {
        Some(path) => (Model::open(path)?, std::env::args().nth(2).unwrap_or_default()),
        None => (Model::from_bytes(SMALL, None)?, "batch=2".to_string()),
    };
    for input in model.inputs() {
        println!("{}: {:?} {:?}", input.name, input.element, input.shape);
    }
    // What MIL cannot express is listed, node by node.
    let program = model.to_mil(&Options::default().dimension_list(&extents)?)?;
    let device = ferrane::open("emulator")?;
    let call = arguments(&program.functions[0], &[], Unnamed::Random(1))?;
    for (name, tensor) in device.call(&program, call)?.outputs.iter() {
        let values = tensor.to_f32();
        println!("{name}: {} {:?}, first {:?}", tensor.dtype(), tensor.shape(), &values[..values.len().min(4)]);
    }
    Ok(())
}
