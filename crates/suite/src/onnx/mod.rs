//! The node tests of ONNX: models of one node (or a few) with inputs and the outputs that ONNX's
//! reference computes.
//!
//! The expected values come from the ONNX project, so they are independent of this code. [`read`]
//! reads the cases of the test data, [`read_folders`] those of an installed `onnx` package.
//! [`lower`] makes a MIL program of a case: inputs that MIL requires at compile time (axes, shapes,
//! ratios) become constants; all others stay inputs of the program.

mod case;
mod folders;
mod lists;
mod lower;

pub use case::{Case, Read, read};
pub use folders::read_folders;
pub use lower::{Lowered, Refused, lower};
