//! Recordings: what a machine computed for a program, written down so that others can compare.
//!
//! Few people have every chip. A recording holds a program with its weights, the inputs, the
//! outputs bit for bit, the times and the machine, or the words with which the machine refused, in
//! one file ([`Recording`], docs/recordings.md). It is replayed on any device ([`replay`]), and
//! each output is compared in units in the last place of its type ([`ulp`], [`compare`]).
//!
//! The one decision: a recording is a `.safetensors` file. The format is documented, read by every
//! tool of the field, bounded (a header, then bytes that it must account for exactly) and can be
//! mapped; ours is only which tensors there are and one JSON text.
//!
//! This crate knows the seam and no backend.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod compare;
mod file;
mod header;
mod recording;
mod replay;
mod run;
mod summary;
pub mod ulp;

pub use file::{RecordingError, open, read, write, write_to};
pub use header::{Header, Machine, Origin, Outcome, VERSION};
pub use recording::Recording;
pub use replay::{Answer, Replay, replay};
pub use run::{Failure, Job, Ran, Stage, run};
pub use summary::Summary;

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
