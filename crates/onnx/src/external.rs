//! Tensors whose elements lie in a file next to the model.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use ferrane_host::map::Mapped;
use prost::bytes::Bytes;

use crate::error::Error;
use crate::proto::StringStringEntryProto;

/// The files that tensors refer to, each mapped once, at its first use.
pub(crate) struct ExternalData {
    folder: Option<PathBuf>,
    files: RefCell<HashMap<String, Bytes>>,
}

/// The bytes of a mapped file, as an owner of [`Bytes`].
struct Owner(Mapped);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Maps a file. It must not change while the model or a program of it lives.
pub(crate) fn map(path: &Path) -> Result<Bytes, Error> {
    Mapped::open(path).map(|m| Bytes::from_owner(Owner(m))).map_err(Error::io(path))
}

impl ExternalData {
    /// Files of this folder; without one, every tensor with external data is refused.
    pub(crate) fn new(folder: Option<&Path>) -> ExternalData {
        ExternalData { folder: folder.map(Path::to_path_buf), files: RefCell::default() }
    }

    /// The `size` bytes of a tensor.
    pub(crate) fn read(&self, name: &str, entries: &[StringStringEntryProto], size: usize) -> Result<Bytes, Error> {
        let refuse = |reason: String| Error::invalid(format!("tensor `{name}`"), reason);
        let entry = |key: &str| entries.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| -> Result<Option<usize>, Error> {
            entry(key)
                .map(|v| v.parse().map_err(|_| refuse(format!("its {key} `{v}` is not a number of bytes"))))
                .transpose()
        };
        let location = entry("location").ok_or_else(|| refuse("its external data has no location".into()))?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(size));
        let file = self.file(name, location)?;
        let range = offset.checked_add(length).filter(|&end| end <= file.len()).map(|end| offset..end);
        let Some(range) = range.filter(|r| r.len() == size) else {
            return Err(refuse(format!(
                "{length} bytes at {offset} of `{location}` ({} bytes) are not its {size} bytes",
                file.len()
            )));
        };
        Ok(file.slice(range))
    }

    fn file(&self, name: &str, location: &str) -> Result<Bytes, Error> {
        if let Some(bytes) = self.files.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let refuse =
            |reason: &str| Error::invalid(format!("tensor `{name}`"), format!("external data `{location}` {reason}"));
        let Some(folder) = &self.folder else {
            return Err(refuse("cannot be found: the model was given as bytes, without a folder"));
        };
        let path = Path::new(location);
        let plain = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if location.is_empty() || !plain {
            return Err(refuse("leads out of the model's folder"));
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let wanted = folder.join(path);
        let found = wanted.canonicalize().map_err(Error::io(&wanted))?;
        // A link must not lead out of the folder, either.
        if !folder.canonicalize().is_ok_and(|folder| found.starts_with(folder)) {
            return Err(refuse("leads out of the model's folder"));
        }
        let bytes = map(&found)?;
        self.files.borrow_mut().insert(location.to_string(), bytes.clone());
        Ok(bytes)
    }
}
