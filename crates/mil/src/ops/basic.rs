//! `const`, `cast` and `identity`.

use super::elementwise::unary_rule;
use super::infer::tensor;
use super::{InferContext, MOVABLE, OpDef, Param, str_const, x_of};
use crate::error::MilError;
use crate::program::{DataType, Type};

const CAST: &[Param] = &[Param::new("x", MOVABLE), str_const("dtype")];
const X: &[Param] = &[x_of(MOVABLE)];

pub(super) const OPS: &[OpDef] =
    &[OpDef::new("const", &[], const_rule), OpDef::new("cast", CAST, cast_rule), OpDef::new("identity", X, unary_rule)];

/// The type of the attribute `val`.
fn const_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    match c.attributes.iter().find(|(n, _)| n == "val") {
        Some((_, value)) => Ok(vec![value.ty()]),
        None => Err(MilError::MissingArgument { op: "const".into(), argument: "val".into() }),
    }
}

fn cast_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    let name = c.text("dtype")?;
    match DataType::from_name(&name) {
        Some(dtype) if MOVABLE.contains(&dtype) => Ok(tensor(dtype, shape)),
        _ => Err(c.fail(format!("cannot cast to \"{name}\""))),
    }
}
