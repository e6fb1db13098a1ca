//! Tables: how values are computed, rounded and stored.

use std::sync::Arc;

use ferrane_host::{convert, f16, vectorize};
use ferrane_mil::DataType;

use super::hardware::Hardware;
use crate::ir::{Policy, Storage, Unary};
use crate::tensor_ops::{Data, HeapTensor};

/// The functions of one numerics.
#[derive(Clone)]
pub(crate) struct Table {
    /// How fp16 values are stored between ops.
    pub half: Storage,
    /// Sums accumulate in fp64.
    pub wide_sums: bool,
    /// The function that computes a [`Unary`] over a slice.
    pub unary: fn(Unary, &mut [f32], &[f32]),
    /// The machine whose rules apply to fp16 values, if any.
    pub hardware: Option<Arc<Hardware>>,
}

impl Table {
    /// The rules of the machine, if the table follows one.
    pub(crate) fn rules(&self) -> Option<&ferrane_arith::Rules> {
        self.hardware.as_ref().map(|h| &h.rules)
    }

    /// Rounds results of an op to fp16.
    pub(crate) fn round(&self, values: &mut [f32]) {
        match &self.hardware {
            Some(hardware) => hardware.round(values),
            None => convert::round_f16(values),
        }
    }

    /// Canonicalizes fp16 values as the machine does when it loads them: some machines turn NaN
    /// into infinity.
    pub(crate) fn enter(&self, values: &mut [f32]) {
        if let Some(hardware) = &self.hardware {
            hardware.enter(values);
        }
    }

    /// [`enter`](Self::enter) for a tensor of fp16.
    pub(crate) fn enter_tensor(&self, tensor: &mut HeapTensor) {
        if let (DataType::Fp16, Data::Floats(values)) = (tensor.dtype, &mut tensor.data) {
            self.enter(values);
        }
    }

    /// Canonicalizes the bytes of an output port: values that were only moved have not been through
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

    /// Rounds and wraps a tensor op's result to its element type.
    pub(crate) fn settle(&self, tensor: &mut HeapTensor, round: bool) {
        if let (true, Some(hardware), DataType::Fp16, Data::Floats(values)) =
            (round, &self.hardware, tensor.dtype, &mut tensor.data)
        {
            hardware.round(values);
        }
        tensor.settle(round);
    }

    /// What a lowering must know about the table.
    pub(crate) fn policy(&self) -> Policy<'_> {
        let fuses = self.half == Storage::F16 && !self.wide_sums && self.hardware.is_none();
        Policy { half: self.half, fuses, rules: self.rules() }
    }

    /// True if a result of that type is rounded to fp16 by the step that computes it.
    pub(crate) fn rounds(&self, dtype: DataType) -> bool {
        self.policy().rounds(dtype)
    }
}
