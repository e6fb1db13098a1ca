//! Reads, describes, edits and writes the files of the Neural Engine's compiler.
//!
//! A compiled program (`.hwx`) is a Mach-O-like [`container`] with load commands, sections and
//! symbols. Its section `__text` is a stream of task descriptors ([`task`]): each sets registers of
//! the engine and names the buffers that it reads and writes by index. The registers are defined in
//! one table ([`registers`], `data/registers.txt`), from which decoding, encoding, names and
//! docs/hwx-registers.md are derived. [`weights`] and [`mod@table`] hold the packed constants,
//! [`surface`] the layouts of buffers.
//!
//! ```
//! use ferrane_hwx::Hwx;
//! # use ferrane_hwx::builder::{BinaryOp, Operation, ProgramSpec, TensorSpec, build};
//! use ferrane_hwx::text::{assemble, print};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let input = |name: &str| TensorSpec { name: name.into(), nchw: [1, 8, 1, 64] };
//! # let (inputs, output) = (vec![input("a"), input("b")], "y".to_string());
//! # let op = Operation::Elementwise(BinaryOp::Add);
//! # let file = build(&ProgramSpec { name: "net".into(), inputs, output, op })?.write();
//! // `file` holds the bytes of a `.hwx` file that adds two tensors, for H13.
//! let hwx = Hwx::read(&file)?;
//! assert_eq!(hwx.generation().map(|g| g.name), Some("h13"));
//! assert_eq!(hwx.write(), file);
//! assert_eq!(assemble(&print(&hwx)).map_err(|d| d.to_string())?, hwx);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! A [`Hwx`] keeps every byte, including unknown commands, and all information about it is a view
//! of these bytes. So reading and writing reproduces the file, and so does disassembling and
//! assembling.
//!
//! Input is hostile: every offset, length and count is checked before use, and memory is bounded by
//! the length of the input.
//!
//! # Buffers
//!
//! Buffers are found by name: a binding command maps the name to an address, the program's table of
//! base addresses (BARs) maps the address to an index, and tasks use that index
//! ([`container::Bindings`]). Compilers differ in the order of inputs and outputs, so positions are
//! never used.
//!
//! # Where to look next
//!
//! [`describe`] reports what a program does, as prose, JSON, a graph or a picture, and compares two
//! files. [`text`] prints a file and assembles the text. [`builder`] makes programs of one
//! operation. [`anec`] is the format of the Linux driver, [`bundle`] recognizes the files that
//! surround a compiled program. docs/hwx.md describes the format.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod anec;
pub mod builder;
pub mod bundle;
pub mod container;
pub mod describe;
mod error;
mod filters;
pub mod registers;
mod spelling;
pub mod surface;
pub mod symbol;
pub mod table;
pub mod task;
pub mod text;
pub mod weights;

pub use container::Hwx;
pub use error::{Error, Result};
pub use filters::Filter;
