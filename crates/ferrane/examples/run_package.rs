//! Runs a file with random inputs.
//!
//! `cargo run -p ferrane --example run_package -- model.mlpackage`
//!
//! Takes `.mlpackage`, `.mlmodel`, `.mlmodelc` and MIL text; without an argument a small text.

#![allow(clippy::print_stdout)]

use ferrane::tensor_io::{Unnamed, arguments};

const TEXT: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"a", "b"}})]
{
    func main<ios18>(tensor<fp16, [1, 4]> x) {
        tensor<fp16, [1, 4]> y = relu(x = x)[name = string("y")];
    } -> (y);
}
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = match std::env::args().nth(1) {
        Some(path) => ferrane::mil::package::open(path)?.program,
        None => ferrane::mil::parse(TEXT, &ferrane::mil::Weights::new())?,
    };
    let device = ferrane::open("emulator")?;
    // Every input gets seeded random values of its type and shape.
    let call = arguments(&program.functions[0], &[], Unnamed::Random(1))?;
    for (name, tensor) in device.call(&program, call)?.outputs.iter() {
        let values = tensor.to_f32();
        println!("{name}: {} {:?}, first {:?}", tensor.dtype(), tensor.shape(), &values[..values.len().min(4)]);
    }
    Ok(())
}
