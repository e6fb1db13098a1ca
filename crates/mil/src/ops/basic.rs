//! `const`, `cast`, `identity`, and `classify`.

use super::elementwise::unary_rule;
use super::infer::{InferContext, tensor};
use super::signature::{BASIC, FP32, MOVABLE, OpDef, Param, Takes, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Constant, DataType, Type};

const CAST: OpDef = OpDef::new(op::CAST, "x with another element type", &[x_of(BASIC), str_const("dtype")], cast_rule);
const CLASSIFY: &[Param] = &[Param::new("probabilities", FP32), Param::takes("classes", Takes::List).constant()];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::CONST, "the value of its attribute `val`", &[], const_rule),
    CAST,
    CAST.again(Opset::IOS17, &[x_of(MOVABLE), str_const("dtype")]),
    OpDef::new(op::IDENTITY, "x", &[Param::takes("x", Takes::Any)], identity_rule),
    OpDef::new(
        op::CLASSIFY,
        "the class of the largest probability, and all probabilities by class",
        CLASSIFY,
        classify_rule,
    ),
];

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
    let known = c.def.param("x").map_or(BASIC, |p| p.accepts);
    match DataType::from_name(&name) {
        Some(dtype) if known.contains(&dtype) => Ok(tensor(dtype, shape)),
        _ => Err(c.fail(format!("cannot cast to \"{name}\""))),
    }
}

fn identity_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    match c.types("x").into_iter().next() {
        Some(Type::State(_)) | None => unary_rule(c),
        Some(ty) => Ok(vec![ty]),
    }
}

/// A class and a dictionary from class to probability; classes are strings or 64-bit integers.
fn classify_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("probabilities")?;
    let Some(Type::List { element, .. }) = c.types("classes").into_iter().next() else {
        return Err(c.fail("`classes` must be a list"));
    };
    let key = match element.dtype() {
        Some(dtype @ (DataType::String | DataType::Int64)) => Type::scalar(dtype),
        _ => return Err(c.fail(format!("classes must be strings or int64, not {element}"))),
    };
    if let (Some(Constant::List(_, classes)), crate::program::Dim::Fixed(n)) =
        (c.constant("classes"), c.volume(&shape)?)
        && classes.len() != n
    {
        return Err(c.fail(format!("{} classes for {n} probabilities", classes.len())));
    }
    let probability = Type::scalar(DataType::Fp64);
    Ok(vec![key.clone(), Type::Dict(Box::new(key), Box::new(probability))])
}
