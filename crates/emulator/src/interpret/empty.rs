//! Ops with empty tensors, which a plan cannot represent.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_mil::{DataType, Op, Type};

use super::failure::failed;
use crate::tensor_ops::{Data, HeapTensor};

/// The results of an op with an operand or a result that has no elements. `None` if there is no
/// such operand or result.
pub(super) fn results(op: &Op, results: &[Type], inputs: &[Arc<HeapTensor>]) -> Result<Option<Vec<HeapTensor>>> {
    let known = |ty: &Type| ty.dtype().zip(ty.shape());
    let Some(types) = results.iter().map(known).collect::<Option<Vec<_>>>() else { return Ok(None) };
    if types.iter().all(|(_, shape)| shape.contains(&0)) {
        return Ok(Some(types.into_iter().map(|(dtype, shape)| filled(dtype, &shape, 0.0)).collect()));
    }
    if !inputs.iter().any(|t| t.is_empty()) {
        return Ok(None);
    }
    // An empty sum is 0, an empty product is 1, and an average of nothing is NaN.
    let value = match op.name.as_str() {
        "reduce_sum" | "reduce_sum_square" | "reduce_l1_norm" | "reduce_l2_norm" | "matmul" => 0.0,
        "reduce_prod" => 1.0,
        "reduce_mean" => f32::NAN,
        "reduce_log_sum" | "reduce_log_sum_exp" => f32::NEG_INFINITY,
        _ => return Err(failed(op, "an operand has no elements, and the result has")),
    };
    Ok(Some(types.into_iter().map(|(dtype, shape)| filled(dtype, &shape, value)).collect()))
}

fn filled(dtype: DataType, shape: &[usize], value: f32) -> HeapTensor {
    let count = shape.iter().product();
    let data = match dtype {
        DataType::String => Data::Strings(vec![String::new(); count]),
        dtype if dtype.is_float() => Data::Floats(vec![value; count]),
        _ => Data::Ints(vec![value as i64; count]),
    };
    HeapTensor { dtype, shape: shape.to_vec(), data }
}
