//! Classifies the files of a folder.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{FileKind, HEAD_BYTES, recognize};

/// The largest number of files and folders to visit, and the largest depth of folders.
const MOST: (usize, usize) = (4096, 16);

/// A file of a recognized kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its path, relative to the folder.
    pub path: PathBuf,
    /// The format, recognized by its contents.
    pub kind: FileKind,
    /// Its size in bytes.
    pub length: u64,
}

/// Classifies the file at a path. `None` if its kind is not recognized.
///
/// # Errors
/// I/O errors of reading the file.
pub fn file(path: &Path) -> io::Result<Option<(FileKind, u64)>> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(recognize(&head, length).map(|kind| (kind, length)))
}

/// The recognized files of a folder and its subfolders, sorted by path; links are not followed. The
/// flag is true if the limits stopped the scan early.
///
/// # Errors
/// I/O errors of reading the folder itself; unreadable entries are skipped.
pub fn scan(folder: &Path) -> io::Result<(Vec<FoundFile>, bool)> {
    let (mut found, mut more, mut seen) = (Vec::new(), false, 0);
    let mut open = vec![(folder.to_path_buf(), 0)];
    let mut begun = false;
    while let Some((at, depth)) = open.pop() {
        let entries = match fs::read_dir(&at) {
            Err(e) if !begun => return Err(e),
            Err(_) => continue,
            Ok(entries) => entries,
        };
        begun = true;
        for entry in entries.flatten() {
            seen += 1;
            if seen > MOST.0 {
                more = true;
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                if depth < MOST.1 { open.push((path, depth + 1)) } else { more = true }
            } else if kind.is_file()
                && let Ok(Some((kind, length))) = file(&path)
            {
                let path = path.strip_prefix(folder).map_or(path.clone(), Path::to_path_buf);
                found.push(FoundFile { path, kind, length });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((found, more))
}
