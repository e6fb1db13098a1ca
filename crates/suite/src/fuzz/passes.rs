//! Passes: programs compute the same bits before and after them.

use std::collections::BTreeMap;

use ferrane_device::ErrorKind;
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_host::f16;
use ferrane_mil::passes::Pipeline;
use ferrane_mil::{
    Builder, Constant, DataType, MilError, Opset, Program, ReducedDims, Type, ValueId, Weights, check, verify,
};

/// The most steps of a program.
const STEPS: usize = 32;

/// A program made of the bytes, three for each step, computes the same bits before and after the
/// passes that promise to keep bits.
///
/// # Panics
/// If the bits differ, a pass fails, or a pass makes an invalid program.
pub fn passes(data: &[u8]) {
    let Ok(program) = program(data) else { return };
    let emulator = Emulator::new(EmulatorOptions::default());
    let (after, _) = Pipeline::simplify().run(&program, &emulator).expect("the passes run on a valid program");
    verify(&after).expect("passes keep the invariants");
    for function in &after.functions {
        let found = check(function, &after.weights);
        assert!(found.is_empty(), "after the passes: {found:?}");
    }
    let halves: Vec<u8> =
        [1.5f32, -2.0, 0.25, 3.0, -0.125, 100.0].iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    let inputs = [("x".to_string(), Constant::raw(DataType::Fp16, &[2, 3], &halves))];
    let run = |program: &Program| -> ferrane_device::Result<Vec<Bits>> {
        let outputs = emulator.call(program, "main", &inputs, &mut BTreeMap::new())?;
        Ok(outputs.into_iter().map(|(name, value)| bits(name, &value)).collect())
    };
    let before = match run(&program) {
        Ok(before) => before,
        // A rank can be valid in the language and unsupported by the emulator.
        Err(e) if e.kind() == ErrorKind::Unsupported => return,
        Err(e) => panic!("a valid program runs: {e}"),
    };
    let after = run(&after).expect("the program runs after the passes");
    assert_eq!(before, after, "the passes change the numbers");
}

/// An output's name, type and elements' bits.
type Bits = (String, Type, Vec<u32>);

/// The elements' bits, with every NaN as the same pattern: no rule states which NaN an operation
/// returns.
fn bits(name: String, value: &Constant) -> Bits {
    let ty = value.ty();
    let weights = Weights::new();
    let bytes = value.bytes(&weights).unwrap_or_default();
    let elements = match ty.dtype() {
        Some(DataType::Fp16) => {
            bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).map(one).collect()
        }
        _ => bytes.chunks_exact(4).map(|b| one(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
    };
    (name, ty, elements)
}

fn one(value: f32) -> u32 {
    if value.is_nan() { u32::MAX } else { value.to_bits() }
}

/// Ops on values chosen by the bytes; a step whose operands do not fit is left out.
fn program(data: &[u8]) -> Result<Program, MilError> {
    let mut b = Builder::new("main", Opset::IOS18);
    let mut values = vec![b.input("x", Type::tensor(DataType::Fp16, &[2, 3]))?];
    for (n, step) in data.chunks_exact(3).take(STEPS).enumerate() {
        let pick = |byte: u8| values[byte as usize % values.len()];
        if let Ok(value) = add(&mut b, &format!("v{n}"), step[0], pick(step[1]), pick(step[2]), step[2]) {
            values.push(value);
        }
    }
    let outputs: Vec<ValueId> = values[1..].iter().rev().take(2).copied().collect();
    let names: Vec<(String, ValueId)> = outputs.iter().enumerate().map(|(i, v)| (format!("out{i}"), *v)).collect();
    b.finish(&names.iter().map(|(n, v)| (n.as_str(), *v)).collect::<Vec<_>>())
}

fn add(b: &mut Builder, name: &str, op: u8, x: ValueId, y: ValueId, n: u8) -> Result<ValueId, MilError> {
    let shape = b.shape(x)?;
    let rank = shape.len() as i32;
    let turned: Vec<i32> = (0..rank).rev().collect();
    match op % 16 {
        0 => b.add(name, x, y),
        1 => b.mul(name, x, y),
        2 => b.op("relu", name, [("x", x.into())]),
        3 => b.op("identity", name, [("x", x.into())]),
        4 => b.transpose(name, x, &turned),
        5 => b.reshape(name, x, &[3, -1]),
        6 => b.reshape(name, x, &[2, -1]),
        7 => b.cast(name, x, DataType::Fp32),
        8 => b.cast(name, x, DataType::Fp16),
        9 => b.reduce_sum(name, x, &[i32::from(n) % rank.max(1)], ReducedDims::Keep),
        10 => b.concat(name, &[x, y], 0),
        11 => b.constant(name, Constant::fp16(f32::from(n) / 16.0)),
        12 => b.expand_dims(name, x, &[0]),
        13 => b.sigmoid(name, x),
        14 => b.slice_by_size(name, x, &vec![0; shape.len()], &vec![1; shape.len()]),
        _ => b.squeeze(name, x, &[0]),
    }
}
