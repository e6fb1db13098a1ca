//! Transformers on the device seam: configurations, weights, tokenizers, kernels, generation.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod config;
pub mod decode;
pub mod forward;
pub mod generate;
pub mod kernels;
pub mod layout;
pub mod norm;
pub mod random;
pub mod reference;
pub mod sample;
pub mod staging;
pub mod tokenizer;
pub mod weights;
