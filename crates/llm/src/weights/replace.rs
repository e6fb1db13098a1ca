//! Writing a file so that nobody ever sees half of it: under another name first, then renamed.
//!
//! Readers map weights (`ferrane_host::map`), so a file that a model may be mapped from must not change in place: the
//! old file stays whole, under no name, for as long as somebody maps it.

use super::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the file at `path` hold what `write` writes, or leaves it as it was and returns an error.
///
/// What is there and no regular file (a pipe, a device) is written to directly: it cannot be mapped, and replacing it
/// would take it away. A symbolic link keeps pointing where it points; its target is replaced.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Error>) -> Result<(), Error> {
    let io = |e| Error::io(path, e);
    let target = match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let file = OpenOptions::new().write(true).open(path).map_err(io)?;
            return fill(file, path, write).map(drop);
        }
        Ok(_) => fs::canonicalize(path).map_err(io)?,
        Err(_) => path.to_path_buf(),
    };
    let (temporary, file) = beside(&target).map_err(io)?;
    let done = fill(file, path, write).and_then(|file| {
        file.sync_all().map_err(io)?;
        // Windows renames no open file.
        drop(file);
        fs::rename(&temporary, &target).map_err(io)
    });
    if done.is_err() {
        // The first error is the one that says what happened.
        let _ = fs::remove_file(&temporary);
        return done;
    }
    sync_folder(&target).map_err(io)
}

fn fill(file: File, path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Error>) -> Result<File, Error> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out)?;
    out.flush().map_err(|e| Error::io(path, e))?;
    out.into_inner().map_err(|e| Error::io(path, e.into_error()))
}

/// A new file in the folder of `target`, so that the rename stays on one file system.
fn beside(target: &Path) -> std::io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = target.file_name() else {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no file name"));
    };
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let temporary = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            // Left behind by a process of the same number that was killed.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// The new name lasts through a power failure only when the folder is on disk too.
fn sync_folder(target: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_host::map::Mapped;

    fn names(folder: &Path) -> Vec<String> {
        let list = fs::read_dir(folder).unwrap();
        list.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
        replace(path, |out| out.write_all(bytes).map_err(|e| Error::io(path, e)))
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
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        put(&path, &[1]).unwrap();
        let failed = replace(&path, |out| {
            out.write_all(&[2]).map_err(|e| Error::io(&path, e))?;
            Err(Error::Unwritable { format: "this", reason: "a test".into() })
        });
        assert!(matches!(failed, Err(Error::Unwritable { .. })));
        assert_eq!(fs::read(&path).unwrap(), [1]);
        assert_eq!(names(folder.path()), ["weights"]);
        assert!(put(folder.path(), &[1]).is_err());
        assert!(put(&folder.path().join("none/weights"), &[1]).is_err());
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
}
