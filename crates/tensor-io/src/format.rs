//! The formats of tensor files, and reading and writing a file of any of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ferrane_device::{Tensor, Tensors};
use ferrane_host::fs::{self, Durability};
use ferrane_host::map::Mapped;
use ferrane_mil::package::ColorSpace;

use crate::image::{self, Image};
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
    /// An image: uint8 `[1, C, H, W]`; see [`image`](crate::image).
    Png,
    /// An image that is only read.
    Jpeg,
}

impl Format {
    /// Every format, in the order in which messages list them.
    pub const ALL: [Format; 5] = [Format::Npy, Format::Npz, Format::Safetensors, Format::Png, Format::Jpeg];

    /// The format that a file's extension stands for.
    pub fn of(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?;
        let is = |known: &str| extension.eq_ignore_ascii_case(known);
        let found = Format::ALL.into_iter().find(|format| is(format.extension()));
        found.or_else(|| is("jpeg").then_some(Format::Jpeg))
    }

    /// The extension of its files, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Safetensors => "safetensors",
            Format::Png => "png",
            Format::Jpeg => "jpg",
        }
    }

    /// Whether a file holds any number of tensors, each with a name.
    pub fn has_names(self) -> bool {
        matches!(self, Format::Npz | Format::Safetensors)
    }

    /// Whether a file holds an image.
    pub fn is_image(self) -> bool {
        matches!(self, Format::Png | Format::Jpeg)
    }
}

/// Reads a tensor from a file: the tensor `name` of an `.npz` or `.safetensors` file, the one in an
/// `.npy` file, or the pixels of an image, uint8 `[1, 3, H, W]` in the order red, green, blue, or
/// `[1, 1, H, W]`.
///
/// # Errors
/// [`Error::Extension`] for another kind of file, [`Error::Io`], [`Error::Format`] for a file that
/// is damaged or holds element types that MIL does not have, [`Error::Unknown`] for a name that is
/// not in it. All carry the path.
pub fn read(path: impl AsRef<Path>, name: &str) -> Result<Tensor> {
    let path = path.as_ref();
    let format = Format::of(path).ok_or_else(|| Error::Extension(path.to_path_buf()))?;
    let at = |error: Error| error.at(path);
    let file = mapped(path).map_err(at)?;
    let tensor = match format {
        Format::Npy => npy::read(&file),
        Format::Npz => npz::read(&file, name),
        Format::Safetensors => safetensors::read(file, name),
        Format::Png | Format::Jpeg => Image::decode(&file).and_then(|image| image.tensor(image.color())),
    };
    tensor.map_err(at)
}

/// The bytes of a regular file.
pub(crate) fn mapped(path: &Path) -> Result<Mapped> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => std::io::Error::new(ErrorKind::NotFound, "no such file"),
        _ => e,
    })?;
    if !meta.is_file() {
        return Err(Error::Format("not a regular file".into()));
    }
    Ok(Mapped::open(path)?)
}

/// The bytes of a file with these tensors; of an `.npy` file or an image, the first one.
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
        Format::Npy => npy::write(first(tensors)?),
        Format::Npz => npz::write(tensors),
        Format::Safetensors => safetensors::to_bytes(tensors),
        Format::Png => {
            let tensor = first(tensors)?;
            let is_gray = tensor.shape().iter().rev().nth(2).is_none_or(|channels| *channels == 1);
            image::to_png(tensor, if is_gray { ColorSpace::Gray } else { ColorSpace::Rgb })
        }
        Format::Jpeg => Err(Error::Format("JPEG files are only read; write a .png file".into())),
    }
}

fn first(tensors: &Tensors) -> Result<&Tensor> {
    let (_, tensor) = tensors.iter().next().ok_or_else(|| Error::Format("no tensor to write".into()))?;
    Ok(tensor)
}

/// Writes tensors to files in a folder, which is created if it does not exist, and returns the path
/// for each tensor: `NAME.npy` for each, or `outputs.npz` or `outputs.safetensors` for all. A
/// character of a name that could lead out of the folder becomes `_`. Files are replaced whole or
/// not at all.
///
/// # Errors
/// As [`write()`]; [`Error::Io`] with the path.
pub fn write_folder(folder: &Path, format: Format, tensors: &Tensors) -> Result<Vec<PathBuf>> {
    if format.has_names() {
        let path = write_in(folder, "outputs", format, &write(format, tensors)?)?;
        return Ok(vec![path; tensors.len()]);
    }
    let one = |(name, tensor): &(String, Tensor)| {
        write_in(folder, name, format, &write(format, &[(name.as_str(), tensor.clone())].into())?)
    };
    tensors.iter().map(one).collect()
}

/// As [`write_folder`] with [`Format::Npy`], where the tensors that are named in `images` become
/// `NAME.png`: images whose channels have that order.
///
/// # Errors
/// As [`write_folder`]; as [`image::to_png`] for an image.
pub fn write_folder_with_images(
    folder: &Path,
    tensors: &Tensors,
    images: &[(String, ColorSpace)],
) -> Result<Vec<PathBuf>> {
    let one = |(name, tensor): &(String, Tensor)| {
        let (format, bytes) = match images.iter().find(|(image, _)| image == name) {
            Some((_, color)) => (Format::Png, image::to_png(tensor, *color)?),
            None => (Format::Npy, npy::write(tensor)?),
        };
        write_in(folder, name, format, &bytes)
    };
    tensors.iter().map(one).collect()
}

/// Writes the bytes of one file, named after a tensor, into a folder, as [`write_folder`] does.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn write_in(folder: &Path, name: &str, format: Format, bytes: &[u8]) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|e| Error::from(e).at(folder))?;
    let safe = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(safe).collect();
    let path = folder.join(format!("{name}.{}", format.extension()));
    fs::replace(&path, bytes, Durability::Synced).map_err(|e| Error::from(e).at(&path))?;
    Ok(path)
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
        let pixels = Tensor::fp32(&[1, 1, 1, 2], &[0.0, 255.0]).unwrap();
        let tensors = Tensors::from([("x", x.clone()), ("photo", pixels)]);
        let paths = write_folder_with_images(&inside, &tensors, &[("photo".into(), ColorSpace::Gray)]).unwrap();
        assert_eq!(paths, [inside.join("x.npy"), inside.join("photo.png")]);
        assert_eq!((read(&paths[0], "").unwrap(), read(&paths[1], "").unwrap().to_f32()), (x, vec![0.0, 255.0]));
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(write_folder(&folder.path().join("file"), Format::Npy, &tensors).is_err());
    }
}
