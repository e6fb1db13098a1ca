//! Mapped files.

use crate::{Error, GgufHeader, MetadataValue, TensorInfo, dequantize};
use ferrane_host::map::Mapped;
use std::path::{Path, PathBuf};

/// A mapped file with its header.
///
/// The file must not change while it is open (see [`Mapped`]).
#[derive(Debug, Clone)]
pub struct File {
    path: PathBuf,
    bytes: Mapped,
    header: GgufHeader,
}

impl File {
    /// Maps a file and reads its header.
    ///
    /// # Errors
    /// [`Error::Io`]; the errors of [`GgufHeader::read`] with the path.
    pub fn open(path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        let bytes = Mapped::open(path).map_err(|e| Error::io(path, e))?;
        let header = GgufHeader::read(&bytes).map_err(|e| e.in_file(path))?;
        Ok(File { path: path.to_path_buf(), bytes, header })
    }

    /// Whether a file begins as a GGUF file does.
    ///
    /// # Errors
    /// Whatever the system reports on opening or reading.
    pub fn recognize(path: impl AsRef<Path>) -> std::io::Result<bool> {
        use std::io::Read;
        let mut start = Vec::with_capacity(4);
        std::fs::File::open(path)?.take(4).read_to_end(&mut start)?;
        Ok(start == crate::MAGIC)
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata and the list of tensors, as [`GgufHeader::read`] gives them.
    pub fn header(&self) -> &GgufHeader {
        &self.header
    }

    /// All bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As [`GgufHeader::get`].
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.header.get(key)
    }

    /// As [`GgufHeader::tensors`].
    pub fn tensors(&self) -> &[TensorInfo] {
        self.header.tensors()
    }

    /// As [`GgufHeader::tensor`].
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensor(name)
    }

    /// The bytes of a tensor as stored; empty for a tensor of another file that this one cannot
    /// hold.
    pub fn raw(&self, tensor: &TensorInfo) -> &[u8] {
        self.bytes.get(tensor.range()).unwrap_or(&[])
    }

    /// Like [`File::raw`], as a part that shares the mapping.
    pub fn mapped(&self, tensor: &TensorInfo) -> Option<Mapped> {
        self.bytes.slice(tensor.range())
    }

    /// Reads the values of a tensor into `out`, on the threads of the pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a type that cannot be read, [`Error::Length`] if `out` has
    /// another size than the tensor, both with the path.
    pub fn read(&self, tensor: &TensorInfo, out: &mut [f32]) -> Result<(), Error> {
        dequantize::parallel(tensor.ty(), self.raw(tensor), out).map_err(|e| e.in_file(&self.path))
    }
}
