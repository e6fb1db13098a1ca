//! The computer Ferrane runs on: SIMD kernels, matrix products, fp16, buffers, mapped files.
#![deny(missing_docs)]
