//! What the Neural Engine's compiler writes, taken apart and put together again.
//!
//! A compiled program (`.hwx`) is a Mach-O-like [`container`] with load commands, sections and
//! symbols. Its `__text` is a stream of task descriptors ([`task`]): each sets registers of the
//! engine and names the buffers it reads and writes by index. What the registers are stands in one
//! table ([`registers`], `data/registers.txt`); decoding, encoding, names and docs/hwx-registers.md
//! come from it. [`describe`] says what a program does; [`text`] prints a file and assembles that
//! text again.
//!
//! Nothing is lost on the way: a [`Hwx`] keeps every byte, commands that nobody knows included, and
//! what it says is a view of these bytes. So reading and writing gives the same file, and so does
//! disassembling and assembling.
//!
//! Buffers are found by name: the name's address stands in a binding command, the address in the
//! program's table of base addresses (BARs), and the index there is what tasks use
//! ([`container::Bindings`]). Positions mean nothing: compilers differ in the order of inputs and
//! outputs.
//!
//! Files are hostile: every offset, length and count is checked before use, and memory is bounded
//! by the input's length.
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
