//! The cache of ids: documents are encoded once, and later runs map the ids.
//!
//! It lies in one folder of the user, never next to the data. A file is named by a hash of
//! everything that its ids depend on: the contents of the data file, its format and field, the
//! tokenizer, and the version of the encoding. The ids are at the start of the file, so that they
//! can be mapped; after them is a footer with their number and hash, then its own hash, its length
//! and a magic number.
//!
//! Invariants: a file gets its name only when it is complete; a file that does not match its footer
//! is not used and is written again.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use ferrane_host::fs::{AtomicFile, Durability};
use ferrane_host::map::Mapped;
use ferrane_llm::chat::Template;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::ids::{UNCOUNTED, Width};
use super::shards::{Found, Shard};
use super::{Error, Format};

/// Environment variable with the folder of the cache.
pub const VARIABLE: &str = "FERRANE_CACHE_DIR";

/// Part of the name's hash. It must change if the encoding changes, so that old files are not used.
const RULE: &[u8] = b"ferrane ids 2";
const MAGIC: &[u8; 8] = b"FERR-IDS";
/// Extension of the files.
const EXTENSION: &str = "ids";
/// Bytes of the largest file that is hashed whole. Of a larger one, samples and the time of its
/// last change are hashed.
const WHOLE: u64 = 64 << 20;
/// Number and bytes of the samples.
const SAMPLES: (u64, u64) = (64, 64 << 10);
/// Bytes of the largest footer.
const FOOTER: u64 = 1 << 20;

/// The folder of cached ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdsCache {
    folder: PathBuf,
}

/// Number and size of the cached files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Number of files, one for each data file and tokenizer.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

impl IdsCache {
    /// The cache in `folder`, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> IdsCache {
        IdsCache { folder: folder.into() }
    }

    /// The user's cache: the folder that [`VARIABLE`] names, or `ferrane/ids` in the system's
    /// folder for caches (`$XDG_CACHE_HOME` or `~/.cache`; on a Mac `~/Library/Caches`). `None` if
    /// there is no home folder.
    pub fn user() -> Option<IdsCache> {
        if let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
            return Some(IdsCache::at(folder));
        }
        let strategy = etcetera::base_strategy::choose_native_strategy().ok()?;
        Some(IdsCache::at(strategy.cache_dir().join("ferrane").join(EXTENSION)))
    }

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is in it.
    ///
    /// # Errors
    /// [`Error::Cache`] if the folder exists and cannot be read.
    pub fn usage(&self) -> Result<Usage, Error> {
        let add = |sum: Usage, (_, bytes): (PathBuf, u64)| Usage { files: sum.files + 1, bytes: sum.bytes + bytes };
        Ok(self.files()?.into_iter().fold(Usage::default(), add))
    }

    /// Removes the cached files and returns what they were. Runs that map one keep it until they
    /// end.
    ///
    /// # Errors
    /// [`Error::Cache`] if a file cannot be removed.
    pub fn clear(&self) -> Result<Usage, Error> {
        let mut removed = Usage::default();
        for (path, bytes) in self.files()? {
            match fs::remove_file(&path) {
                Ok(()) => removed = Usage { files: removed.files + 1, bytes: removed.bytes + bytes },
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        Ok(removed)
    }

    /// The files of the cache, and what interrupted runs left there, with their sizes.
    fn files(&self) -> Result<Vec<(PathBuf, u64)>, Error> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| self.failed(e))?,
        };
        let mut files = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let own = name.ends_with(".ids") || (name.starts_with('.') && name.contains(".ids."));
            if let Some(found) = entry.metadata().ok().filter(|found| own && found.is_file()) {
                files.push((entry.path(), found.len()));
            }
        }
        Ok(files)
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Cache { folder: self.folder.clone(), source }
    }

    /// Where the ids of this name are, or will be.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{EXTENSION}"))
    }

    /// Begins a file of this name.
    pub(super) fn create(&self, name: &str) -> io::Result<IdsWriter> {
        fs::create_dir_all(&self.folder)?;
        // A privileged user could write to a protected folder, but must not.
        if fs::metadata(&self.folder)?.permissions().readonly() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let path = self.path(name);
        Ok(IdsWriter::new(Destination::Cached(AtomicFile::create(&path)?, path)))
    }
}

/// What is known about cached ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Footer {
    /// Number of ids, which with their width gives the length of the file.
    pub count: u64,
    /// Bytes of an id, 2 or 4.
    pub width: u64,
    /// The highest bit of an id says that it does not count.
    #[serde(default)]
    pub marked: bool,
    /// SHA-256 of the ids as 4-byte numbers, in hexadecimal.
    pub sha256: String,
    /// Number of broken rows that were left out.
    pub bad: u64,
    /// Why the first of them were.
    pub reasons: Vec<String>,
}

/// Ids that were read from the cache or written by this process.
#[derive(Debug)]
pub(super) struct Cached {
    /// The ids alone, without the footer.
    pub ids: Mapped,
    pub footer: Footer,
    /// A file without a cache, which is removed when the ids are.
    pub temporary: Option<tempfile::TempPath>,
}

impl Cached {
    /// Maps a file of the cache; `None` if it does not exist or is not complete.
    pub(super) fn open(path: &Path) -> Option<Cached> {
        let file = Mapped::open(path).ok()?;
        let at = |end: usize, bytes: usize| end.checked_sub(bytes).map(|start| (&file[start..end], start));
        let (magic, end) = at(file.len(), MAGIC.len())?;
        let (length, end) = at(end, 4)?;
        let (hash, end) = at(end, 32)?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        if magic != MAGIC || length as u64 > FOOTER {
            return None;
        }
        let (json, end) = at(end, length)?;
        if Sha256::digest(json)[..] != *hash {
            return None;
        }
        let footer: Footer = serde_json::from_slice(json).ok()?;
        let whole = matches!(footer.width, 2 | 4) && footer.count.checked_mul(footer.width) == Some(end as u64);
        whole.then(|| Some(Cached { ids: file.slice(0..end)?, footer, temporary: None }))?
    }

    /// Whether all ids are below `limit`; others are damage that the footer does not show.
    pub(super) fn all_below(&self, limit: usize) -> bool {
        let found = match self.footer.width {
            2 => self.ids.chunks_exact(2).all(|id| usize::from(u16::from_le_bytes([id[0], id[1]])) < limit),
            _ => {
                let plain = if self.footer.marked { !UNCOUNTED } else { u32::MAX };
                let id = |id: &[u8]| (u32::from_le_bytes([id[0], id[1], id[2], id[3]]) & plain) as usize;
                self.ids.chunks_exact(4).all(|bytes| id(bytes) < limit)
            }
        };
        // The ids may be more than the computer has memory.
        self.ids.release();
        found
    }
}

enum Destination {
    Cached(AtomicFile, PathBuf),
    Temporary(io::BufWriter<NamedTempFile>),
}

/// A file of ids that is being written.
pub(super) struct IdsWriter {
    output: Destination,
    hash: Sha256,
    count: u64,
}

impl IdsWriter {
    fn new(output: Destination) -> IdsWriter {
        IdsWriter { output, hash: Sha256::new(), count: 0 }
    }

    /// A file that is removed when its ids are no longer used.
    pub(super) fn temporary() -> io::Result<IdsWriter> {
        Ok(IdsWriter::new(Destination::Temporary(io::BufWriter::new(NamedTempFile::new()?))))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.output {
            Destination::Cached(file, _) => file.write_all(bytes),
            Destination::Temporary(file) => file.write_all(bytes),
        }
    }

    pub(super) fn write(&mut self, ids: &[u32], width: Width) -> io::Result<()> {
        self.count += ids.len() as u64;
        self.hash.update(ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
        self.put(&width.pack(ids))
    }

    /// Completes the file and maps it.
    pub(super) fn finish(mut self, width: Width, marked: bool, bad: u64, reasons: &[String]) -> io::Result<Cached> {
        let sha256 = hex(&self.hash.clone().finalize());
        let (width, reasons) = (width.bytes() as u64, reasons.to_vec());
        let footer = Footer { count: self.count, width, marked, sha256, bad, reasons };
        let json = serde_json::to_vec(&footer)?;
        self.put(&json)?;
        self.put(&Sha256::digest(&json))?;
        self.put(&(json.len() as u32).to_le_bytes())?;
        self.put(MAGIC)?;
        let (path, temporary) = match self.output {
            Destination::Cached(file, path) => {
                file.commit(Durability::Cached)?;
                (path, None)
            }
            Destination::Temporary(file) => {
                let path = file.into_inner().map_err(io::IntoInnerError::into_error)?.into_temp_path();
                (path.to_path_buf(), Some(path))
            }
        };
        let cached = Cached::open(&path).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Cached { temporary, ..cached })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a shard's ids: a hash of everything that they depend on.
pub(super) fn name(
    shard: &Shard,
    tokenizer: &[u8; 32],
    field: &str,
    template: Option<&Template>,
) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(RULE);
    hash.update(tokenizer);
    let rows = matches!(shard.format, Format::Jsonl | Format::Parquet);
    hash.update(format!("{:?} {:?}\n", shard.format, if rows { field } else { "" }));
    if let Some(template) = template {
        hash.update(template.digest());
    }
    let mut file = File::open(&shard.path)?;
    let found = Found::of(&file)?;
    hash.update(found.bytes.to_le_bytes());
    let mut block = Vec::new();
    let mut add = |start: u64, bytes: u64| {
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        (&file).take(bytes).read_to_end(&mut block)?;
        hash.update(&block);
        Ok::<(), io::Error>(())
    };
    if found.bytes <= WHOLE {
        (0..found.bytes).step_by(1 << 20).try_for_each(|start| add(start, 1 << 20))?;
    } else {
        let (count, bytes) = SAMPLES;
        (0..count).try_for_each(|i| add((found.bytes - bytes) / (count - 1) * i, bytes))?;
        add(found.bytes - bytes, bytes)?;
        hash.update(format!("{:?}", found.modified));
    }
    Ok(hex(&hash.finalize()[..16]))
}
