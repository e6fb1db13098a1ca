//! Tests of the trainer against outside data and on the emulator.

// Tests print the errors that they measure.
#![allow(clippy::print_stderr)]

mod conversations;
mod data;
mod freeze;
mod gradients;
mod lora;
#[cfg(feature = "parquet")]
mod parquet;
mod peft;
mod pipelines;
mod ranks;
mod run;
mod session;
mod step;
