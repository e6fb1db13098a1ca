//! Transformers on the device seam: configurations, weights, tokenizers, kernels, generation.
#![deny(missing_docs)]
