//! The files of a set of data: one file, or the files of a folder in the order of their names.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Error, Format};

/// A data file as it was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shard {
    pub path: PathBuf,
    /// Never [`Format::Auto`].
    pub format: Format,
    pub found: Found,
}

/// Size and time of a file, which change when it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub bytes: u64,
    pub modified: Option<SystemTime>,
}

impl Found {
    pub(super) fn of(file: &File) -> io::Result<Found> {
        file.metadata().map(|found| Found::from(&found))
    }
}

impl From<&fs::Metadata> for Found {
    fn from(found: &fs::Metadata) -> Found {
        Found { bytes: found.len(), modified: found.modified().ok() }
    }
}

/// The shards of the file or folder at `path`. In a folder, hidden files, folders and, unless
/// `format` is given, files with an unknown extension are left out.
pub(super) fn list(path: &Path, format: Format) -> Result<Vec<Shard>, Error> {
    let found = fs::metadata(path).map_err(|e| failed(path, e))?;
    if !found.is_dir() {
        let format = if format == Format::Auto { Format::of(path) } else { format };
        return Ok(vec![Shard { path: path.to_path_buf(), format, found: (&found).into() }]);
    }
    let entries = fs::read_dir(path).map_err(|e| failed(path, e))?;
    let paths = entries.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths.map_err(|e| failed(path, e))?;
    paths.sort();
    let mut shards = Vec::new();
    for file in paths {
        let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let format = if format == Format::Auto { Format::known(&file) } else { Some(format) };
        let Some(format) = format.filter(|_| !hidden) else { continue };
        let found = fs::metadata(&file).map_err(|e| failed(&file, e))?;
        if found.is_file() {
            shards.push(Shard { path: file, format, found: (&found).into() });
        }
    }
    if shards.is_empty() { Err(Error::NoShards(path.to_path_buf())) } else { Ok(shards) }
}

/// The error for a data file that cannot be read.
pub(super) fn failed(path: &Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::Missing(path.to_path_buf()),
        _ => Error::Io { path: path.to_path_buf(), source },
    }
}
