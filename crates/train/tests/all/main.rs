//! Tests of the trainer against outside data and on the emulator.

// Measured errors are shown to whoever runs the tests.
#![allow(clippy::print_stderr)]

mod gradients;
mod run;
mod session;
mod step;
