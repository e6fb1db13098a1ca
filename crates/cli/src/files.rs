//! Files that are replaced whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use ferrane_host::{self as host, fs::Durability};

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

/// Makes a file hold these bytes, whole or not at all (`host::fs`).
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    host::fs::replace(path, bytes, Durability::Synced).map_err(|e| failed(path, e))
}
