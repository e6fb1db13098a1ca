//! Transformers on the device seam: configurations, weights, tokenizers, kernels, generation.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod config;
pub mod random;
pub mod reference;
pub mod sample;
pub mod tokenizer;
pub mod weights;
