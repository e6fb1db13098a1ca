//! Archives that are the same wherever they are made.

use std::fs::File;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

use crate::workspace::Result;

/// Files by their paths in an archive, below one folder.
pub(super) struct Archive {
    folder: String,
    files: Vec<(String, Packed)>,
}

enum Packed {
    /// A copy of this file.
    File(PathBuf),
    /// A link to another file of the same folder.
    Link(String),
}

impl Archive {
    /// An empty archive whose paths begin with `folder`.
    pub(super) fn new(folder: impl Into<String>) -> Self {
        Self { folder: folder.into(), files: Vec::new() }
    }

    /// Adds a file, or a folder with all that is in it.
    pub(super) fn add(&mut self, path: &str, from: &Path) -> Result<()> {
        let failed = |e: std::io::Error| format!("cannot read {}: {e}", from.display());
        let kind = std::fs::symlink_metadata(from).map_err(failed)?.file_type();
        if kind.is_symlink() {
            let target = std::fs::read_link(from).map_err(failed)?;
            self.files.push((path.to_owned(), Packed::Link(target.display().to_string())));
        } else if kind.is_dir() {
            for entry in std::fs::read_dir(from).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                self.add(&format!("{path}/{}", entry.file_name().to_string_lossy()), &entry.path())?;
            }
        } else {
            self.files.push((path.to_owned(), Packed::File(from.to_owned())));
        }
        Ok(())
    }

    /// Writes `FOLDER.tar.gz` into `out`: sorted, owned by root, with `time` as the time of all.
    pub(super) fn write(mut self, out: &Path, time: u64) -> Result<PathBuf> {
        self.files.sort_by(|a, b| a.0.cmp(&b.0));
        let path = out.join(format!("{}.tar.gz", self.folder));
        let failed = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
        let file = File::create(&path).map_err(failed)?;
        let mut tar = tar::Builder::new(GzBuilder::new().write(file, Compression::best()));
        for (name, content) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(time);
            header.set_uid(0);
            header.set_gid(0);
            let name = format!("{}/{name}", self.folder);
            match content {
                Packed::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    tar.append_link(&mut header, name, target).map_err(failed)?;
                }
                Packed::File(from) => {
                    let bytes = std::fs::read(from).map_err(|e| format!("cannot read {}: {e}", from.display()))?;
                    header.set_mode(if executable(&bytes) { 0o755 } else { 0o644 });
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, name, bytes.as_slice()).map_err(failed)?;
                }
            }
        }
        tar.into_inner().and_then(|gzip| gzip.finish()).map_err(failed)?;
        Ok(path)
    }
}

/// Whether the bytes are a program, a shared library or a script. The modes of files on the disk
/// depend on who checked the sources out.
fn executable(bytes: &[u8]) -> bool {
    [b"\x7fELF".as_slice(), b"\xcf\xfa\xed\xfe", b"#!"].iter().any(|magic| bytes.starts_with(magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::made_up;

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let made = made_up::workspace(&[("bin", "#!/bin/sh\n"), ("share/b", "b"), ("share/a", "a")]);
        let write = |order: &[&str]| {
            let mut archive = Archive::new("x-1");
            order.iter().for_each(|name| archive.add(name, &made.path().join(name)).unwrap());
            std::fs::read(archive.write(made.path(), 1_700_000_000).unwrap()).unwrap()
        };
        let bytes = write(&["bin", "share"]);
        assert_eq!(bytes, write(&["share", "bin"]));
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            (entry.path().unwrap().display().to_string(), header.mode().unwrap(), header.mtime().unwrap())
        });
        let time = 1_700_000_000;
        assert_eq!(
            entries.collect::<Vec<_>>(),
            [
                ("x-1/bin".to_owned(), 0o755, time),
                ("x-1/share/a".to_owned(), 0o644, time),
                ("x-1/share/b".to_owned(), 0o644, time)
            ]
        );
    }
}
