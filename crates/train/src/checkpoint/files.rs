//! The few file operations a checkpoint needs, behind a trait, so that a test can make a disk run
//! full.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writing files, and putting folders in place.
pub trait Files: Send {
    /// Creates a file, lets `fill` write it through a large buffer, and syncs it to the disk.
    ///
    /// # Errors
    /// Whatever the system, or `fill`, reports.
    fn write(&self, path: &Path, fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()>;

    /// Renames a file or folder; the new name must be free.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Syncs a folder's list of names to the disk.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // Folders cannot be opened as files on Windows, where renames need no such sync.
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }
}

/// The disk.
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
