//! Finds the op of a program that loses precision.
//!
//! `cargo run -p ferrane --example audit`
//!
//! The audit runs each op in exact, fast and hardware arithmetic and compares the values.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use ferrane::Tensor;
use ferrane::audit::{AuditOptions, audit};
use ferrane::mil::{Builder, Constant, DataType, Opset, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
    let large = b.op("mul", "large", [("x", x.into()), ("y", Constant::fp16(256.0).into())])?;
    // 300 * 256 squared is beyond the largest fp16 number, 65504.
    let square = b.op("mul", "square", [("x", large.into()), ("y", large.into())])?;
    let y = b.op("sqrt", "y", [("x", square.into())])?;
    let program = b.finish(&[("y", y)])?;

    let x = Tensor::fp16(&[1, 4], &[1.0, 2.0, 3.0, 300.0])?.to_constant();
    let report = audit(&program, "main", &[("x".into(), x)], &BTreeMap::new(), &AuditOptions::default())?;
    for line in report.summary() {
        println!("{line}");
    }
    Ok(())
}
