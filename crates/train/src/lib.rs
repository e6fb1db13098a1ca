//! Transformer training through the device seam.
#![deny(missing_docs)]
pub mod step;
