//! The file operations of checkpoints as a trait, so that tests can simulate a full disk and a
//! power failure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A file that is being written.
pub trait SyncWrite: Write {
    /// Waits until every byte that was written is on the disk.
    ///
    /// # Errors
    /// Errors of the system.
    fn sync(&self) -> io::Result<()>;
}

impl SyncWrite for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Every operation that changes a run's folder. Each is that of the computer's file system unless
/// an implementation replaces it.
///
/// What was not synced may be lost when the power fails: the bytes of a file until
/// [`SyncWrite::sync`], and what a folder has gained, lost or renamed until [`Files::sync_folder`].
pub trait Files: Send {
    /// Creates a file, or empties it.
    ///
    /// # Errors
    /// Errors of the system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn SyncWrite>> {
        Ok(Box::new(File::create(path)?))
    }

    /// Creates a folder in an existing one.
    ///
    /// # Errors
    /// Errors of the system.
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Renames a file or folder; `to` must not exist.
    ///
    /// # Errors
    /// Errors of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Removes a folder with all that is in it.
    ///
    /// # Errors
    /// Errors of the system.
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
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

impl Files for Disk {}

/// Creates a folder and those above it that do not exist; they last when the power fails.
///
/// # Errors
/// Errors of the system.
pub fn create_folders(files: &dyn Files, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    // The parent of a relative path of one name is the current folder.
    let parent = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    if let Some(parent) = parent {
        create_folders(files, parent)?;
    }
    match files.create_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    parent.map_or(Ok(()), |parent| files.sync_folder(parent))
}
