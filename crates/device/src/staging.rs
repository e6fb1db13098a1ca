//! The files that the engine's framework requires for a program, although its interface is called
//! "in memory" (apple-runtime §2).
//!
//! They are in a directory named by the program's identifier, a hash of their contents. Programs
//! with equal contents share the directory, in this process and in others. Unless the directory is
//! kept, each process has a locked file in it, and the process that removes the last one removes
//! the directory. A lock ends with its process in every case, so directories that a crash left are
//! recognized by their unlocked files and removed ([`sweep`]). A directory without such a file is
//! never touched.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use ferrane_host::fs::{Durability, replace};
use ferrane_host::sync::lock;

use crate::{Error, ErrorKind, Result};

/// The prefix of paths in the text.
const PREFIX: &str = "@model_path/";

/// The folder of weight files, which every staged directory has.
const WEIGHTS: &str = "weights";

/// The prefix of files that mark the users of a directory; the process id follows.
const OWNER: &str = "ferrane-owner-";

/// The file whose lock is held while directories are created and removed.
const GATE: &str = "ferrane-staging.lock";

/// A directory that this process uses.
struct InUse {
    users: usize,
    /// Our locked file, open as long as this process uses the directory; `None` for a kept one.
    owner: Option<File>,
}

static IN_USE: Mutex<Option<HashMap<PathBuf, InUse>>> = Mutex::new(None);

fn in_use() -> MutexGuard<'static, Option<HashMap<PathBuf, InUse>>> {
    lock(&IN_USE)
}

/// The lock of all processes under which directories are created and removed. Its file exists only
/// while the lock is held.
struct Gate {
    path: PathBuf,
    _file: File,
}

/// Excludes other processes from creating and removing directories until the result is dropped.
fn gate() -> io::Result<Gate> {
    let path = std::env::temp_dir().join(GATE);
    loop {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.lock()?;
        // The process that held the lock removed the file that this one waited for.
        if is_at(&file, &path)? {
            return Ok(Gate { path, _file: file });
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Other systems cannot check whether the path still leads to the open file.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the path leads to the open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let open = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (open.dev(), open.ino())))
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// The path of our file in a directory.
fn owner_of(folder: &Path) -> PathBuf {
    folder.join(format!("{OWNER}{}", std::process::id()))
}

/// Creates and locks our file in a directory.
fn own(folder: &Path) -> io::Result<File> {
    let _gate = gate()?;
    fs::create_dir_all(folder.join(WEIGHTS))?;
    let owner = OpenOptions::new().create(true).append(true).open(owner_of(folder))?;
    owner.lock()?;
    Ok(owner)
}

/// A staged directory, removed with its last owner unless it is kept.
pub struct Staged {
    folder: PathBuf,
}

impl Staged {
    /// Writes `model.mil` and the weight files to the directory `identifier` in `root`, unless this
    /// process already did. Each file is written atomically.
    ///
    /// # Errors
    /// A path that leads out of the directory, or an I/O error.
    pub fn new(root: &Path, identifier: &str, mil: &[u8], weights: &[(String, &[u8])], kept: bool) -> Result<Staged> {
        if identifier.is_empty() || !identifier.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            return Err(Error::new(ErrorKind::System, format!("invalid model identifier `{identifier}`")));
        }
        let folder = root.join(identifier);
        let files = weights.iter().map(|(path, data)| Ok((inside(path)?, *data))).collect::<Result<Vec<_>>>()?;
        // Locked until the end: other threads must not use the directory before it is complete.
        let mut in_use = in_use();
        let map = in_use.get_or_insert_default();
        if let Some(used) = map.get_mut(&folder) {
            used.users += 1;
            return Ok(Staged { folder });
        }
        let owner = if kept { None } else { Some(own(&folder).map_err(|e| failed(&folder, e))?) };
        map.insert(folder.clone(), InUse { users: 1, owner });
        let write = || {
            fs::create_dir_all(folder.join(WEIGHTS))?;
            write_whole(&folder.join("model.mil"), mil)?;
            files.iter().try_for_each(|(path, data)| write_whole(&folder.join(path), data))
        };
        let result = write().map_err(|e| failed(&folder, e));
        drop(in_use);
        // On a failure, dropping this value removes the files.
        let staged = Staged { folder };
        result.map(|()| staged)
    }

    /// The path of the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// A path that leads out of the directory, or an I/O error.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_whole(&self.folder.join(inside(name)?), bytes).map_err(|e| failed(&self.folder, e))
    }

    /// Reads the current contents of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// A path that leads out of the directory, or an I/O error.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match fs::read(self.folder.join(inside(name)?)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(&self.folder, e)),
        }
    }
}

fn failed(folder: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::System, format!("cannot stage files in {}", folder.display())).with_source(error)
}

impl Drop for Staged {
    fn drop(&mut self) {
        let mut in_use = in_use();
        let Some(map) = in_use.as_mut() else { return };
        let Some(used) = map.get_mut(&self.folder) else { return };
        used.users -= 1;
        if used.users > 0 {
            return;
        }
        let Some(owner) = map.remove(&self.folder).and_then(|used| used.owner) else { return };
        // Files that cannot be removed now are left to the next sweep.
        if let Ok(_gate) = gate() {
            drop(owner);
            let _ = fs::remove_file(owner_of(&self.folder));
            let _ = remove_if_unused(&self.folder);
        }
    }
}

/// Removes a staged directory that no living process uses; true if it did.
fn remove_if_unused(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(OWNER) {
            // Only the owner holds the lock, and it ends with its process.
            let lock = OpenOptions::new().append(true).open(entry.path()).map(|file| file.try_lock());
            if !matches!(lock, Ok(Ok(()))) {
                return Ok(false);
            }
        }
    }
    fs::remove_dir_all(folder)?;
    Ok(true)
}

/// Removes directories in `root` that ended processes left, and returns their number.
pub fn sweep(root: &Path) -> usize {
    let (Ok(_gate), Ok(entries)) = (gate(), fs::read_dir(root)) else { return 0 };
    let ours = |folder: &Path| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        names.into_iter().any(|e| e.file_name().to_string_lossy().starts_with(OWNER))
    };
    let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
    // Only folders that look like staged directories are examined: temporary ones may be large.
    folders.filter(|f| f.join(WEIGHTS).is_dir() && ours(f) && remove_if_unused(f).unwrap_or(false)).count()
}

/// Removes `root` if it is empty, at a moment when no thread or process is creating a directory in
/// it.
pub fn remove_empty(root: &Path) {
    // In the order in which `Staged` takes them.
    let _in_use = in_use();
    if let Ok(_gate) = gate() {
        // A folder with directories of others stays.
        let _ = fs::remove_dir(root);
    }
}

/// The path of a weight file relative to the directory.
fn inside(path: &str) -> Result<PathBuf> {
    let relative = Path::new(path.strip_prefix(PREFIX).unwrap_or(path));
    let plain =
        relative.components().all(|c| matches!(c, Component::Normal(_))) && relative.components().next().is_some();
    let odd =
        || Error::new(ErrorKind::InvalidProgram, format!("weight path `{path}` leads out of the program's directory"));
    plain.then(|| relative.to_path_buf()).ok_or_else(odd)
}

/// Writes a file atomically, and creates its parent folders.
///
/// # Errors
/// An I/O error.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // A staged file can be written again, so it is not flushed to disk.
    replace(path, bytes, Durability::Cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_staged_once_and_removed_with_the_last_owner() {
        let name = "program";
        let weights: [(String, &[u8]); 1] = [("@model_path/weights/deep/w.bin".into(), b"abc")];
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let one = Staged::new(root, name, b"program", &weights, false).unwrap();
        let two = Staged::new(root, name, b"program", &weights, false).unwrap();
        let folder = one.folder().to_path_buf();
        assert_eq!(folder, root.join(name));
        assert_eq!(fs::read(folder.join("model.mil")).unwrap(), b"program");
        assert_eq!(fs::read(folder.join("weights/deep/w.bin")).unwrap(), b"abc");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "no left-over of an unfinished write");
        sweep(root);
        drop(one);
        assert!(folder.exists());
        drop(two);
        assert!(!folder.exists());
        let kept = Staged::new(root, name, b"program", &[], true).unwrap();
        kept.write("net.plist", b"ports").unwrap();
        assert_eq!((kept.read("net.plist").unwrap(), kept.read("data").unwrap()), (Some(b"ports".to_vec()), None));
        assert_eq!(kept.write("../net.plist", b"").unwrap_err().kind(), ErrorKind::InvalidProgram);
        drop(kept);
        assert!(folder.join("net.plist").exists());
    }

    #[test]
    fn what_a_dead_process_left_is_swept_away() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let (left, foreign) = (root.join("left"), root.join("foreign"));
        fs::create_dir_all(left.join("weights")).unwrap();
        fs::create_dir_all(&foreign).unwrap();
        // No process holds this file's lock, whichever has the id.
        fs::write(left.join(format!("{OWNER}1")), b"").unwrap();
        assert_eq!(sweep(root), 1);
        assert!(!left.exists() && foreign.exists());
    }

    #[test]
    fn a_directory_that_another_process_uses_stays() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let staged = Staged::new(root, "program", b"program", &[], false).unwrap();
        let folder = staged.folder().to_path_buf();
        // Another file handle acts as another process: locks belong to the handle.
        let other = File::create(folder.join(format!("{OWNER}1"))).unwrap();
        other.lock().unwrap();
        drop(staged);
        assert!(folder.join("model.mil").exists());
        drop(other);
        assert_eq!(sweep(root), 1);
    }

    #[test]
    fn an_empty_root_is_not_removed_while_a_directory_is_created() {
        let place = tempfile::tempdir().unwrap();
        let root = &place.path().join("root");
        std::thread::scope(|scope| {
            let stages = scope.spawn(|| {
                for _ in 0..500 {
                    Staged::new(root, "program", b"program", &[], false).unwrap();
                }
            });
            while !stages.is_finished() {
                remove_empty(root);
            }
        });
        remove_empty(root);
        assert!(!root.exists());
    }

    #[test]
    fn nothing_is_written_outside() {
        for path in ["@model_path/../x", "/etc/x", "@model_path/", "", "@model_path/weights/../../x"] {
            assert_eq!(inside(path).unwrap_err().kind(), ErrorKind::InvalidProgram, "{path}");
        }
        for identifier in ["", "..", "a/b", "a b"] {
            assert_eq!(
                Staged::new(&std::env::temp_dir(), identifier, b"", &[], false).map(|_| ()).unwrap_err().kind(),
                ErrorKind::System
            );
        }
    }
}
