//! Passes: transformations that make a program smaller, or acceptable to an engine.
//!
//! A [`Pass`] has a name, a one-line description and a guarantee about numbers ([`Exactness`]);
//! [`all`] lists them, and [`Pipeline`] runs some of them in order. A pass edits a draft of the
//! program through a cursor; the result of a pipeline is verified and checked again. Names of
//! inputs and outputs never change. A pass that has to compute constants calls an
//! [`Evaluate`](crate::Evaluate): this crate does no arithmetic on the elements of constants.
//!
//! | kind | passes |
//! |---|---|
//! | simplifications | `dead_code`, `constant_folding`, `identity`, `common_subexpressions`, `cast_pairs`, `transposes`, `reshapes`, `deduplicate_weights` |
//! | fusions | `conv_bias`, `conv_batch_norm` |
//! | recognition of composite ops | `recognize_silu`, `recognize_gelu`, `recognize_layer_norm` |
//! | forms that engines accept | `decompose`, `linear_to_conv`, `canonical_rms_norm`, `uniform_outputs` |
//! | forms that engines compute right | `finite_masks`, `sigmoid_forms`, `stable_softplus`, `wide_argmax`, `rank4_hard_swish` |

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
mod finite_masks;
mod identity;
mod linear_to_conv;
mod moves;
mod pass;
mod pipeline;
mod product;
mod rank4_hard_swish;
mod recognize_gelu;
mod recognize_layer_norm;
mod recognize_silu;
mod reshapes;
mod rms_norm;
mod sigmoid_forms;
mod stable_softplus;
mod transposes;
mod uniform_outputs;
mod wide_argmax;

pub use pass::{Exactness, Options, PaddedOutput, Pass};
pub use pipeline::{PassRun, Pipeline, Report};

use crate::error::MilError;
use crate::program::Program;

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
    finite_masks::PASS,
    sigmoid_forms::PASS,
    stable_softplus::PASS,
    wide_argmax::PASS,
    rank4_hard_swish::PASS,
    linear_to_conv::PASS,
    rms_norm::PASS,
    deduplicate_weights::PASS,
    dead_code::PASS,
    uniform_outputs::PASS,
];

/// The program without the values and ops that no block holds.
///
/// # Errors
/// It does not verify.
pub(crate) fn rebuilt(program: &Program) -> Result<Program, MilError> {
    draft::Draft::of(program)?.freeze()
}

/// Every pass, in an order in which they can run.
pub fn all() -> &'static [Pass] {
    PASSES
}

/// The pass of that name.
pub fn find(name: &str) -> Option<Pass> {
    PASSES.iter().find(|p| p.name == name).copied()
}
