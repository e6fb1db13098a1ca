//! The elements of constants, for comparisons.

use ferrane_mil::{Constant, DataType, Weights};

/// The elements of an inline tensor of fp16, fp32, integers or bools; `None` for any other
/// constant.
pub fn numbers(value: &Constant) -> Option<Vec<f64>> {
    let Constant::Tensor { ty, .. } = value else { return None };
    let none = Weights::new();
    let bytes = value.bytes(&none)?;
    Some(match ty.dtype()? {
        DataType::Fp32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect(),
        DataType::Fp16 => {
            bytes.chunks_exact(2).map(|b| ferrane_host::f16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
        }
        _ => value.as_ints()?.into_iter().map(|v| v as f64).collect(),
    })
}
