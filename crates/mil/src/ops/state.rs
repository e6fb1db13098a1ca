//! States: tensors that outlive an evaluation. `coreml_update_state` is how coremltools writes a
//! `write_state` and the `read_state` after it.

use super::infer::{InferContext, agree};
use super::signature::{MOVABLE, OpDef, Param, Takes};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::Type;

const READ: &[Param] = &[Param::takes("input", Takes::State)];
const WRITE: &[Param] = &[Param::takes("input", Takes::State), Param::new("data", MOVABLE)];
const UPDATE: &[Param] = &[Param::takes("state", Takes::State), Param::new("value", MOVABLE).of("T")];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::READ_STATE, "the tensor in a state", READ, read_rule).since(Opset::IOS18),
    OpDef::new(op::WRITE_STATE, "puts a tensor into a state; no result", WRITE, write_rule)
        .since(Opset::IOS18)
        .from("coremltools 9.0, ML Program backend"),
    OpDef::new(op::COREML_UPDATE_STATE, "puts a tensor into a state and gives it back", UPDATE, update_rule)
        .since(Opset::IOS18)
        .from("coremltools 9.0, coreml dialect"),
];

fn wrapped(c: &InferContext<'_>, name: &str) -> Result<Type, MilError> {
    match c.types(name).into_iter().next() {
        Some(Type::State(inner)) if matches!(*inner, Type::Tensor { .. }) => Ok(*inner),
        _ => Err(c.fail(format!("`{name}` must be a state of a tensor"))),
    }
}

fn read_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    Ok(vec![wrapped(c, "input")?])
}

fn stored(c: &InferContext<'_>, state: &str, value: &str) -> Result<Type, MilError> {
    let inner = wrapped(c, state)?;
    let (dtype, shape) = c.tensor(value)?;
    let given = Type::Tensor { dtype, shape };
    if agree(&inner, &given) {
        return Ok(given);
    }
    Err(c.fail(format!("a state of {inner} cannot hold {given}")))
}

fn write_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    stored(c, "input", "data").map(|_| Vec::new())
}

fn update_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    stored(c, "state", "value").map(|ty| vec![ty])
}
