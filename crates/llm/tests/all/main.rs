//! Tests of the model crate against files and against arithmetic, one binary.
// The figures that the tests measure are for the person who runs them.
#![allow(clippy::print_stderr)]

mod backward;
mod checkpoints;
mod decode;
mod device;
mod formats;
mod gradients;
mod kernels;
mod programs;
mod staging;
