//! The table of a release: sizes, the glibc that the binaries need, and the time of a start.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Release, output};
use crate::workspace::{self, Result};

/// Starts of the command that are timed.
const STARTS: usize = 21;

/// Prints the table, and writes it as Markdown.
pub(super) fn print(release: &Release) -> Result<()> {
    let mut text = String::from("| file | bytes |\n|---|---:|\n");
    for path in workspace::files(&release.out, Path::new(""), &|path| !path.starts_with("crates"))? {
        text += &format!("| {} | {} |\n", path.display(), size(&release.out.join(&path))?);
    }
    let crates = workspace::files(&release.out, Path::new("crates"), &|_| true)?;
    if !crates.is_empty() {
        let sizes = crates.iter().map(|path| size(&release.out.join(path))).collect::<Result<Vec<u64>>>()?;
        text += &format!("| {} crates | {} |\n", crates.len(), sizes.iter().sum::<u64>());
    }
    text += "\n| binary | bytes | glibc |\n|---|---:|---|\n";
    for name in ["ferrane", "libferrane_capi.so", "libferrane_capi.dylib", "libferrane_capi.a"] {
        let path = release.built(name);
        if path.exists() {
            let bytes = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            let needs = glibc(&bytes).map_or(String::new(), |(major, minor)| format!("{major}.{minor}"));
            text += &format!("| {name} | {} | {needs} |\n", bytes.len());
        }
    }
    text += &format!("\n`ferrane --version` takes {:.1} ms.\n", start(release)?.as_secs_f64() * 1e3);
    print!("{text}");
    workspace::write(&release.out.join("TABLE.md"), &text)
}

fn size(path: &Path) -> Result<u64> {
    std::fs::metadata(path).map(|m| m.len()).map_err(|e| format!("{}: {e}", path.display()))
}

/// The median of a few starts, after one that reads the file from the disk.
fn start(release: &Release) -> Result<Duration> {
    let run = || {
        let begun = Instant::now();
        output(Command::new(release.built("ferrane")).arg("--version"))?;
        Ok(begun.elapsed())
    };
    run()?;
    let mut times = (0..STARTS).map(|_| run()).collect::<Result<Vec<Duration>>>()?;
    times.sort();
    Ok(times[STARTS / 2])
}

/// The newest version of glibc's symbols that a dynamically linked file for Linux asks for.
fn glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    let name = b"GLIBC_";
    let found = bytes.windows(name.len()).enumerate().filter(|(_, window)| window == name);
    let versions = found.filter_map(|(at, _)| {
        let rest = &bytes[at + name.len()..];
        // A version's name ends with a zero byte; texts that mention one do not.
        let end = rest.iter().take(12).position(|byte| *byte == 0)?;
        let (major, minor) = std::str::from_utf8(&rest[..end]).ok()?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_glibc_counts() {
        let file = b"\x7fELF..GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0 needs GLIBC_2.99 or newer\0";
        assert_eq!(glibc(file), Some((2, 34)));
        assert_eq!(glibc(b"GLIBC_2.9\0"), None);
        assert_eq!(glibc(b"\x7fELF"), None);
    }
}
