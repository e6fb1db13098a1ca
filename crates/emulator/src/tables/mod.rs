//! Tables: the functions of a plan's steps, one set for each numerics.
//!
//! Both tables compute in fp32. `exact` keeps fp32 between ops and sums in fp64 where a sum is ours (the oracle); `fast` stores fp16
//! values as fp16 and rounds once, to nearest even, where an op makes one. Integers and bools are exact in both.

mod elementwise;
mod group;
mod host;
pub(crate) mod memory;
mod moves;
mod nest;
mod products;
mod rows;
mod scratch;

use ferrane_device::Result;
use ferrane_mil::DataType;

use crate::plan::step::{Kind, Step, Unary};
use crate::plan::view::Storage;

use memory::{Access, Memory};

/// A set of functions.
pub(crate) struct Table {
    /// How fp16 values are stored between ops.
    pub half: Storage,
    /// Sums are fp64.
    pub wide_sums: bool,
    /// Functions of one float.
    pub unary: fn(Unary, &mut [f32], &[f32]),
}

/// fp16 at op boundaries, fp32 within.
pub(crate) static FAST: Table = Table { half: Storage::F16, wide_sums: false, unary: elementwise::fast_unary };

/// fp32 throughout.
pub(crate) static EXACT: Table = Table { half: Storage::F32, wide_sums: true, unary: elementwise::exact_unary };

impl Table {
    /// How values of a type are stored between ops.
    pub(crate) fn storage(&self, dtype: DataType) -> Option<Storage> {
        match dtype {
            DataType::Fp16 => Some(self.half),
            other => Storage::of(other),
        }
    }

    /// True if a result of that type is rounded to fp16 where it is made.
    pub(crate) fn rounds(&self, dtype: DataType) -> bool {
        dtype == DataType::Fp16 && self.half == Storage::F16
    }

    /// Runs one step. `reads` and `writes` are its accesses, `bases` the offset of element 0 of each read in its slice.
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
                Kind::Group(group) => group::run(self, group, &r, bases, w)?,
                Kind::Move(nest) => moves::copy(nest, &r, bases, w),
                Kind::Fill(nest, bits) => moves::fill(nest, *bits, w),
                Kind::Matmul(product) => products::matmul(step, product, &r, w)?,
                Kind::IntMatmul => products::int_matmul(step, &r, bases, w),
                Kind::Softmax { nest, round } => rows::softmax(self, nest, *round, &r, bases, w)?,
                Kind::Reduce(reduce) => rows::reduce(self, reduce, &r, bases, w)?,
                Kind::Norm(norm) => rows::norm(self, norm, &r, bases, w)?,
                Kind::Conv(conv) => products::conv(step, conv, &r, bases, w)?,
                Kind::Pool(pool) => moves::pool(step, pool, &r, bases, w),
                Kind::Remap(maps) => moves::remap(step, maps, &r, bases, w),
                Kind::Gather { axis, batch_dims } => moves::gather(step, *axis, *batch_dims, &r, bases, w)?,
                Kind::GatherAlong { axis } => moves::gather_along(step, *axis, &r, bases, w)?,
                Kind::Host(call) => host::run(self, step, call, &r, bases, w)?,
            }
            Ok(())
        })
    }
}
