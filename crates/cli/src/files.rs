//! Files that are replaced whole or not at all.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Texts beyond this are refused before they are read; the reader's positions have 32 bits.
const MAX_TEXT: u64 = 1 << 31;
/// Other files that are read whole have less than this: offsets in compiled programs have 32 bits.
const MAX_FILE: u64 = 1 << 32;

/// An error about a path.
pub fn failed(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(format!("{}: {why}", path.display()))
}

/// The bytes of a text; `-` is standard input.
pub fn read_text(path: &Path) -> Result<Vec<u8>> {
    read_most(path, MAX_TEXT, "more than 2 GiB of text; keep weights in blob files beside it")
}

/// The bytes of a file that is no text; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_most(path, MAX_FILE, "more than 4 GiB; no such file has its offsets in 32 bits")
}

fn read_most(path: &Path, most: u64, beyond: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = |from: &mut dyn std::io::Read, bytes: &mut Vec<u8>| from.take(most + 1).read_to_end(bytes);
    if is_stdin(path) {
        read(&mut std::io::stdin().lock(), &mut bytes).map_err(|e| failed(Path::new("standard input"), e))?;
    } else {
        let mut file = File::open(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => failed(path, "no such file"),
            _ => failed(path, e),
        })?;
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(failed(path, "is a directory; give a file, or a folder that ends in .mlpackage or .mlmodelc"));
        }
        read(&mut file, &mut bytes).map_err(|e| failed(path, e))?;
    }
    if bytes.len() as u64 > most {
        return Err(failed(path, beyond));
    }
    Ok(bytes)
}

/// True for `-`.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Gives a file these bytes. Whoever looks meanwhile, or after an interruption, sees the old file or the new one: the bytes are
/// written beside it, with its permissions, and renamed. A link is followed, so that it stays one.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folder = target.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = target.file_name().ok_or_else(|| failed(path, "is no file's name"))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = Beside(folder.join(beside));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside.0)?;
        file.write_all(bytes)?;
        if let Ok(old) = fs::metadata(&target) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&beside.0, &target)
    };
    write().map_err(|e| failed(path, e))
}

/// A file under its temporary name, gone if it was not renamed.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
