//! Tests of the model crate against files and against arithmetic, one binary.

mod checkpoints;
mod formats;
mod gradients;
