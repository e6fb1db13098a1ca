//! Derives the backward program of a program and runs it.
//!
//! `cargo run -p ferrane --example gradient`

#![allow(clippy::print_stdout)]

use ferrane::mil::grad::{VjpOptions, vjp};
use ferrane::mil::{Builder, DataType, Opset, Type};
use ferrane::{Call, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
    let y = b.op("mul", "y", [("x", x.into()), ("y", x.into())])?;
    let program = b.finish(&[("y", y)])?;

    // Inputs of the backward program: x, and d_y, the gradient of the loss with respect to y.
    let backward = vjp(&program, "main", &["y"], &["x"], &VjpOptions::default())?;
    let x = Tensor::fp16(&[1, 4], &[1.0, 2.0, 3.0, 4.0])?;
    let d_y = Tensor::fp16(&[1, 4], &[1.0; 4])?;
    let device = ferrane::open("emulator")?;
    let outputs = device.call(&backward, Call::new().input("x", x).input("d_y", d_y))?;
    assert_eq!(outputs.get("d_x")?.to_f32(), [2.0, 4.0, 6.0, 8.0]);
    println!("d(x*x)/dx = {:?}", outputs.get("d_x")?.to_f32());
    Ok(())
}
