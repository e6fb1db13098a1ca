//! Files and standard input; output files are complete or absent.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_host::{self as host, fs::Durability};

use crate::error::{Error, Result};

/// Larger texts are refused before they are read: the reader's positions have 32 bits.
const MAX_TEXT: u64 = 1 << 31;
/// Larger files of other kinds are refused: offsets in compiled programs have 32 bits.
const MAX_FILE: u64 = 1 << 32;

/// An error about a path.
pub fn failed(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(format!("{}: {why}", path.display()))
}

/// The bytes of a text; `-` is standard input.
pub fn read_text(path: &Path) -> Result<Vec<u8>> {
    read_most(path, MAX_TEXT, "more than 2 GiB of text; keep weights in blob files")
}

/// The bytes of a binary file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_most(path, MAX_FILE, "more than 4 GiB, which no compiled program has")
}

/// The text of a file that has at most `most` bytes, whose `what` has no more; `-` is standard
/// input.
pub fn read_bounded(path: &Path, most: u64, what: &str) -> Result<String> {
    let bytes = read_most(path, most, &format!("more than {} MiB, which no {what} has", most >> 20))?;
    String::from_utf8(bytes).map_err(|e| failed(path, format!("not UTF-8: {e}")))
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

/// A flag that the first Ctrl-C sets, so that the command ends after the `what` at hand; the second
/// one ends it at once.
pub fn stop_on_ctrl_c(what: &'static str) -> Result<Arc<AtomicBool>> {
    stop_and(move || {
        crate::out::note(format_args!("\nstopping after this {what}; press Ctrl-C again to stop at once"));
    })
}

/// The same without a message, for commands that end at once.
pub fn stop_on_ctrl_c_quietly() -> Result<Arc<AtomicBool>> {
    stop_and(|| ())
}

fn stop_and(note: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        note();
    })
    .map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))?;
    Ok(stop)
}
