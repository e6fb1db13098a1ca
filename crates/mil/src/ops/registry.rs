//! The table of all signatures, and look-up by name and opset.

use std::sync::LazyLock;

use super::signature::OpDef;
use super::{
    activation, basic, compression, control_flow, conv, elementwise, gather, linear, list, normalization, pool,
    quantization, random, recurrent, reduction, resize, scatter, shape, slice, space, state, tensor,
};
use crate::error::MilError;
use crate::opset::Opset;

const FAMILIES: &[&[OpDef]] = &[
    basic::OPS,
    elementwise::OPS,
    activation::OPS,
    reduction::OPS,
    normalization::OPS,
    linear::OPS,
    conv::OPS,
    pool::OPS,
    shape::OPS,
    slice::OPS,
    space::OPS,
    tensor::OPS,
    gather::OPS,
    scatter::OPS,
    resize::OPS,
    quantization::OPS,
    compression::OPS,
    recurrent::OPS,
    random::OPS,
    control_flow::OPS,
    list::OPS,
    state::OPS,
];

/// Every signature, by name and then oldest first. Looked up by binary search: a comparison ends at
/// the first difference, while a hash would read the whole of a long name in a hostile text.
static SORTED: LazyLock<Vec<&'static OpDef>> = LazyLock::new(|| {
    let mut defs: Vec<&'static OpDef> = all().collect();
    defs.sort_by_key(|d| (d.name, d.since));
    defs
});

/// Every signature, by family; an op with several versions occurs several times.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

/// The names of all ops, sorted.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = SORTED.iter().map(|d| d.name).collect();
    names.dedup();
    names
}

/// The signatures of an op, oldest first; none if there is no such op.
pub fn versions(name: &str) -> &'static [&'static OpDef] {
    let start = SORTED.partition_point(|d| d.name < name);
    let count = SORTED[start..].iter().take_while(|d| d.name == name).count();
    &SORTED[start..start + count]
}

/// The signature of an op in an opset.
pub fn find(name: &str, opset: Opset) -> Option<&'static OpDef> {
    versions(name).iter().rev().find(|d| d.since <= opset).copied()
}

/// The signature of an op in an opset.
///
/// # Errors
/// [`MilError::LaterOp`] or [`MilError::UnknownOp`].
pub fn lookup(name: &str, opset: Opset) -> Result<&'static OpDef, MilError> {
    if let Some(def) = find(name, opset) {
        return Ok(def);
    }
    if let Some(first) = versions(name).first() {
        return Err(MilError::LaterOp {
            op: name.to_string(),
            since: first.since.to_string(),
            opset: opset.to_string(),
        });
    }
    Err(MilError::UnknownOp {
        name: name.to_string(),
        opset: opset.to_string(),
        suggestion: ferrane_diag::nearest(name, all().filter(|d| d.since <= opset).map(|d| d.name)).map(str::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_a_constant_and_every_constant_an_op() {
        assert_eq!(names(), crate::op::ALL);
    }
}
