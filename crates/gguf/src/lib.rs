//! GGUF files, versions 2 and 3: metadata, tensors, dequantization and a writer.
//!
//! A file has a header with metadata (keys and typed values) and a list of tensors, then the
//! tensors' bytes. [`GgufHeader::read`] reads the first part of any bytes; [`File`] maps a file and
//! reads the values of its tensors on all threads.
//!
//! ```no_run
//! use ferrane_gguf::{File, MetadataValue};
//!
//! # fn main() -> Result<(), ferrane_gguf::Error> {
//! let file = File::open("model.gguf")?;
//! println!("{:?}", file.get("general.architecture").and_then(MetadataValue::as_str));
//! for tensor in file.tensors() {
//!     let mut values = vec![0.0; tensor.elements()];
//!     file.read(tensor, &mut values)?;
//!     println!("{} {:?} {}", tensor.name(), tensor.shape(), tensor.ty().name());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Shapes
//!
//! A GGUF file lists the extents of a tensor from the innermost to the outermost.
//! [`TensorInfo::shape`] has them in row-major order, as the rest of Ferrane does: `[out, in]` for
//! the matrix of a linear layer. Blocks of quantized types lie along the last axis.
//!
//! # Values
//!
//! [`dequantize()`] gives the bits of the reference implementation in the Python package `gguf`:
//! the same operations in fp32, in the same order. [`TensorType::is_readable`] says which types it
//! reads; the others can be listed but not read.
//!
//! # Files from elsewhere
//!
//! Counts, lengths and offsets are checked against the length of the file before anything is
//! allocated, so opening takes memory in proportion to the header. Tensors must not overlap, so
//! the values of all tensors together are bounded by the length of the file, too.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod cursor;
pub mod dequantize;
mod error;
mod file;
mod header;
mod quantize;
mod summary;
mod types;
mod value;
mod write;

pub use dequantize::dequantize;
pub use error::Error;
pub use file::File;
pub use header::{GgufHeader, TensorInfo};
pub use quantize::quantize_q8_0;
pub use summary::GgufSummary;
pub use types::TensorType;
pub use value::{Array, MetadataValue, ValueType};
pub use write::Writer;

/// The four bytes that every file begins with.
pub const MAGIC: [u8; 4] = *b"GGUF";
