//! From one dialect to the other, and from a newer opset to an older one.
//!
//! The spelling alone is the printer's choice; what a conversion has to watch is what goes with it (mil-text §2). The verbose
//! dialect is that of `program(1.0)`, which no reader takes together with ios18; so a function of a newer opset must be lowered,
//! and that is possible only where every op, type and default value already exists in the older opset.

use crate::error::MilError;
use crate::ops::{self, OpDef, Opset, Presence};
use crate::program::{BlockId, DataType, Dialect, Function, Op, Program, Type};
use crate::verify::check_op;
use crate::weights::Weights;

/// The header of the verbose dialect.
const VERBOSE: (u32, u32) = (1, 0);
/// The oldest header that published shorthand programs have.
const SHORTHAND: (u32, u32) = (1, 3);
/// The opsets that a `program(1.0)` is seen with, in the order in which they are tried: the older is the more widely accepted.
const LOWER: [Opset; 2] = [Opset::IOS16, Opset::IOS17];

/// The program in a dialect, with a header and opsets that go with it: shorthand is at least `program(1.3)`, verbose is
/// `program(1.0)` with no opset above ios17. A newer function is lowered to ios16, or to ios17 if it needs that.
///
/// # Errors
/// [`MilError::Opset`] with the first op or value that the older opsets do not have, the same or in the same meaning.
pub fn convert(program: &Program, dialect: Dialect) -> Result<Program, MilError> {
    let mut converted = program.clone();
    converted.dialect = dialect;
    match dialect {
        Dialect::Shorthand => converted.version = program.version.max(SHORTHAND),
        Dialect::Verbose => {
            converted.version = VERBOSE;
            for function in &mut converted.functions {
                for body in 0..function.bodies.len() {
                    lower_for_verbose(function, body, &converted.weights)?;
                }
            }
        }
    }
    Ok(converted)
}

fn lower_for_verbose(function: &mut Function, body: usize, weights: &Weights) -> Result<(), MilError> {
    let tag = function.bodies[body].0.clone();
    let Some(opset) = Opset::from_name(&tag) else {
        let reason = format!("`{tag}` is no opset that is known to go with program(1.0)");
        return Err(MilError::Opset { function: function.name.clone(), reason });
    };
    if opset <= LOWER[1] {
        return Ok(());
    }
    let taken = |o: Opset| function.bodies.iter().any(|(tag, _)| Opset::from_name(tag) == Some(o));
    let free: Vec<Opset> = LOWER.into_iter().filter(|o| !taken(*o)).collect();
    let mut refused = None;
    for target in free {
        match lower_body(function, body, target, weights) {
            Ok(()) => return Ok(()),
            Err(e) => refused = Some(e),
        }
    }
    Err(refused.unwrap_or_else(|| MilError::Opset {
        function: function.name.clone(),
        reason: format!("it has bodies for ios16 and ios17 already, and program(1.0) does not go with {tag}"),
    }))
}

/// Lowers every body of a function to an opset, where it is of a newer one.
///
/// # Errors
/// [`MilError::Opset`] as for [`convert`], and where two bodies would be of one opset. The function is then unchanged.
pub fn lower(function: &mut Function, target: Opset, weights: &Weights) -> Result<(), MilError> {
    let newer = |tag: &str| Opset::from_name(tag).is_none_or(|o| o > target);
    let bodies: Vec<usize> = (0..function.bodies.len()).filter(|&i| newer(&function.bodies[i].0)).collect();
    let same = function.bodies.iter().any(|(tag, _)| Opset::from_name(tag) == Some(target));
    if bodies.len() > 1 || (same && !bodies.is_empty()) {
        let reason = format!("two of its bodies would be of ios{}", target.0);
        return Err(MilError::Opset { function: function.name.clone(), reason });
    }
    bodies.into_iter().try_for_each(|body| lower_body(function, body, target, weights))
}

fn lower_body(function: &mut Function, body: usize, target: Opset, weights: &Weights) -> Result<(), MilError> {
    let (tag, root) = &function.bodies[body];
    let refuse = |what: String| MilError::Opset {
        function: function.name.clone(),
        reason: format!("{what}, so it cannot be of ios{}", target.0),
    };
    let from = Opset::from_name(tag).ok_or_else(|| refuse(format!("`{tag}` is no opset that is known")))?;
    for value in &function.values {
        if let Some(what) = newer_type(&value.ty).filter(|_| target < Opset::IOS18) {
            return Err(refuse(format!("`{}` is {what}, which exists from ios18 on", value.name)));
        }
    }
    let mut open: Vec<BlockId> = vec![*root];
    while let Some(block) = open.pop() {
        for &id in &function.block(block).ops {
            let op = function.op(id);
            let known = ops::find(&op.name, from);
            let (Some(old), Some(new)) = (ops::find(&op.name, target), known) else {
                let why = if known.is_some() { "exists only in newer opsets" } else { "is not known" };
                return Err(refuse(format!("op `{}` {why}", op.name)));
            };
            check_op(function, op, target, weights).map_err(|e| refuse(e.to_string()))?;
            if let Some(name) = other_default(op, old, new) {
                let what = format!("op `{}` leaves out `{name}`, whose default value is another one there", op.name);
                return Err(refuse(what));
            }
            open.extend_from_slice(&op.blocks);
        }
    }
    function.bodies[body].0 = format!("ios{}", target.0);
    Ok(())
}

/// What a type has that came with ios18.
fn newer_type(ty: &Type) -> Option<&'static str> {
    use DataType::{Fp8E4M3Fn, Fp8E5M2, Int4, UInt1, UInt2, UInt3, UInt4, UInt6};
    match ty {
        Type::State(_) => Some("a state"),
        Type::Tensor { dtype: Int4 | UInt1 | UInt2 | UInt3 | UInt4 | UInt6, .. } => Some("of a type below eight bits"),
        Type::Tensor { dtype: Fp8E4M3Fn | Fp8E5M2, .. } => Some("of an 8-bit float type"),
        Type::List { element, .. } => newer_type(element),
        Type::Tuple(types) => types.iter().find_map(newer_type),
        Type::Dict(key, value) => newer_type(key).or_else(|| newer_type(value)),
        Type::Tensor { .. } => None,
    }
}

/// An argument that is left out and means something else in the older signature.
fn other_default(op: &Op, old: &OpDef, new: &OpDef) -> Option<&'static str> {
    let absent = |name: &str| op.arg(name).is_none() && op.attribute(name).is_none();
    let presence = |def: &OpDef, name: &str| def.param(name).map_or(Presence::Optional, |p| p.presence);
    let names = old.params.iter().chain(new.params).map(|p| p.name);
    names.filter(|name| absent(name)).find(|name| presence(old, name) != presence(new, name))
}
