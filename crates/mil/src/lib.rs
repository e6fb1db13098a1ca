//! The Model Intermediate Language (MIL) of Core ML: programs, ops, text and weights.
//!
//! A [`Program`] is built by [`Builder`], read from text or out of a package, and is immutable at crate borders. Its values live
//! in one arena per function with typed ids; constants are inline bytes or a [`WeightId`] into the program's [`Weights`], so no
//! pass or dialect can pair a program with the wrong file.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod build;
mod error;
pub mod ops;
pub mod program;
pub mod text;
mod verify;
pub mod weights;

pub use build::{Builder, Conv, build_info};
pub use error::MilError;
pub use ops::Opset;
pub use program::{
    Arg, Block, BlockId, Constant, DataType, Dialect, Dim, Function, Op, OpId, Program, Type, Value, ValueDef, ValueId,
};
pub use text::{Missing, Options, Parsed, Types, parse, parse_with, print};
pub use verify::{check, check_op, verify};
pub use weights::{BlobError, Bytes, Strictness, WeightId, Weights};
