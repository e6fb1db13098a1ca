//! Core ML Model Intermediate Language: programs, ops, text, weights.
#![deny(missing_docs)]
