//! Tests of the trainer against outside data and on the emulator.

// Tests print the errors that they measure.
#![allow(clippy::print_stderr)]

mod data;
mod gradients;
#[cfg(feature = "parquet")]
mod parquet;
mod pipelines;
mod run;
mod session;
mod step;
