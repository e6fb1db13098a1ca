//! What a pass is: its description, its promise about numbers, and what it works with.

use super::draft::Draft;
use crate::error::MilError;
use crate::eval::Evaluate;

/// What a pass promises about the results of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// The same bits.
    Bits,
    /// The same in exact arithmetic, rounded elsewhere: the pass's documentation says where.
    Rounding,
    /// Outputs with more elements; those that were there have the same bits.
    Padded,
}

/// A pass. Compared by name.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Its name: what a command line says.
    pub name: &'static str,
    /// What it does, in a line.
    pub doc: &'static str,
    /// Its promise.
    pub exactness: Exactness,
    /// Running it again, after others, may find more.
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

/// What a pass is given besides the program.
pub(super) struct Context<'a> {
    pub(super) evaluate: &'a dyn Evaluate,
    pub(super) options: &'a Options,
    pub(super) padded: Vec<PaddedOutput>,
}

/// Limits of passes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// `constexpr_*` ops are folded too: compressed weights become plain ones.
    pub fold_constexpr: bool,
    /// A folded constant may have so many bytes, or as many as the constants it is computed from.
    pub fold_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { fold_constexpr: false, fold_bytes: 1024 }
    }
}

/// An output that `uniform_outputs` made larger. What was there lies at the start of `axis`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaddedOutput {
    /// The function.
    pub function: String,
    /// The opset of the body.
    pub opset: String,
    /// The output.
    pub output: String,
    /// The axis that grew.
    pub axis: usize,
    /// The true extents.
    pub from: Vec<usize>,
    /// The extents now.
    pub to: Vec<usize>,
}
