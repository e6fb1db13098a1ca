//! Transformers on the device seam: configurations, weights, tokenizers, kernels, generation.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod config;
pub mod random;
pub mod tokenizer;
pub mod weights;
