//! Queries on ops that move elements, shared by the passes over transposes and reshapes.

use super::cursor::Cursor;
use crate::op;
use crate::program::{Op, OpId, ValueDef, ValueId};

/// The axes of a transpose as indices, and its operand.
pub(super) fn transpose(c: &Cursor<'_>, op: &Op) -> Option<(ValueId, Vec<usize>)> {
    if op.name != op::TRANSPOSE {
        return None;
    }
    let x = c.arg(op, "x")?;
    let rank = c.ty(x).rank()?;
    let perm = c.args(op)?.normal_axes(&c.ints(op, "perm")?, rank).ok()?;
    (perm.len() == rank).then_some((x, perm))
}

/// The operand of a `reshape`, `squeeze` or `expand_dims`.
pub(super) fn reshape(c: &Cursor<'_>, op: &Op) -> Option<ValueId> {
    matches!(op.name.as_str(), op::RESHAPE | op::SQUEEZE | op::EXPAND_DIMS).then(|| c.arg(op, "x"))?
}

/// The op that computes a value.
pub(super) fn producer(c: &Cursor<'_>, value: ValueId) -> Option<OpId> {
    match c.function().value(value).def {
        ValueDef::Op(op, _) => Some(op),
        _ => None,
    }
}

/// Ops whose result at a position depends only on the operands at that position, and whose other
/// arguments are scalars.
pub(super) fn is_pointwise(name: &str) -> bool {
    matches!(
        name,
        op::ABS
            | op::SIGN
            | op::SQUARE
            | op::FLOOR
            | op::CEIL
            | op::ROUND
            | op::EXP
            | op::EXP2
            | op::SQRT
            | op::RSQRT
            | op::INVERSE
            | op::LOG
            | op::ERF
            | op::SIN
            | op::COS
            | op::TANH
            | op::SIGMOID
            | op::RELU
            | op::RELU6
            | op::SILU
            | op::GELU
            | op::SOFTPLUS
            | op::SOFTSIGN
            | op::LEAKY_RELU
            | op::ELU
            | op::CLIP
            | op::CAST
            | op::IDENTITY
            | op::ADD
            | op::SUB
            | op::MUL
            | op::REAL_DIV
            | op::MAXIMUM
            | op::MINIMUM
            | op::POW
    )
}
