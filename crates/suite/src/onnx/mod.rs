//! ONNX node cases on MIL: each operator of `ai.onnx` as an op of MIL or a short composition of
//! such.
//!
//! The cases of the ONNX project say what an operator computes; nobody here wrote them. A [`Case`]
//! is one node with its inputs and the outputs that the reference gives. [`lower`] makes a MIL
//! program of it through the builder; [`table`] has one entry for every operator of the domain: how
//! it is lowered, or why it is not.
//!
//! Types: INT64 and the narrow integers are computed as int32, DOUBLE as fp32, because MIL's
//! arithmetic has no others; a value that does not fit is a reason not to run the case. Results of
//! narrow integer types are compared modulo their width. Inputs that MIL wants at compile time
//! (axes, shapes, ratios) become constants, all others are inputs of the program.

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
