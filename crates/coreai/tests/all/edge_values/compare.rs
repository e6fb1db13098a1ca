//! One row in the emulator.

use std::collections::BTreeMap;

use ferrane_emulator::Emulator;
use ferrane_mil::program::Payload;
use ferrane_mil::{Constant, DataType, Program, Type};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::Outcome;
use super::archive::{Archive, Elements, elements};

/// Operations that add, multiply or mix several elements of a tensor: an error is a part of the
/// largest element of an output. For all others it is a part of the element itself.
const MIXING: &[&str] = &[
    "asymmetric_quantization_statistics",
    "batch_matmul",
    "broadcasting_batch_matmul",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "conv_transpose3d",
    "interpolate",
    "interpolate_coordinates",
    "reduce_mean",
    "reduce_product",
    "reduce_sum",
    "scan",
    "softmax",
    "sum_pool_2d",
    "sum_pool_3d",
];

/// The limit of an error, relative, and the smallest magnitude that it is relative to: below it
/// numbers are subnormal.
fn limit(dtype: Dtype, mixing: bool) -> (f64, f64) {
    match dtype {
        // Sums in another order; functions by another polynomial.
        Dtype::F32 | Dtype::F64 => (1e-5, f64::from(f32::MIN_POSITIVE)),
        // Apple's runtime on Linux adds fp16 products one by one in fp16. Functions round to 11
        // bits, not always to the same of two neighbors.
        Dtype::F16 => (if mixing { 4e-3 } else { 1e-3 }, half::f16::MIN_POSITIVE.to_f64()),
        // MIL does not have the type. Ferrane computes in fp32, Apple's runtime rounds to 8 bits.
        Dtype::BF16 => (if mixing { 2e-2 } else { 4e-3 }, half::bf16::MIN_POSITIVE.to_f64()),
        _ => (0.0, 0.0),
    }
}

fn given(ty: &Type, view: &TensorView<'_>) -> Constant {
    let dtype = ty.dtype().expect("a tensor");
    let bytes: Vec<u8> = match (elements(view), dtype) {
        (Elements::Floats(v), DataType::Fp16) => v.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect(),
        (Elements::Floats(v), _) => v.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        (Elements::Integers(v), DataType::Int8 | DataType::UInt8) => v.iter().map(|&v| v as u8).collect(),
        (Elements::Integers(v), DataType::Int16 | DataType::UInt16) => {
            v.iter().flat_map(|&v| (v as i16).to_le_bytes()).collect()
        }
        (Elements::Integers(v), _) => v.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
    };
    Constant::raw(dtype, view.shape(), &bytes)
}

fn returned(constant: &Constant) -> Elements {
    let Constant::Tensor { ty, payload: Payload::Bytes(bytes) } = constant else { panic!("{constant:?}") };
    let dtype = match ty.dtype().expect("a tensor") {
        DataType::Fp32 => Dtype::F32,
        DataType::Fp16 => Dtype::F16,
        DataType::Int16 => Dtype::I16,
        DataType::UInt16 => Dtype::U16,
        DataType::Int8 => Dtype::I8,
        DataType::UInt8 => Dtype::U8,
        _ => Dtype::I32,
    };
    elements(&TensorView::new(dtype, ty.shape().expect("an extent"), bytes).expect("a tensor"))
}

/// The first element that differs, if any.
fn difference(found: &Elements, wanted: &Elements, dtype: Dtype, mixing: bool) -> Option<String> {
    match (found, wanted) {
        (Elements::Integers(found), Elements::Integers(wanted)) => {
            // MIL has the 32 bits, and no sign for those of an unsigned type.
            let same = |f: i64, w: i64| if dtype == Dtype::U32 { f as u32 == w as u32 } else { f == w };
            let i = found.iter().zip(wanted).position(|(f, w)| !same(*f, *w))?;
            Some(format!("element {i} is {}, not {}", found[i], wanted[i]))
        }
        (Elements::Floats(found), Elements::Floats(wanted)) => {
            let (limit, least) = limit(dtype, mixing);
            let finite = |v: &&f64| v.is_finite();
            let largest = wanted.iter().filter(finite).fold(0.0f64, |m, v| m.max(v.abs()));
            let same = |f: f64, w: f64| {
                let f = if dtype == Dtype::BF16 { half::bf16::from_f64(f).to_f64() } else { f };
                let scale = if mixing { largest } else { w.abs() };
                f == w || f.is_nan() && w.is_nan() || (f - w).abs() <= limit * scale.max(least)
            };
            let i = found.iter().zip(wanted).position(|(f, w)| !same(*f, *w))?;
            Some(format!("element {i} is {:e}, not {:e}", found[i], wanted[i]))
        }
        _ => Some("the element types differ".into()),
    }
}

/// Runs a row, whose function the program spells in its own way.
pub fn row(archive: &Archive, emulator: &Emulator, program: &Program, name: &str, spelled: &str) -> Outcome {
    let function = program.function(spelled).unwrap_or_else(|| panic!("{name} has no function"));
    let (recorded, wanted) = (archive.inputs(), archive.outputs());
    let inputs: Vec<(String, Constant)> = function
        .inputs
        .iter()
        .map(|&v| {
            let value = function.value(v);
            // An input that is given twice has underlines at the end of its second name.
            let view = recorded.tensor(value.name.trim_end_matches('_')).expect("a recorded input");
            (value.name.clone(), given(&value.ty, &view))
        })
        .collect();
    let found = match emulator.call(program, spelled, &inputs, &mut BTreeMap::new()) {
        Ok(found) => found,
        Err(error) => return Outcome::Differs(error.to_string()),
    };
    let mixing = MIXING.contains(&name.split('.').next().unwrap_or_default());
    assert!(!found.is_empty(), "{name}");
    for (output, value) in &found {
        let view = wanted.tensor(&format!("{name}/{output}")).unwrap_or_else(|e| panic!("{name}: {output}: {e}"));
        if value.ty().shape().as_deref() != Some(view.shape()) {
            return Outcome::Differs(format!("{output} is {}, not {:?}", value.ty(), view.shape()));
        }
        if let Some(difference) = difference(&returned(value), &elements(&view), view.dtype(), mixing) {
            return Outcome::Differs(format!("{output}: {difference}"));
        }
    }
    Outcome::Agrees
}
