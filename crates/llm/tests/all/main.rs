//! Tests of the model crate against files and against arithmetic, in one binary.
// Tests print what they measure.
#![allow(clippy::print_stderr)]

mod backward;
mod chat;
mod checkpoints;
mod context;
mod cost;
mod decode;
mod device;
mod export;
mod families;
mod formats;
mod gguf;
mod gradients;
mod grammar;
mod kernels;
mod lora;
mod mlx;
mod programs;
mod quantize;
mod save;
mod sources;
mod speculate;
mod staging;
