//! The computer Ferrane runs on: SIMD kernels, matrix products, fp16, buffers, mapped files.
//!
//! Every other crate that computes stands on this one, and this one knows nothing of MIL or of
//! engines. All `unsafe` that is not a foreign call lives here; each block argues why it is sound.
//!
//! The one decision: *results never depend on the machine's thread count*. Work is cut by size
//! alone ([`pool`]), a sum has one order per shape ([`gemm`]), and conversions are exact IEEE
//! roundings ([`convert`]).
//!
//! | module | what |
//! |---|---|
//! | [`ceiling`] | what the processor and its memory can do at best |
//! | [`convert`] | fp32 ↔ fp16, contiguous, by rows, transposing |
//! | [`buffer`] | shared bytes with a run-time access state; plain aligned arenas |
//! | [`fs`] | files that are replaced whole or not at all |
//! | [`map`] | read-only mapped files |
//! | [`memory`] | the peak of this process's memory |
//! | [`pool`] | the one thread pool |
//! | [`gemm`] | the one door for matrix products |
//! | [`grid`] | matrix products over whole numbers, as the engine's accumulator sums |
//! | [`random`] | seeded random numbers |
//! | [`rounded`] | sums and products rounded to fp16 as they are made |
//! | [`fused`] | gates and rotations in one pass over fp16 |
//! | [`simd`] | run-time dispatch and vectorizable `exp`, `tanh`, `erf`, … |
//! | [`sync`] | locks that ignore poisoning |
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]

pub mod buffer;
pub mod ceiling;
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
pub mod sync;

pub use bytemuck::{Pod, PodCastError};
pub use half::f16;
