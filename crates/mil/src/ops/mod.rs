//! The op registry: one signature and one shape rule for every op that can be built and checked.
//!
//! A signature lists the arguments of an op, the types they accept and their defaults; [`infer`]
//! checks the arguments of an op against it and then runs the shape rule. If signatures differ by
//! opset, there are several [`OpDef`]s of one name, and the newest one that is not newer than the
//! program's opset applies. Names, types, constness and defaults are those of coremltools 9.0,
//! except that `read_state` and `write_state` are spelled as in programs on disk. An op that is not
//! in the registry is still read, printed and kept, with the types that the text declares; the
//! builder and the checks reject it.

mod activation;
mod arguments;
mod basic;
mod compression;
mod control_flow;
mod conv;
mod elementwise;
mod gather;
mod infer;
mod linear;
mod list;
mod normalization;
mod pool;
mod quantization;
mod random;
mod recurrent;
mod reduction;
mod registry;
mod resize;
mod scatter;
mod shape;
mod signature;
mod slice;
mod space;
mod state;
mod tensor;

pub use arguments::infer;
pub(crate) use infer::agree;
pub use infer::{InferContext, broadcast};
pub use registry::{all, find, lookup, names, versions};
pub use signature::{Infer, Literal, OpDef, Param, Presence, Takes};
