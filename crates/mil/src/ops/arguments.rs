//! Checks the arguments of one op against its signature, and runs its shape rule.

use std::collections::BTreeMap;

use super::infer::{InferContext, MAX_EXTENT, MAX_RANK};
use super::registry::versions;
use super::signature::{Param, Presence, Takes};
use crate::error::MilError;
use crate::program::{Arg, DataType, Dim, Type};

/// The result types of an op, after all checks.
///
/// # Errors
/// Unknown, missing, duplicate or ill-typed arguments, and errors of the op's own rule.
pub fn infer(context: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    check_arguments(context)?;
    (context.def.infer)(context)
}

fn check_arguments(c: &InferContext<'_>) -> Result<(), MilError> {
    let op = c.def.name.to_string();
    for (i, (name, arg)) in c.args.iter().enumerate() {
        let argument = name.clone();
        let Some(param) = c.def.param(name) else {
            if let Some(later) = versions(c.def.name).iter().find(|d| d.param(name).is_some() && d.since > c.def.since)
            {
                return Err(MilError::LaterArgument { op, argument, since: later.since.to_string() });
            }
            let suggestion = ferrane_diag::nearest(name, c.def.params.iter().map(|p| p.name)).map(str::to_string);
            return Err(MilError::UnknownArgument { op, argument, suggestion });
        };
        if c.args[..i].iter().any(|(n, _)| n == name) {
            return Err(MilError::DuplicateArgument { op, argument });
        }
        if matches!(arg, Arg::List(_)) != param.variadic {
            let (expected, found) = match param.variadic {
                true => ("a list of values", "one value"),
                false => ("one value", "a list of values"),
            };
            // A list argument of one value may be written without parentheses, one of numbers as a
            // literal.
            if !(param.variadic && matches!(arg, Arg::Value(_) | Arg::Const(_))) {
                return Err(MilError::ArgumentType { op, argument, expected: expected.into(), found: found.into() });
            }
        }
    }
    let mut domains: BTreeMap<&str, (DataType, &str)> = BTreeMap::new();
    for param in c.def.params {
        let types = c.types(param.name);
        if !c.has(param.name) {
            if param.presence == Presence::Required {
                return Err(MilError::MissingArgument { op, argument: param.name.to_string() });
            }
            continue;
        }
        for ty in types {
            check_type(c, param, &ty, &mut domains)?;
        }
        if param.constant && !c.is_constant(param.name) {
            return Err(MilError::NotConstant { op, argument: param.name.to_string() });
        }
    }
    Ok(())
}

fn check_type(
    c: &InferContext<'_>,
    param: &Param,
    ty: &Type,
    domains: &mut BTreeMap<&'static str, (DataType, &'static str)>,
) -> Result<(), MilError> {
    let mismatch = |expected: String| MilError::ArgumentType {
        op: c.def.name.to_string(),
        argument: param.name.to_string(),
        expected,
        found: ty.to_string(),
    };
    let (dtype, shape) = match (param.takes, ty) {
        (Takes::Any, _) if !matches!(ty, Type::Tensor { .. }) => return Ok(()),
        (Takes::List, Type::List { .. }) | (Takes::State, Type::State(_)) => return Ok(()),
        (Takes::Tensor | Takes::Any, Type::Tensor { dtype, shape }) => (dtype, shape),
        (Takes::List, _) => return Err(mismatch("a list".into())),
        (Takes::State, _) => return Err(mismatch("a state".into())),
        (Takes::Tensor | Takes::Any, _) => return Err(mismatch("a tensor".into())),
    };
    if shape.len() > MAX_RANK || shape.iter().any(|d| matches!(d, Dim::Fixed(n) if *n > MAX_EXTENT)) {
        return Err(mismatch(format!("of rank {MAX_RANK} and extents {MAX_EXTENT} at most")));
    }
    if param.takes == Takes::Any {
        return Ok(());
    }
    if !param.accepts.contains(dtype) {
        let names: Vec<&str> = param.accepts.iter().map(|d| d.name()).collect();
        return Err(mismatch(format!("of {}", names.join(", "))));
    }
    if let Some(domain) = param.domain {
        let (first, owner) = domains.entry(domain).or_insert((*dtype, param.name));
        if first != dtype {
            return Err(mismatch(format!("of {first} like `{owner}`")));
        }
    }
    Ok(())
}
