//! Records what one device computes and compares another with it.
//!
//! `cargo run -p ferrane --example record_and_replay`

#![allow(clippy::print_stdout)]

use ferrane::mil::{Builder, DataType, Opset, Type};
use ferrane::recording::{Job, Recording, read, replay, write_to};
use ferrane::{Tensor, Tensors};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4, 1, 8]))?;
    let y = b.op("softmax", "y", [("x", x.into()), ("axis", ferrane::mil::Constant::int32(-1).into())])?;
    let program = b.finish(&[("y", y)])?;

    let mut inputs = Tensors::new();
    inputs.insert("x", Tensor::fp16(&[1, 4, 1, 8], &[0.25; 32])?);
    let states = Tensors::new();
    let job = Job { program: &program, function: "main", label: "softmax", inputs: &inputs, states: &states, runs: 1 };
    let recording = Recording::record(&ferrane::open("emulator")?, "emulator", &job)?;
    // The recording holds the program, the inputs, the outputs bit for bit, and the machine.
    let mut file = Vec::new();
    write_to(&recording, &mut file)?;

    // On another computer, from the file alone.
    let recording = read(file)?;
    let device = ferrane::open("emulator?numerics=exact")?;
    let replayed = replay(&recording, &recording.program()?, &device, 1, 1);
    println!("agrees within 1 unit in the last place: {}", replayed.agrees());
    Ok(())
}
