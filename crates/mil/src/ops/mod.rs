//! The op registry: one signature and one shape rule for every op that can be built and checked.
//!
//! A signature says which arguments an op has, what they accept and what they default to; [`infer`]
//! checks the arguments against it and then runs the op's shape rule. Signatures differ by opset
//! through several [`OpDef`]s of one name: the newest that is not newer than the program's opset
//! counts. Names, types, constness and defaults are those of coremltools 9.0, except that
//! `read_state` and `write_state` are spelled as programs on disk spell them. An op that is not
//! here is still read, printed and kept (its types are then what the text says); building and
//! checking refuse it.

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
