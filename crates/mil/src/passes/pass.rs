//! The description of a pass, its guarantee about numbers, and its arguments.

use super::draft::Draft;
use crate::error::MilError;
use crate::eval::Evaluate;

/// The guarantee of a pass about the results of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// Results have the same bits as before.
    Bits,
    /// Equal in exact arithmetic, with other roundings, which the documentation of the pass lists.
    Rounding,
    /// Outputs get more elements; the original elements have the same bits.
    Padded,
}

/// A pass. Compared by name.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Name, as on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Guarantee about the results.
    pub exactness: Exactness,
    /// Running it again after other passes may find more.
    pub(super) repeats: bool,
    pub(super) run: fn(&mut Draft, &mut Context<'_>) -> Result<usize, MilError>,
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Pass {
    fn eq(&self, other: &Pass) -> bool {
        self.name == other.name
    }
}

/// The arguments of a pass other than the program.
pub(super) struct Context<'a> {
    pub(super) evaluate: &'a dyn Evaluate,
    pub(super) options: &'a Options,
    pub(super) padded: Vec<PaddedOutput>,
}

/// Limits that passes respect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// `constexpr_*` ops are folded too: compressed weights become plain ones.
    pub fold_constexpr: bool,
    /// The most bytes of a folded constant, or as many as those of the constants it is computed
    /// from.
    pub fold_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { fold_constexpr: false, fold_bytes: 1024 }
    }
}

/// An output that `uniform_outputs` made larger. The original elements are at the start of `axis`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaddedOutput {
    /// Name of the function.
    pub function: String,
    /// The opset of the body.
    pub opset: String,
    /// Name of the output.
    pub output: String,
    /// The axis that grew.
    pub axis: usize,
    /// Extents before padding, outermost first.
    pub from: Vec<usize>,
    /// Extents after padding, outermost first.
    pub to: Vec<usize>,
}
