//! The computer Ferrane runs on: SIMD kernels, matrix products, fp16, buffers, mapped files.
//!
//! Every other crate that computes stands on this one, and this one knows nothing of MIL or of engines.
//! All `unsafe` that is not a foreign call lives here; each block argues why it is sound.
//!
//! The one decision: *results never depend on the machine's thread count*. Work is cut by size alone
//! ([`pool`]), a sum has one order per shape ([`gemm`]), and conversions are exact IEEE roundings
//! ([`convert`]).
//!
//! | module | what |
//! |---|---|
//! | [`ceiling`] | what the processor and its memory can do at best |
//! | [`convert`] | fp32 ↔ fp16, contiguous, by rows, transposing |
//! | [`buffer`] | shared bytes with a run-time access state; plain aligned arenas |
//! | [`map`] | read-only mapped files |
//! | [`pool`] | the one thread pool |
//! | [`gemm`] | the one door for matrix products |
//! | [`grid`] | matrix products over whole numbers, as the engine's accumulator sums |
//! | [`passes`] | gates and rotations in one pass over fp16 |
//! | [`random`] | seeded random numbers |
//! | [`rounded`] | sums and products rounded to fp16 as they are made |
//! | [`simd`] | run-time dispatch and vectorisable `exp`, `tanh`, `erf`, … |
#![deny(missing_docs)]

pub mod buffer;
pub mod ceiling;
pub mod convert;
pub mod gemm;
pub mod grid;
pub mod map;
pub mod passes;
pub mod pool;
pub mod random;
pub mod rounded;
pub mod simd;

pub use bytemuck::{Pod, PodCastError};
pub use half::f16;
