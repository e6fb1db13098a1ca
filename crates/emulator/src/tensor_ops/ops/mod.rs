//! The tensor ops, one file for each op family.

use super::TensorOp;

mod channels;
mod constexpr;
mod conv_transpose;
mod create;
mod einsum;
mod grid;
mod random;
mod rearrange;
mod recurrent;
mod resize;
mod sample;
mod scatter;
mod sort;
mod suppress;

/// Name and routine of every op that is computed here.
pub(super) const FAMILIES: &[&[(&str, TensorOp)]] = &[
    channels::FAMILY,
    constexpr::FAMILY,
    conv_transpose::FAMILY,
    create::FAMILY,
    einsum::FAMILY,
    random::FAMILY,
    rearrange::FAMILY,
    recurrent::FAMILY,
    resize::FAMILY,
    sample::FAMILY,
    scatter::FAMILY,
    sort::FAMILY,
    suppress::FAMILY,
];
