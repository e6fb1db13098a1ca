//! The formats of tensor files, and reading and writing a file of any of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ferrane_device::{Tensor, Tensors};
use ferrane_host::fs::{self, Durability};
use ferrane_host::map::Mapped;

use crate::{Error, Result, npy, npz, safetensors};

/// The formats of tensor files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// NumPy's array: one tensor without a name.
    Npy,
    /// NumPy's archive: named tensors, possibly compressed.
    Npz,
    /// Hugging Face's format: named tensors.
    Safetensors,
}

impl Format {
    /// Every format, in the order in which messages list them.
    pub const ALL: [Format; 3] = [Format::Npy, Format::Npz, Format::Safetensors];

    /// The format that a file's extension stands for.
    pub fn of(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?;
        Format::ALL.into_iter().find(|format| format.extension() == extension)
    }

    /// The extension of its files, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Safetensors => "safetensors",
        }
    }

    /// Whether a file holds any number of tensors, each with a name.
    pub fn has_names(self) -> bool {
        self != Format::Npy
    }
}

/// Reads a tensor from a file: the tensor `name` of an `.npz` or `.safetensors` file, or the one in
/// an `.npy` file.
///
/// # Errors
/// [`Error::Extension`] for another kind of file, [`Error::Io`], [`Error::Format`] for a file that
/// is damaged or holds element types that MIL does not have, [`Error::Unknown`] for a name that is
/// not in it. All carry the path.
pub fn read(path: impl AsRef<Path>, name: &str) -> Result<Tensor> {
    let path = path.as_ref();
    let format = Format::of(path).ok_or_else(|| Error::Extension(path.to_path_buf()))?;
    let at = |error: Error| error.at(path);
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => at(std::io::Error::new(ErrorKind::NotFound, "no such file").into()),
        _ => at(e.into()),
    })?;
    if !meta.is_file() {
        return Err(at(Error::Format("not a regular file".into())));
    }
    let file = Mapped::open(path).map_err(|e| at(e.into()))?;
    let tensor = match format {
        Format::Npy => npy::read(&file),
        Format::Npz => npz::read(&file, name),
        Format::Safetensors => safetensors::read(file, name),
    };
    tensor.map_err(at)
}

/// The bytes of a file with these tensors; of an `.npy` file, the first one.
///
/// bf16 and fp8, which NumPy does not have, are written to `.npy` and `.npz` files as fp32.
///
/// ```
/// use ferrane_device::{Tensor, Tensors};
/// use ferrane_tensor_io::{Format, read, write};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("batch.npz");
/// let x = Tensor::fp16(&[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
/// std::fs::write(&path, write(Format::Npz, &Tensors::from([("x", x.clone())]))?)?;
/// assert_eq!(read(&path, "x")?, x);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Format`] if the format cannot hold a tensor.
pub fn write(format: Format, tensors: &Tensors) -> Result<Vec<u8>> {
    match format {
        Format::Npy => {
            let (_, tensor) = tensors.iter().next().ok_or_else(|| Error::Format("no tensor to write".into()))?;
            npy::write(tensor)
        }
        Format::Npz => npz::write(tensors),
        Format::Safetensors => safetensors::to_bytes(tensors),
    }
}

/// Writes tensors to files in a folder, which is created if it does not exist, and returns the path
/// for each tensor: `NAME.npy` for each, or `outputs.npz` or `outputs.safetensors` for all. A
/// character of a name that could lead out of the folder becomes `_`. Files are replaced whole or
/// not at all.
///
/// # Errors
/// As [`write()`]; [`Error::Io`] with the path.
pub fn write_folder(folder: &Path, format: Format, tensors: &Tensors) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).map_err(|e| Error::from(e).at(folder))?;
    let store = |name: &str, tensors: &Tensors| {
        let path = folder.join(format!("{name}.{}", format.extension()));
        let bytes = write(format, tensors)?;
        fs::replace(&path, &bytes, Durability::Synced).map_err(|e| Error::from(e).at(&path))?;
        Ok(path)
    };
    if format.has_names() {
        return Ok(vec![store("outputs", tensors)?; tensors.len()]);
    }
    let safe = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let one = |(name, tensor): &(String, Tensor)| {
        store(&name.chars().map(safe).collect::<String>(), &[(name.as_str(), tensor.clone())].into())
    };
    tensors.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_lead_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("out");
        let x = Tensor::fp32(&[2], &[1.0, 2.0]).unwrap();
        let tensors = Tensors::from([("../x", x.clone()), ("y", x.clone())]);
        let paths = write_folder(&inside, Format::Npy, &tensors).unwrap();
        assert_eq!(paths, [inside.join("___x.npy"), inside.join("y.npy")]);
        assert_eq!(read(&paths[0], "").unwrap(), x);
        let paths = write_folder(&inside, Format::Npz, &tensors).unwrap();
        assert_eq!(paths, [inside.join("outputs.npz"), inside.join("outputs.npz")]);
        assert_eq!(read(&paths[1], "y").unwrap(), x);
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(write_folder(&folder.path().join("file"), Format::Npy, &tensors).is_err());
    }
}
