//! The computer Ferrane runs on: SIMD kernels, matrix products, fp16, buffers, mapped files.
//!
//! Every other crate that computes builds on this one, and this one knows nothing of MIL or of
//! engines. All `unsafe` that is not a foreign call lives here; each block states why it is sound.
//!
//! Invariant: *results never depend on the thread count*. Work is cut by size alone ([`pool`]), a
//! sum has one order per shape ([`gemm`]), and conversions are exact IEEE roundings ([`convert`]).
//!
//! | module | what |
//! |---|---|
//! | [`ceiling`] | the peak arithmetic and read rates of this processor, measured |
//! | [`conv`] | convolutions of fp32 and fp16 images, and of bytes |
//! | [`convert`] | fp32 ↔ fp16, contiguous, by rows, transposing |
//! | [`buffer`] | shared bytes with a run-time access state; plain aligned arenas |
//! | [`fs`] | files that are replaced whole or not at all |
//! | [`map`] | read-only mapped files |
//! | [`memory`] | the peak of this process's memory |
//! | [`pool`] | the thread pool |
//! | [`gemm`] | matrix products of fp32, fp16 and int8 |
//! | [`grid`] | matrix products in integers, as the engine's accumulator sums |
//! | [`random`] | seeded random numbers |
//! | [`rounded`] | sums and products whose results are rounded to fp16 |
//! | [`fused`] | gates and rotations in one pass over fp16 |
//! | [`softmax`] | the gradient of a softmax in two passes |
//! | [`simd`] | run-time dispatch and vectorizable `exp`, `tanh`, `erf`, … |
//! | [`sync`] | locks that ignore poisoning |
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]

pub mod buffer;
pub mod ceiling;
pub mod conv;
pub mod convert;
pub mod fs;
pub mod fused;
pub mod gemm;
pub mod grid;
pub mod map;
pub mod memory;
pub mod pool;
pub mod random;
pub mod rounded;
pub mod simd;
pub mod softmax;
pub mod sync;

pub use bytemuck::{Pod, PodCastError};
pub use half::f16;
