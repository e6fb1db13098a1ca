//! Extents as constants, and zeros.

use crate::build::Builder;
use crate::error::MilError;
use crate::op;
use crate::program::{Constant, DataType, Type, ValueId};

/// An extent as an int32, the type of MIL's shapes; the registry rejects larger extents.
pub(super) fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

pub(super) fn ints(values: &[usize]) -> Constant {
    Constant::int32s(&values.iter().map(|&n| int(n)).collect::<Vec<_>>())
}

/// Zeros: a constant if they are few, an op `fill` otherwise.
pub(super) fn zeros(b: &mut Builder, name: &str, dtype: DataType, shape: &[usize]) -> Result<ValueId, MilError> {
    const FEW: usize = 4096;
    if let Some(bytes) = Type::tensor(dtype, shape).bytes().filter(|&n| n <= FEW) {
        return b.constant(name, Constant::raw(dtype, shape, &vec![0; bytes]));
    }
    let extents: Vec<i32> = shape.iter().map(|&n| int(n)).collect();
    let zero = if dtype == DataType::Fp16 { Constant::fp16(0.0) } else { Constant::fp32(0.0) };
    b.op(op::FILL, name, [("shape", Constant::int32s(&extents).into()), ("value", zero.into())])
}
