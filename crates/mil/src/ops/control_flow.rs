//! `cond` and `while_loop`: ops with nested blocks, which may use values of the blocks around them.
//!
//! A predicate is a bool of one element, of any rank. The shape rules of coremltools 9.0
//! (`control_flow.py`) accept every bool tensor as `pred`, and do not look at what the first block
//! of a loop gives; its conversion of PyTorch's GRU makes loops whose condition has the shape
//! `[1]`.

use super::infer::{InferContext, agree};
use super::signature::{BOOL, OpDef, Param, Takes};
use crate::error::MilError;
use crate::op;
use crate::program::{Block, DataType, Dim, Type, ValueId};

const COND: &[Param] = &[Param::new("pred", BOOL)];
const WHILE: &[Param] = &[Param::takes("loop_vars", Takes::Any).variadic()];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::COND, "the results of the first block where pred, else of the second", COND, cond_rule),
    OpDef::new(
        op::WHILE_LOOP,
        "the loop variables after the second block has run for as long as the first gives true",
        WHILE,
        while_rule,
    ),
];

fn two_blocks<'a>(c: &InferContext<'a>) -> Result<[&'a Block; 2], MilError> {
    let [first, second] = c.blocks else {
        return Err(c.fail(format!("needs two blocks, has {}", c.blocks.len())));
    };
    match (c.function.blocks.get(first.index()), c.function.blocks.get(second.index())) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(c.fail("names no block of its function")),
    }
}

fn types(c: &InferContext<'_>, values: &[ValueId]) -> Vec<Type> {
    values.iter().map(|&v| c.value_type(v)).collect()
}

/// The type that fits both values: extents that differ are unknown.
fn join(a: &Type, b: &Type) -> Type {
    let extent = |x: &Dim, y: &Dim| if x == y { x.clone() } else { Dim::Unknown };
    match (a, b) {
        (Type::Tensor { dtype, shape: s }, Type::Tensor { shape: t, .. }) if s.len() == t.len() => {
            Type::Tensor { dtype: *dtype, shape: s.iter().zip(t).map(|(x, y)| extent(x, y)).collect() }
        }
        (Type::List { element: e, length: m }, Type::List { element: f, length: n }) => {
            Type::List { element: Box::new(join(e, f)), length: extent(m, n) }
        }
        _ => a.clone(),
    }
}

/// True if a value of this type can be one bool.
fn is_predicate(ty: &Type) -> bool {
    matches!(ty, Type::Tensor { dtype: DataType::Bool, shape }
        if shape.iter().all(|extent| matches!(extent, Dim::Fixed(1) | Dim::Unknown)))
}

fn cond_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("pred")?;
    let pred = Type::Tensor { dtype, shape };
    if !is_predicate(&pred) {
        return Err(c.fail(format!("`pred` must be one bool, not {pred}; reduce it, with reduce_max for example")));
    }
    let [yes, no] = two_blocks(c)?;
    let (yes, no) = (types(c, &yes.outputs), types(c, &no.outputs));
    if yes.len() != no.len() {
        return Err(c.fail(format!("one branch gives {} values, the other {}", yes.len(), no.len())));
    }
    if let Some((a, b)) = yes.iter().zip(&no).find(|(a, b)| !agree(a, b)) {
        return Err(c.fail(format!("one branch gives {a} where the other gives {b}")));
    }
    Ok(yes.iter().zip(&no).map(|(a, b)| join(a, b)).collect())
}

fn while_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let [condition, body] = two_blocks(c)?;
    let vars = c.types("loop_vars");
    match types(c, &condition.outputs).as_slice() {
        [found] if is_predicate(found) => {}
        [found] => return Err(c.fail(format!("the first block must give one bool, not {found}"))),
        found => return Err(c.fail(format!("the first block must give one bool, gives {} values", found.len()))),
    }
    for (what, found) in [
        ("the condition takes", types(c, &condition.inputs)),
        ("the body takes", types(c, &body.inputs)),
        ("the body gives", types(c, &body.outputs)),
    ] {
        if found.len() != vars.len() {
            return Err(c.fail(format!("{what} {} values, there are {} loop variables", found.len(), vars.len())));
        }
        if let Some((found, var)) = found.iter().zip(&vars).find(|(f, v)| !agree(f, v)) {
            return Err(c.fail(format!("{what} {found} for a loop variable of {var}")));
        }
    }
    Ok(vars.iter().zip(types(c, &body.outputs)).map(|(a, b)| join(a, &b)).collect())
}
