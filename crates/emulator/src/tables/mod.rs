//! Tables: the functions of a plan's steps, one set for each numerics.
//!
//! All tables compute in fp32. `exact` keeps fp32 between ops and sums in fp64 where a sum is ours
//! (the oracle); `fast` stores fp16 values as fp16 and rounds once, to nearest even, where an op
//! makes one; `hardware` does so with the rules of a machine ([`hardware`]). Integers and bools are
//! exact in all.

mod chain;
mod elementwise;
mod fused;
mod group;
pub(crate) mod hardware;
pub(crate) mod memory;
mod moves;
mod nest;
mod products;
mod rows;
mod scratch;
mod tensor_op;

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_host::{convert, f16, vectorize};
use ferrane_mil::DataType;

use crate::tensor_ops::{Data, Tensor};

use crate::ir::{Access, Step, StepKind, Storage, Unary};

use hardware::Hardware;
use memory::Memory;

/// A set of functions.
#[derive(Clone)]
pub(crate) struct Table {
    /// How fp16 values are stored between ops.
    pub half: Storage,
    /// Sums are fp64.
    pub wide_sums: bool,
    /// Functions of one float.
    pub unary: fn(Unary, &mut [f32], &[f32]),
    /// The machine whose rules hold for fp16 values.
    pub hardware: Option<Arc<Hardware>>,
}

/// fp16 at op boundaries, fp32 within.
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

    /// The rules of the machine, if the table is one's.
    pub(crate) fn rules(&self) -> Option<&ferrane_arith::Rules> {
        self.hardware.as_ref().map(|h| &h.rules)
    }

    /// Rounds what an op made to fp16.
    pub(crate) fn round(&self, values: &mut [f32]) {
        match &self.hardware {
            Some(hardware) => hardware.round(values),
            None => convert::round_f16(values),
        }
    }

    /// fp16 values as they come from memory: under a machine's rules a NaN that came in is
    /// something else.
    pub(crate) fn enter(&self, values: &mut [f32]) {
        if let Some(hardware) = &self.hardware {
            hardware.enter(values);
        }
    }

    /// [`enter`](Self::enter) for a tensor of fp16.
    pub(crate) fn enter_tensor(&self, tensor: &mut Tensor) {
        if let (DataType::Fp16, Data::Floats(values)) = (tensor.dtype, &mut tensor.data) {
            self.enter(values);
        }
    }

    /// What a port gives out: values that were only moved have not been through
    /// [`enter`](Self::enter).
    pub(crate) fn leave(&self, dtype: DataType, bytes: &mut [u8]) {
        let is_machine = self.hardware.as_ref().is_some_and(|h| h.rules.nan_to_inf);
        if let (true, DataType::Fp16, Ok(halves)) = (is_machine, dtype, bytemuck::try_cast_slice_mut::<u8, u16>(bytes))
        {
            vectorize!({
                for bits in halves {
                    *bits = if *bits & 0x7FFF > 0x7C00 { f16::INFINITY.to_bits() } else { *bits };
                }
            });
        }
    }

    /// A tensor op's result with the values that its type has.
    pub(crate) fn settle(&self, tensor: &mut Tensor, round: bool) {
        if let (true, Some(hardware), DataType::Fp16, Data::Floats(values)) =
            (round, &self.hardware, tensor.dtype, &mut tensor.data)
        {
            hardware.round(values);
        }
        tensor.settle(round);
    }

    /// How values of a type are stored between ops.
    pub(crate) fn storage(&self, dtype: DataType) -> Option<Storage> {
        match dtype {
            DataType::Fp16 => Some(self.half),
            other => Storage::of(other),
        }
    }

    /// True if ops may be computed together: steps over the same rows tile by tile, a group with a
    /// fused loop in one pass. The oracle and the tables of machines compute them one by one.
    pub(crate) fn fuses(&self) -> bool {
        self.half == Storage::F16 && !self.wide_sums && self.hardware.is_none()
    }

    /// True if a result of that type is rounded to fp16 where it is made.
    pub(crate) fn rounds(&self, dtype: DataType) -> bool {
        dtype == DataType::Fp16 && self.half == Storage::F16
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
                StepKind::IntMatmul => products::int_matmul(step, &r, bases, w),
                StepKind::Softmax { nest, round } => rows::softmax(self, nest, *round, &r, bases, w)?,
                StepKind::Reduce(reduce) => rows::reduce(self, reduce, &r, bases, w)?,
                StepKind::Norm(norm) => rows::norm(self, norm, &r, bases, w)?,
                StepKind::Conv(conv) => products::conv(self, step, conv, &r, bases, w)?,
                StepKind::Pool(pool) => moves::pool(self, step, pool, &r, bases, w),
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
