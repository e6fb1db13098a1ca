//! Reads, describes, edits and writes the files of the Neural Engine's compiler.
//!
//! A compiled program (`.hwx`) is a Mach-O-like [`container`] with load commands, sections and
//! symbols. Its section `__text` is a stream of task descriptors ([`task`]): each sets registers of
//! the engine and names the buffers that it reads and writes by index. The registers are defined in
//! one table ([`registers`], `data/registers.txt`), from which decoding, encoding, names and
//! docs/hwx-registers.md are derived. [`describe`] says what a program does; [`text`] prints a file
//! and assembles that text again.
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

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
