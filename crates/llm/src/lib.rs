//! Transformers on the device seam: configurations, weights, tokenizers, kernels, generation.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod compaction;
pub mod config;
pub mod decode;
pub mod evaluate;
pub mod forward;
pub mod generate;
pub mod kernels;
pub mod layout;
pub mod model;
pub mod norm;
pub mod random;
pub mod reference;
pub mod run_folder;
pub mod sample;
pub mod staging;
pub mod tokenizer;
pub mod weights;

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
