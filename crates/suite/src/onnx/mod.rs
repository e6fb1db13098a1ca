//! The node tests of ONNX on MIL: each operator of `ai.onnx` as one op of MIL or a short
//! composition of ops.
//!
//! The expected values come from the ONNX project, so they are independent of this code. A [`Case`]
//! is one node (or a few) with its inputs and the outputs that ONNX's reference computes. [`lower`]
//! makes a MIL program of a case through the builder. [`table`] has one entry for every operator of
//! the domain: its lowering, or the reason why there is none.
//!
//! Types: INT64 and the narrow integers are computed as int32 and DOUBLE as fp32, because MIL's
//! arithmetic has no others. A case with a value that does not fit is not run. Results of narrow
//! integer types are compared modulo their width. Inputs that MIL requires at compile time (axes,
//! shapes, ratios) become constants; all others are inputs of the program.

mod attention;
mod case;
mod conv;
mod elementwise;
mod index;
mod lower;
mod norm;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod shape;
pub mod table;
mod training;

pub use case::{Case, CaseTensor, Element, Node, Read, read};
pub use lower::{Lowered, Refusal, lower};
