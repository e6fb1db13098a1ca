//! Lists of tensors of one type.

use super::infer::{InferContext, MAX_RANK, agree, same, show, tensor};
use super::signature::{BASIC, INT32, Literal, OpDef, Param, Takes, bool_const, str_const};
use crate::error::MilError;
use crate::op;
use crate::program::{DataType, Dim, Type};

const LS: Param = Param::takes("ls", Takes::List);
const VALUE: Param = Param::new("value", BASIC).of("T");

const MAKE: &[Param] = &[
    Param::new("init_length", INT32).or(Literal::Int(1)),
    bool_const("dynamic_length").or(Literal::Bool(true)),
    Param::new("elem_shape", &[DataType::Int32, DataType::String]).variadic().constant(),
    str_const("dtype").or(Literal::Str("fp32")),
];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::MAKE_LIST, "a list of tensors of one type", MAKE, make_rule),
    OpDef::new(op::LIST_LENGTH, "the number of elements", &[LS], length_rule),
    OpDef::new(op::LIST_READ, "the element at an index", &[LS, Param::new("index", INT32)], read_rule),
    OpDef::new(
        op::LIST_WRITE,
        "the list with one element replaced",
        &[LS, Param::new("index", INT32), VALUE],
        write_rule,
    ),
    OpDef::new(op::LIST_GATHER, "the elements at indices, stacked", &[LS, Param::new("indices", INT32)], gather_rule),
    OpDef::new(
        op::LIST_SCATTER,
        "the list with the elements at indices replaced by slices of a tensor",
        &[LS, Param::new("indices", INT32), VALUE],
        scatter_rule,
    ),
];

/// An extent given as a string is a symbol: unknown.
fn make_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let name = c.text("dtype")?;
    let dtype = DataType::from_name(&name).ok_or_else(|| c.fail(format!("no element type \"{name}\"")))?;
    let mut shape = Vec::new();
    for item in c.items("elem_shape")? {
        if item.as_str().is_some() {
            shape.push(Dim::Unknown);
            continue;
        }
        for n in item.as_ints().ok_or_else(|| c.fail("`elem_shape` must hold extents"))? {
            let extent = usize::try_from(n).map_err(|_| c.fail(format!("`elem_shape` holds the extent {n}")))?;
            shape.push(Dim::Fixed(extent));
        }
        if shape.len() > MAX_RANK {
            return Err(c.fail(format!("rank {} is too large", shape.len())));
        }
    }
    let length = match (c.flag("dynamic_length")?, c.ints_known("init_length")?.as_deref()) {
        (false, Some([n])) => Dim::Fixed(usize::try_from(*n).map_err(|_| c.fail(format!("a length of {n}")))?),
        _ => Dim::Unknown,
    };
    Ok(vec![Type::List { element: Box::new(Type::Tensor { dtype, shape }), length }])
}

fn list(c: &InferContext<'_>) -> Result<(Type, Type), MilError> {
    match c.types("ls").into_iter().next() {
        Some(Type::List { element, length }) => Ok((*element.clone(), Type::List { element, length })),
        _ => Err(c.fail("`ls` must be a list")),
    }
}

fn length_rule(_: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    Ok(vec![Type::scalar(DataType::Int32)])
}

fn read_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    c.ranked("index", 0)?;
    Ok(vec![list(c)?.0])
}

fn holds(c: &InferContext<'_>, element: &Type, value: &Type) -> Result<(), MilError> {
    if agree(element, value) {
        return Ok(());
    }
    Err(c.fail(format!("a list of {element} cannot hold {value}")))
}

fn write_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (element, list) = list(c)?;
    c.ranked("index", 0)?;
    let (dtype, shape) = c.tensor("value")?;
    holds(c, &element, &Type::Tensor { dtype, shape })?;
    Ok(vec![list])
}

fn gather_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (element, _) = list(c)?;
    let (_, indices) = c.ranked("indices", 1)?;
    let Type::Tensor { dtype, shape } = element else { return Err(c.fail(format!("cannot stack {element}"))) };
    Ok(tensor(dtype, [indices, shape].concat()))
}

fn scatter_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (element, list) = list(c)?;
    let (_, indices) = c.ranked("indices", 1)?;
    let (dtype, value) = c.tensor("value")?;
    if value.first().is_none_or(|n| same(n, &indices[0]).is_none()) {
        return Err(c.fail(format!(
            "value {} does not hold one slice for each of {} indices",
            show(&value),
            show(&indices)
        )));
    }
    holds(c, &element, &Type::Tensor { dtype, shape: value[1..].to_vec() })?;
    Ok(vec![list])
}
