//! The files that the engine's framework wants beside a program, though its interface is called "in memory" (apple-runtime §2).
//!
//! They lie in a directory under the program's identifier, which is a hash of their content. Programs with equal content share the
//! directory, so it is counted in the process and removed with the last of them, unless it is to be kept.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use crate::{Error, ErrorKind, Result};

/// What the text's paths begin with.
const PREFIX: &str = "@model_path/";

static IN_USE: Mutex<Option<HashMap<PathBuf, usize>>> = Mutex::new(None);

fn in_use() -> MutexGuard<'static, Option<HashMap<PathBuf, usize>>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A staged directory, removed with its last owner unless it is kept.
pub struct Staged {
    folder: PathBuf,
    kept: bool,
}

impl Staged {
    /// Writes `model.mil` and the weight files to the directory `identifier` in `root`, if nobody in this process did before. Each
    /// file appears whole or not at all.
    ///
    /// # Errors
    /// A path that leads out of the directory, or the system's own.
    pub fn new(root: &Path, identifier: &str, mil: &[u8], weights: &[(String, &[u8])], kept: bool) -> Result<Staged> {
        if identifier.is_empty() || !identifier.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            return Err(Error::new(ErrorKind::System, format!("odd model identifier `{identifier}`")));
        }
        let folder = root.join(identifier);
        let files = weights.iter().map(|(path, data)| Ok((inside(path)?, *data))).collect::<Result<Vec<_>>>()?;
        let mut in_use = in_use();
        let users = in_use.get_or_insert_default().entry(folder.clone()).or_default();
        *users += 1;
        let first = *users == 1;
        // From here on the drop counts down and clears up.
        let staged = Staged { folder, kept };
        if first {
            let write = || {
                fs::create_dir_all(staged.folder.join("weights"))?;
                write_whole(&staged.folder.join("model.mil"), mil)?;
                files.iter().try_for_each(|(path, data)| write_whole(&staged.folder.join(path), data))
            };
            let result = write();
            drop(in_use);
            result.map_err(|e| staged.failed(e))?;
        }
        Ok(staged)
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
        write_whole(&self.folder.join(inside(name)?), bytes).map_err(|e| self.failed(e))
    }

    /// Reads a file as it is now; `None` if there is none.
    ///
    /// # Errors
    /// A path that leads out of the directory, or the system's own.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match fs::read(self.folder.join(inside(name)?)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        let message = format!("cannot stage files in {}", self.folder.display());
        Error::new(ErrorKind::System, message).with_source(error)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let mut in_use = in_use();
        let Some(users) = in_use.as_mut().and_then(|m| m.get_mut(&self.folder)) else { return };
        *users -= 1;
        if *users == 0 {
            if let Some(map) = in_use.as_mut() {
                map.remove(&self.folder);
            }
            if !self.kept {
                // What cannot be removed is left to the system's own cleaning of temporary directories.
                let _ = fs::remove_dir_all(&self.folder);
            }
        }
    }
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

/// Writes under another name and renames, so that nobody sees half a file.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let mut file = fs::File::create(&name)?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(&name, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_staged_once_and_removed_with_the_last_owner() {
        let name = format!("ferrane-staging-{}", std::process::id());
        let weights: [(String, &[u8]); 1] = [("@model_path/weights/deep/w.bin".into(), b"abc")];
        let root = std::env::temp_dir();
        let one = Staged::new(&root, &name, b"program", &weights, false).unwrap();
        let two = Staged::new(&root, &name, b"program", &weights, false).unwrap();
        let folder = one.folder().to_path_buf();
        assert_eq!(folder, root.join(&name));
        assert_eq!(fs::read(folder.join("model.mil")).unwrap(), b"program");
        assert_eq!(fs::read(folder.join("weights/deep/w.bin")).unwrap(), b"abc");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no left-over of an unfinished write");
        drop(one);
        assert!(folder.exists());
        drop(two);
        assert!(!folder.exists());
        let kept = Staged::new(&root, &name, b"program", &[], true).unwrap();
        kept.write("net.plist", b"ports").unwrap();
        assert_eq!((kept.read("net.plist").unwrap(), kept.read("data").unwrap()), (Some(b"ports".to_vec()), None));
        assert_eq!(kept.write("../net.plist", b"").unwrap_err().kind(), ErrorKind::InvalidProgram);
        drop(kept);
        assert!(folder.join("net.plist").exists());
        fs::remove_dir_all(&folder).unwrap();
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
