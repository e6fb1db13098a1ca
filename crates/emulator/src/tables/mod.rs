//! Tables: the functions of a plan's steps, one set for each numerics.
//!
//! All tables compute in fp32. `exact` keeps fp32 between ops and accumulates the sums that this
//! module computes in fp64 (it is the oracle); `fast` stores fp16 values as fp16 and rounds once,
//! to nearest even, where an op produces one; `hardware` does so with the rules of a machine
//! ([`hardware`]). Integers and bools are exact under all tables.

mod chain;
mod columns;
mod elementwise;
mod fused;
mod group;
pub(crate) mod hardware;
mod images;
mod means;
pub(crate) mod memory;
mod moves;
mod nest;
mod products;
mod rows;
mod scratch;
mod strided;
mod table;
mod tensor_op;

use std::sync::Arc;

use ferrane_device::Result;

use crate::ir::{Access, Step, StepKind, Storage};

use hardware::Hardware;
use memory::Memory;

pub(crate) use table::Table;

/// fp16 at op boundaries, fp32 within an op.
pub(crate) static FAST: Table =
    Table { half: Storage::F16, wide_sums: false, unary: elementwise::fast_unary, hardware: None };

/// fp32 throughout.
pub(crate) static EXACT: Table =
    Table { half: Storage::F32, wide_sums: true, unary: elementwise::exact_unary, hardware: None };

impl Table {
    /// fp16 at op boundaries, with the arithmetic of a machine.
    pub(crate) fn hardware(rules: ferrane_arith::Rules) -> Table {
        Table { hardware: Some(Arc::new(Hardware::new(rules))), ..FAST.clone() }
    }

    /// Runs one step. `reads` and `writes` are its accesses, `bases` the offset of element 0 of
    /// each read in its slice.
    pub(crate) fn run(
        &self,
        step: &Step,
        memory: &mut Memory<'_>,
        reads: &[Access],
        writes: &[Access],
        bases: &[usize],
    ) -> Result<()> {
        memory.with(reads, writes, |r, w| {
            match &step.kind {
                StepKind::Group(group) => group::run(self, group, &r, bases, w)?,
                StepKind::Move(nest) => moves::copy(nest, &r, bases, w),
                StepKind::Fill(nest, bits) => moves::fill(nest, *bits, w),
                StepKind::Matmul(product) => products::matmul(self, step, product, &r, w)?,
                StepKind::CodedMatmul(product) => products::coded(self, step, product, &r, w)?,
                StepKind::IntMatmul => products::int_matmul(step, &r, bases, w),
                StepKind::Softmax { nest, round } if columns::has_columns(self, nest) => {
                    columns::softmax(self, nest, *round, &r, bases, w)?;
                }
                StepKind::Softmax { nest, round } => rows::softmax(self, nest, *round, &r, bases, w)?,
                StepKind::Reduce(reduce) => rows::reduce(self, reduce, &r, bases, w)?,
                StepKind::Norm(norm) => rows::norm(self, norm, &r, bases, w)?,
                StepKind::Conv(conv) => products::conv(self, step, conv, &r, bases, w)?,
                StepKind::PackedConv(conv) => images::packed_conv(self, step, conv, &r, bases, w)?,
                StepKind::ByteLayer(layer) => images::byte_layer(step, layer, &r, bases, w)?,
                StepKind::ConvPair(pair) => images::conv_pair(step, pair, &r, bases, w)?,
                StepKind::Pool(pool) => images::pool(self, step, pool, &r, bases, w)?,
                StepKind::Remap(maps) => moves::remap(step, maps, &r, bases, w),
                StepKind::Gather { axis, batch_dims } => moves::gather(step, *axis, *batch_dims, &r, bases, w)?,
                StepKind::GatherAlong { axis } => moves::gather_along(step, *axis, &r, bases, w)?,
                StepKind::Chain(chain) => chain::run(self, step, chain, &r, w)?,
                StepKind::TensorOp(call) => tensor_op::run(self, step, call, &r, bases, w)?,
            }
            Ok(())
        })
    }
}
