//! The file operations of checkpoints as a trait, so that a test can simulate a full disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes files and renames folders.
pub trait Files: Send {
    /// Creates a file, lets `fill` write it through a large buffer, and syncs it to the disk.
    ///
    /// # Errors
    /// Errors of the system or of `fill`.
    fn write(&self, path: &Path, fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()>;

    /// Renames a file or folder; `to` must not exist.
    ///
    /// # Errors
    /// Errors of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Syncs a folder's entries to the disk.
    ///
    /// # Errors
    /// Errors of the system.
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // On Windows folders cannot be opened as files, and renames need no sync.
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }
}

/// The file system of the computer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn write(&self, path: &Path, fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut out = io::BufWriter::with_capacity(1 << 20, File::create(path)?);
        fill(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()
    }
}
