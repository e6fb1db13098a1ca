//! The Model Intermediate Language (MIL) of Core ML: programs, ops, text, packages, weights, passes
//! and derivatives.
//!
//! # Programs
//!
//! A [`Program`] is a list of functions over one store of [`Weights`]. Each function keeps its
//! values in one arena with typed ids; a constant is inline bytes or a [`WeightId`] into the store,
//! so no pass or dialect can pair a program with the wrong file. A program does not change once
//! another crate holds it: [`passes`] and [`grad`] make new ones.
//!
//! A program comes from [`Builder`], from text ([`parse`]) or from a container ([`package::open`]),
//! and leaves as text ([`print()`]) or in a container ([`package::write_package`]).
//!
//! ```
//! use ferrane_mil::{Builder, Constant, DataType, Opset, Type, Weights, parse, print};
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
//!
//! # Checks
//!
//! [`verify()`] checks the structure of a program: ids, blocks, names. [`check()`] checks every op
//! against the registry ([`ops`]): names, types, domains, result types. Ops and opsets that the
//! registry does not know still parse, print and round-trip; the builder and [`check()`] refuse
//! them.
//!
//! # Transformations
//!
//! [`passes::Pipeline`] runs passes, each of which says whether it keeps the bits of the results.
//! [`grad::vjp`] derives the backward program of a function. [`boundary`] puts casts around a
//! program for runtimes that take fp32 ports only, [`level`] moves it to an older opset, [`diff`]
//! compares two programs. [`specialize()`] fixes the extents of inputs that may have several, and
//! [`classifier`] takes class labels off the end of a function.
//!
//! # Arithmetic
//!
//! This crate computes nothing on the elements of constants. What has to compute a value asks an
//! [`Evaluate`], which `ferrane-emulator` implements, so a folded constant is what the program
//! would have computed.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod boundary;
mod build;
pub mod classifier;
pub mod codes;
pub mod contents;
pub mod diff;
pub mod emit;
mod error;
mod eval;
mod format;
pub mod grad;
pub mod level;
pub mod op;
pub mod ops;
mod opset;
pub mod package;
pub mod passes;
pub mod program;
mod specialize;
pub mod text;
mod verify;
pub mod weights;

pub use build::{Builder, Conv, OpenBlock, ReducedDims, Transpose, build_info, port_names};
pub use error::MilError;
pub use eval::Evaluate;
pub use format::format;
pub use opset::{Opset, OpsetTag};
pub use program::{
    Arg, Block, BlockId, Constant, DataType, Dialect, Dim, Function, Op, OpId, Program, Type, Value, ValueDef, ValueId,
};
pub use specialize::specialize;
pub use text::{Missing, Options, Parsed, Types, parse, parse_with, print};
pub use verify::{check, check_op, verify};
pub use weights::{BlobError, Bytes, Strictness, WeightId, Weights};
