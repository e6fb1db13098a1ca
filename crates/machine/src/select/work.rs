//! The arithmetic and traffic of an op.

use std::collections::BTreeMap;

use ferrane_mil::{Arg, DataType, Function, Op, OpId, Type, ValueDef, ValueId};
use serde::Serialize;

use super::Unit;

/// Arithmetic and traffic of one op that runs alone. Counts saturate; they are zero if an extent is
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// The number of multiply-accumulates, each two FLOP.
    pub macs: u64,
    /// The number of elements of the results.
    pub elements: u64,
    /// Bytes of constants that it reads, as stored: quantized weights count quantized.
    pub weights: u64,
    /// Bytes of other values that it reads.
    pub read: u64,
    /// Bytes that it writes.
    pub written: u64,
}

impl Work {
    /// The work of an op on a unit.
    pub fn of(function: &Function, op: &Op, unit: Unit) -> Work {
        Work::with(function, op, unit, |_| true)
    }

    /// As [`Work::of`]; `folded` is true for the ops on [`Unit::Folded`], at least.
    pub(super) fn with(function: &Function, op: &Op, unit: Unit, folded: impl Fn(OpId) -> bool) -> Work {
        if unit == Unit::Folded {
            return Work::default();
        }
        let (mut weights, mut read) = (0u64, 0u64);
        for id in op.operands() {
            let value = function.value(id);
            let stored = match value.def {
                ValueDef::Op(op, _) if folded(op) => Work::stored(function, id),
                _ => None,
            };
            match stored {
                Some(bytes) => weights = weights.saturating_add(bytes),
                None => read = read.saturating_add(bytes(&value.ty)),
            }
        }
        let sum =
            |f: fn(&Type) -> u64| op.outputs.iter().map(|&v| f(&function.value(v).ty)).fold(0, u64::saturating_add);
        let multiplies = matches!(unit, Unit::Mac | Unit::Composite);
        let macs = if multiplies { macs(function, op) } else { 0 };
        Work { macs, elements: sum(elements), weights, read, written: sum(bytes) }
    }

    /// Bytes of a value known at compile time: a constant, or the result of a `constexpr_*` of
    /// constants.
    pub(crate) fn stored(function: &Function, id: ValueId) -> Option<u64> {
        let value = function.value(id);
        let ValueDef::Op(op, _) = value.def else { return None };
        let op = function.op(op);
        match op.name.as_str() {
            "const" => Some(bytes(&value.ty)),
            name if name.starts_with("constexpr_") => {
                let args = op.operands().map(|v| bytes(&function.value(v).ty));
                let inline = op.attributes.iter().filter(|(n, _)| n != "name").map(|(_, c)| bytes(&c.ty()));
                Some(args.chain(inline).fold(0, u64::saturating_add))
            }
            _ => None,
        }
    }
}

fn elements(ty: &Type) -> u64 {
    ty.elements().unwrap_or(0) as u64
}

fn bytes(ty: &Type) -> u64 {
    let bits = ty.dtype().and_then(DataType::bits).unwrap_or(0) as u64;
    elements(ty).saturating_mul(bits).div_ceil(8)
}

fn shape(function: &Function, op: &Op, arg: &str) -> Option<Vec<u64>> {
    let ty = match op.arg(arg)? {
        ferrane_mil::Arg::Value(v) => function.value(*v).ty.clone(),
        ferrane_mil::Arg::Const(c) => c.ty(),
        ferrane_mil::Arg::List(_) => return None,
    };
    ty.shape().map(|s| s.into_iter().map(|n| n as u64).collect())
}

fn product(extents: &[u64]) -> u64 {
    extents.iter().fold(1, |a, &b| a.saturating_mul(b))
}

/// The multiply-accumulates of a product, a convolution or attention; 0 for every other op.
fn macs(function: &Function, op: &Op) -> u64 {
    let out: u64 = op.outputs.first().map_or(0, |&v| elements(&function.value(v).ty));
    let weight = || shape(function, op, "weight");
    let flag = |name| function.arg_constant(op, name).and_then(|c| c.as_bool()).unwrap_or(false);
    let inner = match op.name.as_str() {
        // Each output element sums over the kernel: the input channels of its group times the
        // window.
        "conv" => weight().and_then(|w| w.get(1..).map(product)),
        "linear" => weight().and_then(|w| w.last().copied()),
        "matmul" => shape(function, op, "x").and_then(|x| {
            let back = if flag("transpose_x") && x.len() > 1 { 2 } else { 1 };
            x.len().checked_sub(back).map(|i| x[i])
        }),
        "einsum" => return labeled(function, op).unwrap_or(0),
        "conv_transpose" => {
            // Each input element is multiplied by the whole kernel of its group.
            let input = shape(function, op, "x").map(|x| product(&x)).unwrap_or(0);
            return weight().and_then(|w| w.get(1..).map(product)).map_or(0, |k| input.saturating_mul(k));
        }
        "scaled_dot_product_attention" => {
            let (Some(q), Some(k)) = (shape(function, op, "query"), shape(function, op, "key")) else { return 0 };
            let (Some(keys), Some(width)) = (k.len().checked_sub(2).map(|i| k[i]), q.last()) else { return 0 };
            let scores = q.split_last().map_or(0, |(_, q)| product(q)).saturating_mul(keys);
            return scores.saturating_mul(*width).saturating_add(out.saturating_mul(keys));
        }
        _ => None,
    };
    inner.map_or(0, |inner| out.saturating_mul(inner))
}

/// The multiply-accumulates of an `einsum`: one for every combination of its labels' values.
fn labeled(function: &Function, op: &Op) -> Option<u64> {
    let Some(Arg::List(values)) = op.arg("values") else { return None };
    let equation = function.arg_constant(op, "equation")?.as_str()?;
    let mut sizes: BTreeMap<char, u64> = BTreeMap::new();
    for (labels, value) in equation.split("->").next()?.split(',').zip(values) {
        for (label, extent) in labels.trim().chars().zip(function.value(*value).ty.shape()?) {
            let size = sizes.entry(label).or_insert(1);
            *size = (*size).max(extent as u64);
        }
    }
    Some(sizes.values().fold(1, |n, size| n.saturating_mul(*size)))
}
