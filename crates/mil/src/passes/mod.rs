//! Passes: a program in, a better or more acceptable one out.
//!
//! A [`Pass`] has a name, a sentence and a promise about numbers ([`Exactness`]); [`all`] lists
//! them, [`Pipeline`] runs some of them in order. A pass edits a draft of the program through a
//! cursor; what leaves a pipeline is verified and checked again. Names of inputs and outputs never
//! change. What a pass must compute, it asks of an [`Evaluate`]: this crate does no arithmetic of
//! its own on the elements of constants.
//!
//! | kind | passes |
//! |---|---|
//! | the same program with less in it | `dead_code`, `constant_folding`, `identity`, `common_subexpressions`, `cast_pairs`, `transposes`, `reshapes`, `deduplicate_weights` |
//! | two ops as one | `conv_bias`, `conv_batch_norm` |
//! | primitives as the op they spell | `recognize_silu`, `recognize_gelu`, `recognize_layer_norm` |
//! | the form that engines take | `decompose`, `linear_to_conv`, `canonical_rms_norm`, `uniform_outputs` |

mod cast_pairs;
mod common_subexpressions;
mod compute;
mod constant_folding;
mod conv_batch_norm;
mod conv_bias;
mod cursor;
mod dead_code;
mod decompose;
mod deduplicate_weights;
mod draft;
mod identity;
mod linear_to_conv;
mod moves;
mod pipeline;
mod product;
mod recognize_gelu;
mod recognize_layer_norm;
mod recognize_silu;
mod reshapes;
mod rms_norm;
mod transposes;
mod uniform_outputs;

pub use pipeline::{Options, PaddedOutput, Pipeline, Report, Step};

use crate::error::MilError;
use crate::eval::Evaluate;
use draft::Draft;

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
    repeats: bool,
    run: fn(&mut Draft, &mut Context<'_>) -> Result<usize, MilError>,
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
struct Context<'a> {
    evaluate: &'a dyn Evaluate,
    options: &'a Options,
    padded: Vec<PaddedOutput>,
}

const PASSES: &[Pass] = &[
    identity::PASS,
    cast_pairs::PASS,
    transposes::PASS,
    reshapes::PASS,
    constant_folding::PASS,
    conv_batch_norm::PASS,
    conv_bias::PASS,
    common_subexpressions::PASS,
    recognize_silu::PASS,
    recognize_gelu::PASS,
    recognize_layer_norm::PASS,
    decompose::PASS,
    linear_to_conv::PASS,
    rms_norm::PASS,
    deduplicate_weights::PASS,
    dead_code::PASS,
    uniform_outputs::PASS,
];

/// Every pass, in an order in which they can run.
pub fn all() -> &'static [Pass] {
    PASSES
}

/// The pass of that name.
pub fn find(name: &str) -> Option<Pass> {
    PASSES.iter().find(|p| p.name == name).copied()
}
