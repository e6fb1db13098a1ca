//! Reports why a program does not run on an engine.
//!
//! `cargo run -p ferrane --example check_machine [MACHINE]`

#![allow(clippy::print_stdout)]

use ferrane::machine::{Profile, check};
use ferrane::mil::{Builder, DataType, Opset, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64]))?;
    let angle = b.op("tan", "angle", [("x", x.into())])?;
    let program = b.finish(&[("angle", angle)])?;

    let machine = std::env::args().nth(1).unwrap_or("m4-macos15-inmem".into());
    let profile = Profile::find(&machine)?;
    // A finding has a code, what happens on the machine, the published claims, and a way out.
    for finding in check(&program, &profile, &Default::default()) {
        println!("{}: {}", finding.code, finding.message);
        println!("  claims: {}", finding.claims.join(", "));
        if let Some(rewrite) = &finding.rewrite {
            println!("  instead: {rewrite}");
        }
    }
    Ok(())
}
