//! What a lowering must know about the numerics that will run its steps.

use ferrane_arith::Rules;
use ferrane_mil::DataType;

use super::view::Storage;

/// The few facts about a table on which a plan depends. How steps compute is not among them.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    /// How fp16 values are stored between ops: as fp16 or, for the oracle, as fp32.
    pub half: Storage,
    /// Ops may be computed together: steps over the same rows tile by tile, and a group by a fused
    /// loop. The oracle and the tables of machines compute them one by one.
    pub fuses: bool,
    /// The rules of a machine, if the table follows one. They apply to every op by itself.
    pub rules: Option<&'a Rules>,
}

impl Policy<'_> {
    /// How values of a type are stored between ops. `None` for types without numeric elements.
    pub(crate) fn storage(&self, dtype: DataType) -> Option<Storage> {
        match dtype {
            DataType::Fp16 => Some(self.half),
            other => Storage::of(other),
        }
    }

    /// True if a result of that type is rounded to fp16 by the step that computes it.
    pub(crate) fn rounds(&self, dtype: DataType) -> bool {
        dtype == DataType::Fp16 && self.half == Storage::F16
    }
}
