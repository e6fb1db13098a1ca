//! A table: how values are computed, rounded and stored.

use std::sync::Arc;

use ferrane_host::{convert, f16, vectorize};
use ferrane_mil::DataType;

use super::hardware::Hardware;
use crate::ir::{Policy, Storage, Unary};
use crate::tensor_ops::{Data, HeapTensor};

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

impl Table {
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
    pub(crate) fn enter_tensor(&self, tensor: &mut HeapTensor) {
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

    /// True if a result of that type is rounded to fp16 where it is made.
    pub(crate) fn rounds(&self, dtype: DataType) -> bool {
        self.policy().rounds(dtype)
    }
}
