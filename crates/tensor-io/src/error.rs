//! Why a tensor could not be read, made or written.

use std::path::{Path, PathBuf};

use ferrane_mil::program::Type;

/// Why a tensor could not be read, made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system's own error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file that is damaged, or holds what is not supported.
    #[error("{0}")]
    Format(String),
    /// The file holds no tensor of that name. The message lists those there are.
    #[error("{0}")]
    Unknown(String),
    /// Neither a tensor file nor a value.
    #[error(
        "`{}` is neither a value nor a tensor file; give a .npy, .npz, .safetensors, .png or .jpg file, random:SEED, zeros, ones, a number or a list like [1, 2]",
        .0.display()
    )]
    Extension(PathBuf),
    /// Text that does not describe a value.
    #[error("{0}")]
    Text(String),
    /// A value that does not fit the input it is for.
    #[error("{0}")]
    Mismatch(String),
    /// An image of another size than the input.
    #[error(
        "the image is {} wide and {} high, the input takes {} wide and {} high",
        found.0, found.1, wanted.0, wanted.1
    )]
    ImageSize {
        /// Width and height of the image.
        found: (usize, usize),
        /// Width and height of the input.
        wanted: (usize, usize),
    },
    /// Numbers that an element type cannot hold.
    #[error("{0}")]
    Tensor(#[from] ferrane_device::Error),
    /// Inputs without a value.
    #[error("no value for these inputs of `{owner}`:{}", inputs.iter().map(|(n, ty)| format!("\n  {n}  {ty}")).collect::<String>())]
    Missing {
        /// The function, or what else has the inputs.
        owner: String,
        /// Name and type of each.
        inputs: Vec<(String, Type)>,
    },
    /// Any of these, about the value of an input.
    #[error("input `{name}`: {error}")]
    Input {
        /// Name of the input.
        name: String,
        /// What is wrong with its value.
        error: Box<Error>,
    },
    /// Any of these, about a file.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<Error>,
    },
}

impl Error {
    /// The error, about this file.
    pub(crate) fn at(self, path: &Path) -> Error {
        Error::File { path: path.to_path_buf(), error: Box::new(self) }
    }
}
