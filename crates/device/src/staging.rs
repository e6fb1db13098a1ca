//! The files that the engine's framework wants beside a program, though its interface is called "in
//! memory" (apple-runtime §2).
//!
//! They lie in a directory under the program's identifier, which is a hash of their content.
//! Programs with equal content share the directory, in this process and in others. Unless it is to
//! be kept, each process has a locked file of its own in it, and whoever takes the last one away
//! removes the directory. A lock ends with its process however that ends, so what a crash left
//! behind is found by its unlocked files and removed ([`sweep`]). A directory without such a file
//! is never touched.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use ferrane_host::fs::{Durability, replace};
use ferrane_host::sync::lock;

use crate::{Error, ErrorKind, Result};

/// What the text's paths begin with.
const PREFIX: &str = "@model_path/";

/// The folder of the weight files, which every staged directory has.
const WEIGHTS: &str = "weights";

/// Names of the files that say who uses a directory; the process's number comes after.
const OWNER: &str = "ferrane-owner-";

/// The file whose lock is held while directories come and go.
const GATE: &str = "ferrane-staging.lock";

/// A directory that this process uses.
struct InUse {
    users: usize,
    /// Ours, locked; open as long as anybody here uses the directory. A kept one has none.
    owner: Option<File>,
}

static IN_USE: Mutex<Option<HashMap<PathBuf, InUse>>> = Mutex::new(None);

fn in_use() -> MutexGuard<'static, Option<HashMap<PathBuf, InUse>>> {
    lock(&IN_USE)
}

/// The lock under which directories come and go, of all processes. Its file exists only while it is
/// held.
struct Gate {
    path: PathBuf,
    _file: File,
}

/// Keeps other processes from making and removing directories until it is dropped.
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
        // Elsewhere it cannot be seen whether the path still leads to an open file.
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

/// Our file in a directory.
fn owner_of(folder: &Path) -> PathBuf {
    folder.join(format!("{OWNER}{}", std::process::id()))
}

/// Makes a directory ours.
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
    /// Writes `model.mil` and the weight files to the directory `identifier` in `root`, if nobody
    /// in this process did before. Each file appears whole or not at all.
    ///
    /// # Errors
    /// A path that leads out of the directory, or the system's own.
    pub fn new(root: &Path, identifier: &str, mil: &[u8], weights: &[(String, &[u8])], kept: bool) -> Result<Staged> {
        if identifier.is_empty() || !identifier.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            return Err(Error::new(ErrorKind::System, format!("odd model identifier `{identifier}`")));
        }
        let folder = root.join(identifier);
        let files = weights.iter().map(|(path, data)| Ok((inside(path)?, *data))).collect::<Result<Vec<_>>>()?;
        // Locked to the end: nobody here may use the directory before it is whole.
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
        // A failure clears up by dropping what was staged.
        let staged = Staged { folder };
        result.map(|()| staged)
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file of that name, whole or not at all.
    ///
    /// # Errors
    /// A path that leads out of the directory, or the system's own.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_whole(&self.folder.join(inside(name)?), bytes).map_err(|e| failed(&self.folder, e))
    }

    /// Reads a file as it is now; `None` if there is none.
    ///
    /// # Errors
    /// A path that leads out of the directory, or the system's own.
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
        // What cannot be removed is left to the next sweep.
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
            // Only the owner has the lock; it ended with its process.
            let lock = OpenOptions::new().append(true).open(entry.path()).map(|file| file.try_lock());
            if !matches!(lock, Ok(Ok(()))) {
                return Ok(false);
            }
        }
    }
    fs::remove_dir_all(folder)?;
    Ok(true)
}

/// Removes what processes that are gone have left behind in `root`; gives how many directories that
/// were.
pub fn sweep(root: &Path) -> usize {
    let (Ok(_gate), Ok(entries)) = (gate(), fs::read_dir(root)) else { return 0 };
    let ours = |folder: &Path| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        names.into_iter().any(|e| e.file_name().to_string_lossy().starts_with(OWNER))
    };
    let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
    // Only what looks like a staged directory is looked into: temporary ones may be large.
    folders.filter(|f| f.join(WEIGHTS).is_dir() && ours(f) && remove_if_unused(f).unwrap_or(false)).count()
}

/// The path of a weight file inside the directory.
fn inside(path: &str) -> Result<PathBuf> {
    let relative = Path::new(path.strip_prefix(PREFIX).unwrap_or(path));
    let plain =
        relative.components().all(|c| matches!(c, Component::Normal(_))) && relative.components().next().is_some();
    let odd =
        || Error::new(ErrorKind::InvalidProgram, format!("weight path `{path}` leads out of the program's directory"));
    plain.then(|| relative.to_path_buf()).ok_or_else(odd)
}

/// Writes a file, whole or not at all, and the folders it is in.
///
/// # Errors
/// The system's own.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // A staged file can be written again, so nothing waits for the disk.
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
        // No process has this file's lock, whoever has the number.
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
        // Another opening of the file stands for another process: locks belong to the opening.
        let other = File::create(folder.join(format!("{OWNER}1"))).unwrap();
        other.lock().unwrap();
        drop(staged);
        assert!(folder.join("model.mil").exists());
        drop(other);
        assert_eq!(sweep(root), 1);
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
