//! The Model Intermediate Language (MIL) of Core ML: programs, ops, text and weights.
//!
//! A [`Program`] is built by [`Builder`], read from text or out of a package, and is immutable at
//! crate borders. Its values live in one arena per function with typed ids; constants are inline
//! bytes or a [`WeightId`] into the program's [`Weights`], so no pass or dialect can pair a program
//! with the wrong file.
//!
//! ```
//! use ferrane_mil::{Builder, Constant, DataType, Type, Weights, parse, print};
//!
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4, 1, 8]))?;
//! let bytes = vec![0u8; 4 * 4 * 2];
//! let w = b.weight("w", "@model_path/weights/w.bin", DataType::Fp16, &[4, 4, 1, 1], bytes)?;
//! let y = b.conv("y", x, w, None, &Default::default())?;
//! let z = b.op("mul", "z", [("x", y.into()), ("y", Constant::fp16(0.5).into())])?;
//! let program = b.finish(&[("out", z)])?;
//!
//! let text = print(&program);
//! let again = parse(&text, &program.weights)?;
//! assert_eq!(print(&again), text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod boundary;
mod build;
pub mod codes;
pub mod diff;
mod error;
mod eval;
mod format;
pub mod grad;
pub mod level;
pub mod ops;
mod opset;
pub mod package;
pub mod passes;
pub mod program;
pub mod text;
mod verify;
pub mod weights;

pub use build::{Builder, Conv, ReducedDims, Transpose, build_info};
pub use error::MilError;
pub use eval::Evaluate;
pub use format::format;
pub use opset::{Opset, OpsetTag};
pub use program::{
    Arg, Block, BlockId, Constant, DataType, Dialect, Dim, Function, Op, OpId, Program, Type, Value, ValueDef, ValueId,
};
pub use text::{Missing, Options, Parsed, Types, parse, parse_with, print};
pub use verify::{check, check_op, verify};
pub use weights::{BlobError, Bytes, Strictness, WeightId, Weights};

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
