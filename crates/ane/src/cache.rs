//! The disk cache of compiled programs.
//!
//! A compile leaves `net.plist` and, with weights, `data` in the staged directory; restoring these
//! files saves another process the compile (apple-runtime §3). An entry is a directory named by a
//! hash of program, weights, chip and build of the system, because a compiled program is only valid
//! for these. It holds the files and a list of their hashes. The list is written last, so a damaged
//! or incomplete entry is recognized and ignored.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use ferrane_device::staging::write_whole;

/// The files that a compile leaves.
const FILES: [&str; 2] = ["net.plist", "data"];

/// The file name of the list of hashes.
const LIST: &str = "list";

/// The largest number of entries; beyond it the oldest are removed. Programs have several
/// kilobytes, plus their weights in `data`.
const ENTRIES: usize = 512;

/// The root directory of the entries.
pub(crate) struct Cache {
    root: PathBuf,
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The name of an entry.
pub(crate) fn key(mil: &[u8], weights: &[(String, &[u8])], chip: &str, build: &str, qos: u32) -> String {
    let mut all = Sha256::new();
    // Each part is preceded by its length, so different lists of parts never hash the same bytes.
    let mut part = |bytes: &[u8]| {
        all.update((bytes.len() as u64).to_le_bytes());
        all.update(bytes);
    };
    part(mil);
    for (path, data) in weights {
        part(path.as_bytes());
        part(data);
    }
    part(chip.as_bytes());
    part(build.as_bytes());
    part(&qos.to_le_bytes());
    all.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

impl Cache {
    /// A cache in a directory, which need not exist.
    pub(crate) fn new(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// Copies the files of an entry into a directory; true if there was a complete entry.
    pub(crate) fn restore(&self, key: &str, folder: &Path) -> bool {
        let entry = self.root.join(key);
        let files = || -> Option<Vec<(&str, Vec<u8>)>> {
            let list = fs::read_to_string(entry.join(LIST)).ok()?;
            let mut files = Vec::new();
            for line in list.lines() {
                let (sum, name) = line.split_once(' ')?;
                let name = *FILES.iter().find(|f| **f == name)?;
                let bytes = fs::read(entry.join(name)).ok()?;
                files.push((name, (hash(&bytes) == sum).then_some(bytes)?));
            }
            (!files.is_empty()).then_some(files)
        };
        let Some(files) = files() else { return false };
        files.iter().try_for_each(|(name, bytes)| write_whole(&folder.join(name), bytes)).is_ok()
    }

    /// Stores the files that a compile left in a directory. If the cache is not writable, nothing
    /// is stored.
    pub(crate) fn store(&self, key: &str, folder: &Path) {
        let write = || -> io::Result<()> {
            let entry = self.root.join(key);
            let mut list = String::new();
            for name in FILES {
                match fs::read(folder.join(name)) {
                    Ok(bytes) => {
                        write_whole(&entry.join(name), &bytes)?;
                        list.push_str(&format!("{} {name}\n", hash(&bytes)));
                    }
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
            write_whole(&entry.join(LIST), list.as_bytes())
        };
        if write().is_ok() {
            self.trim();
        }
    }

    /// Removes an entry that proved to be unusable.
    pub(crate) fn remove(&self, key: &str) {
        let _ = fs::remove_dir_all(self.root.join(key));
    }

    fn trim(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        let time = |e: &fs::DirEntry| e.metadata().and_then(|m| m.modified()).ok();
        let mut all: Vec<_> = entries.flatten().filter_map(|e| Some((time(&e)?, e.path()))).collect();
        let surplus = all.len().saturating_sub(ENTRIES);
        all.sort();
        for (_, path) in all.into_iter().take(surplus) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let [root, from, to] = ["root", "from", "to"].map(|name| place.path().join(name));
        let cache = Cache::new(root.clone());
        assert!(!cache.restore("k", &to));
        write_whole(&from.join("net.plist"), b"net").unwrap();
        write_whole(&from.join("data"), b"weights").unwrap();
        cache.store("k", &from);
        assert!(cache.restore("k", &to));
        assert_eq!(
            (fs::read(to.join("net.plist")).unwrap(), fs::read(to.join("data")).unwrap()),
            (b"net".into(), b"weights".into())
        );
        fs::write(root.join("k/data"), b"weightz").unwrap();
        assert!(!cache.restore("k", &to), "damaged");
        cache.store("k", &from);
        fs::remove_file(root.join("k/list")).unwrap();
        assert!(!cache.restore("k", &to), "not finished");
        cache.store("k", &from);
        cache.remove("k");
        assert!(!cache.restore("k", &to));
    }

    #[test]
    fn everything_that_a_compile_depends_on_is_in_the_key() {
        let weights: [(String, &[u8]); 1] = [("w".into(), b"12")];
        let other: [(String, &[u8]); 1] = [("w1".into(), b"2")];
        let keys = [
            key(b"mil", &weights, "chip", "build", 21),
            key(b"mi", &weights, "chip", "build", 21),
            key(b"mil", &other, "chip", "build", 21),
            key(b"mil", &[], "chip", "build", 21),
            key(b"mil", &weights, "chi", "pbuild", 21),
            key(b"mil", &weights, "chip", "build2", 21),
            key(b"mil", &weights, "chip", "build", 0),
        ];
        for (i, one) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|k| k != one), "{i}");
        }
    }
}
