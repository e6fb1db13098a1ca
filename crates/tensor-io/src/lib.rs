//! Tensors outside of programs: files, literals and seeded random values.
//!
//! A [`TensorSource`] is what a person writes for the value of an input: `image.npy`,
//! `batch.npz:x`, `model.safetensors:logits`, `photo.png`, `random:7`, `zeros`, `0.5`, `[[1, 2],
//! [3, 4]]`. [`TensorSource::tensor`] makes the tensor for an input of a given type, and
//! [`arguments`] the call of a whole function. [`read`] and [`write()`] work with files directly.
//!
//! ```
//! use ferrane_mil::{DataType, Type};
//! use ferrane_tensor_io::TensorSource;
//!
//! # fn main() -> Result<(), ferrane_tensor_io::Error> {
//! let ty = Type::tensor(DataType::Fp16, &[2, 2]);
//! let x = TensorSource::parse("[[1, 2], [3, 4]]")?.tensor("x", &ty)?;
//! assert_eq!(x.to_f32(), [1.0, 2.0, 3.0, 4.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Files from elsewhere
//!
//! Sizes in a header are checked against the length of the file before anything is allocated, and
//! an entry of an `.npz` is decompressed no further than its header says. `.safetensors` files are
//! mapped: their tensors share the mapping, so the file must not change while they live.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod arguments;
mod error;
mod exif;
mod format;
pub mod image;
mod npy;
mod npz;
pub mod safetensors;
mod shapes;
mod tensor_source;

pub use arguments::{Unnamed, arguments, values};
pub use error::Error;
pub use format::{Format, read, write, write_folder, write_folder_with_images, write_in};
pub use image::{Fit, Image, with_images};
pub use shapes::given_shapes;
pub use tensor_source::TensorSource;

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
