//! Reads, prints, changes and writes Apple's Core AI models (`.aimodel`).
//!
//! A model is a folder ([`Asset`]). Its program is MLIR bytecode ([`bytecode`]) of one dialect,
//! `aicode`, which [`dialect`] decodes. [`text`] prints a program as Apple's tools do, [`build`]
//! makes and changes programs. [`Asset::to_mil`] makes a program of MIL, which runs on any device;
//! [`to_coreai`] makes a model of such a program.
//!
//! ```
//! use ferrane_coreai::build::Builder;
//! use ferrane_coreai::dialect::ElementType;
//! use ferrane_coreai::{Bytecode, text};
//!
//! # fn main() -> Result<(), ferrane_coreai::Error> {
//! let mut builder = Builder::new();
//! let ty = builder.tensor(&[Some(2), Some(3)], ElementType::Float16);
//! let mut graph = builder.graph("main", &[("x", ty)]);
//! let x = graph.inputs()[0];
//! let sum = builder.op(&mut graph, "primitive.add_v1", &[x, x], &[], ty);
//! builder.output(graph, &[("y", sum)]);
//! let file = builder.finish().write();
//!
//! let program = Bytecode::read(&file)?;
//! assert_eq!(program.write(), file);
//! let line = "%0 = coreai.add %arg0, %arg0 : (tensor<2x3xf16>, tensor<2x3xf16>) -> tensor<2x3xf16>";
//! assert!(text::program(&program).contains(line));
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! A file that Apple's writer made is written again byte for byte. Attributes, types and operations
//! that are not known stay bytes, are printed as such and are written unchanged.
//!
//! Input is hostile: every length, count and index is checked before use, regions nest up to a
//! limit, and memory is bounded by a multiple of the file's length.
//!
//! # Where to look next
//!
//! [`summary`] lists what is in a model: functions, operations, constants.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod asset;
pub mod build;
pub mod bytecode;
pub mod codes;
pub mod dialect;
mod error;
mod lower;
mod opened;
mod options;
mod raise;
pub mod summary;
pub mod text;

pub use asset::Asset;
pub use bytecode::Bytecode;
pub use error::{Error, Refusal, Refusals, Result};
pub use lower::{Origins, operations};
pub use opened::{is_model, open_checked};
pub use options::ConversionOptions;
pub use raise::{ops, to_coreai};
