//! Files and folders that are replaced whole or not at all.
//!
//! The bytes go to a temporary file in the folder of the target, which is renamed over the target
//! once it is complete. Hence:
//!
//! - a reader sees the old file or the new one, also after an interruption;
//! - a process that maps the old file ([`crate::map`]) keeps the old bytes for as long as it maps
//!   them;
//! - a failed write leaves the old file, and no temporary one;
//! - the new file has the permissions of the old one, or those that a new file gets by default;
//! - a symbolic link stays one: the file that it points to is replaced;
//! - a pipe or a device is written to directly, because a rename would remove it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::{Builder, NamedTempFile, TempPath};

/// Bytes that are collected before a write to the system.
const BUFFER: usize = 1 << 20;

/// What a replacement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the system writes the bytes to the disk in its own time, so a power failure can
    /// lose them. For files that can be made again.
    Cached,
    /// The bytes, and then the folder with the new name, are on the disk.
    Synced,
}

/// Makes the file at `path` hold `bytes`.
///
/// # Errors
/// The path has no file name or names a folder; any error of the system. The old file is then as it
/// was, unless only the sync of the folder failed.
pub fn replace(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)?;
    file.commit(durability)
}

/// A file that is being written and takes the target's place when it is
/// [committed](AtomicFile::commit). Dropped before that, it leaves the target as it was.
#[derive(Debug)]
pub struct AtomicFile {
    output: Output,
    target: PathBuf,
}

#[derive(Debug)]
enum Output {
    Temporary(BufWriter<NamedTempFile>),
    /// A pipe or a device.
    Direct(BufWriter<File>),
}

impl AtomicFile {
    /// Begins to replace the file at `path`, which need not exist.
    ///
    /// # Errors
    /// As [`replace`].
    pub fn create(path: &Path) -> io::Result<AtomicFile> {
        let (target, old) = match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                let file = OpenOptions::new().write(true).open(path)?;
                let output = Output::Direct(BufWriter::with_capacity(BUFFER, file));
                return Ok(AtomicFile { output, target: path.to_path_buf() });
            }
            Ok(found) => (fs::canonicalize(path)?, Some(found.permissions())),
            Err(_) => (path.to_path_buf(), None),
        };
        let name = target.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file name"))?;
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        let file = create_in(folder_of(&target), &mut builder, old)?;
        Ok(AtomicFile { output: Output::Temporary(BufWriter::with_capacity(BUFFER, file)), target })
    }

    /// Writes out what is buffered and replaces the target.
    ///
    /// # Errors
    /// As [`replace`].
    pub fn commit(self, durability: Durability) -> io::Result<()> {
        self.finish(durability)?.publish()
    }

    /// Writes out what is buffered and closes the file, which does not replace the target yet: for
    /// several files that should all be complete before the first becomes visible.
    ///
    /// # Errors
    /// As [`replace`].
    pub fn finish(self, durability: Durability) -> io::Result<FinishedFile> {
        let temporary = match self.output {
            Output::Temporary(out) => {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                if durability == Durability::Synced {
                    file.as_file().sync_all()?;
                }
                Some(file.into_temp_path())
            }
            Output::Direct(mut out) => {
                out.flush()?;
                None
            }
        };
        Ok(FinishedFile { temporary, target: self.target, durability })
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.output {
            Output::Temporary(out) => out.write(bytes),
            Output::Direct(out) => out.write(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.output {
            Output::Temporary(out) => out.write_all(bytes),
            Output::Direct(out) => out.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Temporary(out) => out.flush(),
            Output::Direct(out) => out.flush(),
        }
    }
}

/// A complete file under its temporary name. Dropped before it is
/// [published](FinishedFile::publish), it leaves the target as it was.
#[derive(Debug)]
pub struct FinishedFile {
    /// `None` for a pipe or a device, which has its bytes already.
    temporary: Option<TempPath>,
    target: PathBuf,
    durability: Durability,
}

impl FinishedFile {
    /// Replaces the target.
    ///
    /// # Errors
    /// As [`replace`].
    pub fn publish(mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        temporary.persist(&self.target)?;
        self.sync_name()
    }

    /// Gives the file its name if no file has it.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and as [`replace`].
    pub fn publish_new(mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else { return Err(io::ErrorKind::AlreadyExists.into()) };
        temporary.persist_noclobber(&self.target)?;
        self.sync_name()
    }

    fn sync_name(&self) -> io::Result<()> {
        match self.durability {
            Durability::Cached => Ok(()),
            Durability::Synced => sync_folder(folder_of(&self.target)),
        }
    }
}

/// A folder that is being filled and takes the target's place when it is
/// [committed](AtomicFolder::commit). Dropped before that, it is removed with its contents.
#[derive(Debug)]
pub struct AtomicFolder {
    path: PathBuf,
    target: PathBuf,
}

impl AtomicFolder {
    /// Creates an empty folder next to `target`, and the folder around both if necessary.
    ///
    /// # Errors
    /// The path has no file name; any error of the system.
    pub fn create(target: &Path) -> io::Result<AtomicFolder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = target.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file name"))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut own = OsString::from(".");
        own.push(name);
        own.push(format!(".{}-{number}.part", std::process::id()));
        let path = target.with_file_name(own);
        // A folder of a process that died, whose process id is in use again.
        remove(&path);
        fs::create_dir_all(&path)?;
        Ok(AtomicFolder { path, target: target.to_path_buf() })
    }

    /// Where the contents go until the commit.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the folder its name. What has the name is replaced if `overwrite` is set.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists); any error of the system. The old folder is
    /// then as it was.
    pub fn commit(self, overwrite: bool) -> io::Result<()> {
        if self.target.symlink_metadata().is_err() {
            return fs::rename(&self.path, &self.target);
        }
        if !overwrite {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // Renaming cannot replace a folder: the old one is moved away first, and back if the new
        // one cannot be renamed.
        let mut old = self.path.clone().into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        remove(&old);
        fs::rename(&self.target, &old)?;
        if let Err(e) = fs::rename(&self.path, &self.target) {
            // If moving back fails too, the first error is more useful than the second.
            let _ = fs::rename(&old, &self.target);
            return Err(e);
        }
        remove(&old);
        Ok(())
    }
}

impl Drop for AtomicFolder {
    fn drop(&mut self) {
        // After a commit the path does not exist.
        remove(&self.path);
    }
}

/// Removes a file or folder; does nothing if there is none.
fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(m) if m.is_dir() => drop(fs::remove_dir_all(path)),
        Ok(_) => drop(fs::remove_file(path)),
        Err(_) => {}
    }
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file with the permissions that the target has, or shall have.
#[cfg(unix)]
fn create_in(folder: &Path, builder: &mut Builder<'_, '_>, old: Option<fs::Permissions>) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt as _;
    // Never wider than the old file's, not even while the bytes are written.
    let default = || fs::Permissions::from_mode(0o666);
    let file = builder.permissions(old.clone().unwrap_or_else(default)).tempfile_in(folder)?;
    if let Some(old) = old {
        // The system's mask for new files does not apply to a file that had its permissions.
        file.as_file().set_permissions(old)?;
    }
    Ok(file)
}

#[cfg(not(unix))]
fn create_in(folder: &Path, builder: &mut Builder<'_, '_>, _: Option<fs::Permissions>) -> io::Result<NamedTempFile> {
    builder.tempfile_in(folder)
}

/// A new name lasts through a power failure only when the folder is on the disk too.
fn sync_folder(folder: &Path) -> io::Result<()> {
    // Folders cannot be opened as files on Windows, where renames need no such sync.
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        // Some network file systems cannot sync a folder, and say so.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Mapped;

    fn names(folder: &Path) -> Vec<String> {
        let list = fs::read_dir(folder).unwrap();
        list.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
        replace(path, bytes, Durability::Synced)
    }

    #[test]
    fn a_mapped_file_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        put(&path, &[1; 9000]).unwrap();
        let old = Mapped::open(&path).unwrap();
        put(&path, &[2]).unwrap();
        assert!(old.iter().all(|&b| b == 1));
        assert_eq!(fs::read(&path).unwrap(), [2]);
        assert_eq!(names(folder.path()), ["weights"]);
    }

    #[test]
    fn an_abandoned_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        put(&path, &[1]).unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(&[2; 3 * BUFFER]).unwrap();
        drop(file);
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(&[2]).unwrap();
        drop(file.finish(Durability::Cached).unwrap());
        assert_eq!(fs::read(&path).unwrap(), [1]);
        assert_eq!(names(folder.path()), ["weights"]);
        assert!(put(folder.path(), &[1]).is_err());
        assert!(put(&folder.path().join("none/weights"), &[1]).is_err());
        assert!(put(Path::new(""), &[1]).is_err());
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("model");
        let begun = |text: &str| {
            let part = AtomicFolder::create(&target).unwrap();
            fs::write(part.path().join("file"), text).unwrap();
            part
        };
        drop(begun("abandoned"));
        assert!(names(folder.path()).is_empty());
        begun("first").commit(false).unwrap();
        assert_eq!(begun("second").commit(false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(target.join("file")).unwrap(), b"first");
        begun("third").commit(true).unwrap();
        assert_eq!(fs::read(target.join("file")).unwrap(), b"third");
        assert_eq!(names(folder.path()), ["model"]);
        assert!(AtomicFolder::create(Path::new("/")).is_err());
    }

    #[test]
    fn a_finished_file_is_not_visible_before_it_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"bytes").unwrap();
        let finished = file.finish(Durability::Synced).unwrap();
        assert!(!path.exists());
        finished.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"other").unwrap();
        let refused = file.finish(Durability::Synced).unwrap().publish_new().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
        assert_eq!(names(folder.path()), ["new"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("weights"), folder.path().join("link"));
        put(&path, &[1]).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        put(&link, &[2]).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), [2]);
        put(Path::new("/dev/null"), &[1]).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_kept_and_new_files_have_the_default_ones() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let (path, usual) = (folder.path().join("file"), folder.path().join("usual"));
        put(&path, &[1]).unwrap();
        fs::write(&usual, [1]).unwrap();
        assert_eq!(mode(&path), mode(&usual));
        for kept in [0o600, 0o751, 0o666, 0o444] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            put(&path, &[2]).unwrap();
            assert_eq!(mode(&path), kept);
        }
    }
}
