//! Predicts which unit runs each op if Core ML decides, and what one change would bring back.
//!
//! `cargo run -p ferrane --example placement [MACHINE]`

#![allow(clippy::print_stdout)]

use ferrane::machine::Profile;
use ferrane::machine::placement::{PlaceOptions, core_ml_profile, place};
use ferrane::mil::{Builder, Constant, DataType, Opset, Transpose, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1024, 1024]))?;
    let scores = b.matmul("scores", x, x, Transpose::Neither)?;
    let (k, axis) = (Constant::int32(1024), Constant::int32(-1));
    let sorted = b.ops("topk", "sorted", [("x", scores.into()), ("k", k.into()), ("axis", axis.into())])?;
    let y = b.matmul("y", sorted[0], x, Transpose::Neither)?;
    let program = b.finish(&[("y", y)])?;

    let machine = std::env::args().nth(1).unwrap_or("m4".into());
    let profile = core_ml_profile(&Profile::find(&machine)?)?;
    let placement = place(&program, &profile, &PlaceOptions::default());
    for op in &placement.ops {
        let (place, p) = (op.runs_on.map_or("not known", |p| p.name()), op.probability());
        println!("{:8} {:8} {place} {}", op.name, op.op, p.map_or(String::new(), |p| format!("({p:.2})")));
    }
    if let Some(change) = &placement.change {
        println!(
            "replace {}: {} segments become {}",
            change.replace.join(", "),
            change.segments[0],
            change.segments[1]
        );
    }
    Ok(())
}
