//! The Model Intermediate Language (MIL) of Core ML: programs, ops, text and weights.
//!
//! A [`Program`] is built by [`Builder`], read from text or out of a package, and is immutable at crate borders. Its values live
//! in one arena per function with typed ids; constants are inline bytes or a [`WeightId`] into the program's [`Weights`], so no
//! pass or dialect can pair a program with the wrong file.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod program;
pub mod weights;

pub use program::{
    Arg, Block, BlockId, Constant, DataType, Dialect, Dim, Function, Op, OpId, Program, Type, Value, ValueDef, ValueId,
};
pub use weights::{WeightId, Weights};
