//! Builds a program and runs it.
//!
//! `cargo run -p ferrane --example build_and_run [DEVICE]`
//!
//! DEVICE is a name with options: `emulator` (the default), `emulator?numerics=exact`, `ane`.

#![allow(clippy::print_stdout)]

use ferrane::mil::{Builder, DataType, Opset, Type};
use ferrane::{Call, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4, 1, 8]))?;
    let w = b.input("w", Type::tensor(DataType::Fp16, &[1, 4, 1, 8]))?;
    let product = b.op("mul", "product", [("x", x.into()), ("y", w.into())])?;
    let y = b.op("sigmoid", "y", [("x", product.into())])?;
    let program = b.finish(&[("y", y)])?;

    let spec = std::env::args().nth(1).unwrap_or("emulator".into());
    let device = ferrane::open(&spec)?;
    let x = Tensor::fp16(&[1, 4, 1, 8], &[2.0; 32])?;
    let w = Tensor::fp16(&[1, 4, 1, 8], &[0.5; 32])?;
    // `call` compiles and loads the program, allocates surfaces, writes the inputs, evaluates, and
    // reads the outputs.
    let outputs = device.call(&program, Call::new().input("x", x).input("w", w))?;
    println!("{:?}", &outputs.get("y")?.to_f32()[..4]);
    Ok(())
}
