//! Folders of files: what each is.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{HEAD, Kind, recognise};

/// Files and folders that are looked at, and folders in folders.
const MOST: (usize, usize) = (4096, 16);

/// A file that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it lies, from the folder on.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub length: u64,
}

/// What a file of this path is.
///
/// # Errors
/// Those of reading it.
pub fn file(path: &Path) -> io::Result<Option<(Kind, u64)>> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(recognise(&head, length).map(|kind| (kind, length)))
}

/// The files of a folder and of those in it that are recognised, by their paths; links are not followed. The flag is true if there
/// is more than was looked at.
///
/// # Errors
/// Those of reading the folder itself; what cannot be read in it is left out.
pub fn scan(folder: &Path) -> io::Result<(Vec<Found>, bool)> {
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
                found.push(Found { path, kind, length });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((found, more))
}
