//! The folder `.aimodel`: `main.mlirb`, the program; `main.hash`, its SHA-256 as 32 bytes; and
//! `metadata.json`. The program is mapped, so its weights are read where they are used.
//!
//! Source: seen in folders written by coreai-core 1.0.0b3.

use std::path::{Path, PathBuf};

use ferrane_host::fs::{Durability, replace};
use ferrane_host::map::Mapped;
use sha2::{Digest, Sha256};

use crate::bytecode::Bytecode;
use crate::error::{Error, Result};

const PROGRAM: &str = "main.mlirb";
const HASH: &str = "main.hash";
const METADATA: &str = "metadata.json";

/// The largest `metadata.json` that is read, in bytes.
const METADATA_BYTES: u64 = 16 << 20;

/// An opened `.aimodel`.
#[derive(Debug)]
pub struct Asset {
    path: PathBuf,
    program: Mapped,
    metadata: serde_json::Value,
}

/// True for a folder with a program of Core AI in it.
pub fn is_asset(path: &Path) -> bool {
    path.join(PROGRAM).is_file()
}

impl Asset {
    /// Opens a folder. The caller guarantees that its program does not change while it is open.
    ///
    /// # Errors
    /// E0905 if `main.mlirb` or `metadata.json` cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Asset> {
        let path = path.as_ref().to_path_buf();
        let failed = |name: &str, error: &dyn std::fmt::Display| Error::folder(&path.join(name), error);
        let program = Mapped::open(path.join(PROGRAM)).map_err(|e| failed(PROGRAM, &e))?;
        let length = std::fs::metadata(path.join(METADATA)).map_err(|e| failed(METADATA, &e))?.len();
        if length > METADATA_BYTES {
            return Err(failed(METADATA, &format!("{length} bytes are too many")));
        }
        let text = std::fs::read(path.join(METADATA)).map_err(|e| failed(METADATA, &e))?;
        let metadata = serde_json::from_slice(&text).map_err(|e| failed(METADATA, &e))?;
        Ok(Asset { path, program, metadata })
    }

    /// The bytes of the program.
    pub fn bytes(&self) -> &[u8] {
        &self.program
    }

    /// The mapped file of the program.
    pub(crate) fn mapped(&self) -> &Mapped {
        &self.program
    }

    /// The program, decoded. Its weights are borrowed from the file.
    ///
    /// # Errors
    /// As [`Bytecode::read`].
    pub fn program(&self) -> Result<Bytecode<'_>> {
        Bytecode::read(&self.program)
    }

    /// `metadata.json`: who made the model and when, and the version of the folder.
    pub fn metadata(&self) -> &serde_json::Value {
        &self.metadata
    }

    /// Compares the program with `main.hash`, which reads all of it.
    ///
    /// # Errors
    /// E0905 if `main.hash` cannot be read, E0906 if it is that of another program.
    pub fn check_hash(&self) -> Result<()> {
        let path = self.path.join(HASH);
        let length = std::fs::metadata(&path).map_err(|e| Error::folder(&path, e))?.len();
        let stored = match length {
            32 => std::fs::read(&path).map_err(|e| Error::folder(&path, e))?,
            _ => Vec::new(),
        };
        match stored == Sha256::digest(&*self.program).as_slice() {
            true => Ok(()),
            false => Err(Error::hash(&path)),
        }
    }
}

/// The `metadata.json` of a model that Ferrane makes now.
pub fn metadata() -> serde_json::Value {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let producer = concat!("Ferrane ", env!("CARGO_PKG_VERSION"));
    serde_json::json!({"assetVersion": "2.0", "producer": producer, "creationDate": date(seconds)})
}

/// Seconds since 1970 as `20261125T000000Z`.
fn date(seconds: u64) -> String {
    // Days of the Gregorian calendar, counted in years that begin in March.
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Writes a folder, which is made if it does not exist: the program, its hash and `metadata`.
///
/// # Errors
/// E0905 if the folder or a file cannot be written.
pub fn write(path: impl AsRef<Path>, program: &Bytecode<'_>, metadata: &serde_json::Value) -> Result<()> {
    let path = path.as_ref();
    std::fs::create_dir_all(path).map_err(|e| Error::folder(path, e))?;
    let bytes = program.write();
    let text = format!("{metadata:#}");
    for (name, contents) in
        [(PROGRAM, bytes.as_slice()), (HASH, Sha256::digest(&bytes).as_slice()), (METADATA, text.as_bytes())]
    {
        let path = path.join(name);
        replace(&path, contents, Durability::Cached).map_err(|e| Error::folder(&path, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Builder;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "19700101T000000Z");
        assert_eq!(date(951_782_400), "20000229T000000Z");
        assert_eq!(date(1_798_761_599), "20261231T235959Z");
    }

    #[test]
    fn a_folder_is_written_and_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.aimodel");
        let program = Builder::new().finish();
        let metadata = serde_json::json!({"assetVersion": "2.0"});
        write(&path, &program, &metadata).unwrap();
        assert!(is_asset(&path));
        let asset = Asset::open(&path).unwrap();
        assert_eq!(asset.metadata(), &metadata);
        assert_eq!(asset.program().unwrap().write(), program.write());
        asset.check_hash().unwrap();
        std::fs::write(path.join(HASH), [0; 32]).unwrap();
        assert_eq!(asset.check_hash().unwrap_err().code.0, 906);
        std::fs::remove_file(path.join(METADATA)).unwrap();
        assert_eq!(Asset::open(&path).unwrap_err().code.0, 905);
    }
}
