//! Time of a check per op, over a program of 100,000 ops of every kind that the kernels have.
//!
//! `cargo bench -p ferrane-machine --bench check`
#![allow(clippy::print_stdout, reason = "a bench shows its times")]

use std::time::Instant;

use ferrane_machine::{CheckOptions, Profile, check, select};
use ferrane_mil::{Builder, Constant, DataType, MilError, Opset, Program, Transpose, Type, ValueId};

/// Adds six ops that run, and the constants of their arguments.
fn layer(b: &mut Builder, x: ValueId) -> Result<ValueId, MilError> {
    let product = b.matmul("m", x, x, Transpose::Y)?;
    let scaled = b.op("mul", "s", [("x", product.into()), ("y", Constant::fp16(0.125).into())])?;
    let axis = Constant::int32(-1);
    let probs = b.op("softmax", "p", [("x", scaled.into()), ("axis", axis.into())])?;
    let part = b.slice_by_size("c", probs, &[0, 0, 0, 32], &[1, 4, 64, 32])?;
    let twice = b.concat("t", &[part, part], 3)?;
    b.op("add", "y", [("x", twice.into()), ("y", x.into())])
}

fn program(ops: usize) -> Result<Program, MilError> {
    let mut b = Builder::new("main", Opset::IOS18);
    let mut x = b.input("a", Type::tensor(DataType::Fp16, &[1, 4, 64, 64]))?;
    for _ in 0..ops / 13 {
        x = layer(&mut b, x)?;
    }
    b.finish(&[("z", x)])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = program(100_000)?;
    let ops = program.functions[0].ops.len();
    for name in ["m4-macos15-inmem", "m1-macos26-inmem", "m5-macos26-e5rt"] {
        let profile = Profile::named(name)?;
        let (begun, rounds) = (Instant::now(), 5);
        for _ in 0..rounds {
            std::hint::black_box(select(&program.functions[0], &profile));
        }
        let selecting = begun.elapsed() / rounds;
        let (begun, mut found) = (Instant::now(), 0);
        for _ in 0..rounds {
            found = check(&program, &profile, &CheckOptions::default()).len();
        }
        let checking = begun.elapsed() / rounds;
        let each = |t: std::time::Duration| t.as_nanos() as f64 / ops as f64;
        println!(
            "{name}: {ops} ops, {:.0} ns an op, {:.0} of them select, {found} findings",
            each(checking),
            each(selecting)
        );
    }
    Ok(())
}
