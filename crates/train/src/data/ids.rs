//! A flat sequence of token ids, 2 or 4 bytes each, little-endian.

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ferrane_host::map::Mapped;
use ferrane_llm::tokenizer::Tokenizer;
use sha2::{Digest as _, Sha256};

use super::{Error, text};

/// The format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// By the extension: `.u16` and `.bin` are 2-byte ids, `.u32` is 4-byte ids, anything else is
    /// text.
    #[default]
    Auto,
    /// UTF-8 text.
    Text,
    /// Little-endian 2-byte ids, as llama2.c writes them (training-dynamic §11).
    U16,
    /// Little-endian 4-byte ids.
    U32,
}

impl Format {
    /// The format that a file's extension indicates.
    pub fn of(path: &Path) -> Format {
        match path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase().as_str() {
            "u16" | "bin" => Format::U16,
            "u32" => Format::U32,
            _ => Format::Text,
        }
    }
}

impl FromStr for Format {
    type Err = Error;
    fn from_str(name: &str) -> Result<Format, Error> {
        match name {
            "auto" => Ok(Format::Auto),
            "text" => Ok(Format::Text),
            "u16" => Ok(Format::U16),
            "u32" => Ok(Format::U32),
            other => Err(Error::Format(other.into())),
        }
    }
}

/// What opening a data file needs in addition to its path.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The format of the file.
    pub format: Format,
    /// The tokenizer; required for text.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Number of entries of the model's vocabulary; every id must be below it.
    pub vocabulary: usize,
    /// Folder that caches the ids of a text if the text's own folder is not writable.
    pub cache: Option<&'a Path>,
}

/// Token ids, mapped from a file or in memory. Clones share the data.
#[derive(Debug, Clone)]
pub struct Ids {
    bytes: Bytes,
    width: Width,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(Mapped),
    Held(Arc<[u8]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Two,
    Four,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Width::Two => 2,
            Width::Four => 4,
        }
    }

    pub(super) fn extension(self) -> &'static str {
        match self {
            Width::Two => "u16",
            Width::Four => "u32",
        }
    }

    /// The bytes of `ids`, which must fit this width.
    pub(super) fn pack(self, ids: &[u32]) -> Vec<u8> {
        match self {
            Width::Two => ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect(),
            Width::Four => ids.iter().flat_map(|&id| id.to_le_bytes()).collect(),
        }
    }
}

impl Ids {
    /// Opens the data file `path`.
    ///
    /// Text is encoded once and the ids are cached next to it as `NAME.ids-HASH.u16` (or `.u32` for
    /// vocabularies above 65536). The hash covers the text and the tokenizer. If that folder is not
    /// writable, the cache goes to [`Source::cache`]; if neither is writable, the ids are only in
    /// memory. Documents are split by [`documents`](super::documents), and each begins with the
    /// tokenizer's begin id, or with its end id if it has no begin id.
    ///
    /// # Errors
    /// Every [`Error`] except those of splits and windows.
    pub fn open(path: impl AsRef<Path>, source: &Source<'_>) -> Result<Ids, Error> {
        let path = path.as_ref();
        let format = if source.format == Format::Auto { Format::of(path) } else { source.format };
        let width = match format {
            Format::U16 => Some(Width::Two),
            Format::U32 => Some(Width::Four),
            Format::Text | Format::Auto => None,
        };
        let ids = match (width, source.tokenizer) {
            (Some(width), _) => Ids::map(path, width)?,
            (None, None) => {
                map(path)?;
                return Err(Error::NoTokenizer(path.to_path_buf()));
            }
            (None, Some(tokenizer)) => text::open(path, &map(path)?, tokenizer, source.cache)?,
        };
        ids.check(path, source.vocabulary)?;
        Ok(ids)
    }

    /// The ids of `text`, encoded like a text file, in memory.
    pub fn from_text(text: &str, tokenizer: &Tokenizer) -> Ids {
        Ids::from_slice(&text::encode(text, tokenizer))
    }

    /// A copy of `ids` in memory.
    pub fn from_slice(ids: &[u32]) -> Ids {
        let width = if ids.iter().all(|&id| id <= u32::from(u16::MAX)) { Width::Two } else { Width::Four };
        Ids::packed(width.pack(ids), width)
    }

    pub(super) fn packed(bytes: Vec<u8>, width: Width) -> Ids {
        Ids { bytes: Bytes::Held(bytes.into()), width }
    }

    /// Maps a file of ids without checking their values.
    pub(super) fn map(path: &Path, width: Width) -> Result<Ids, Error> {
        let mapped = map(path)?;
        if !mapped.len().is_multiple_of(width.bytes()) {
            return Err(Error::OddLength { path: path.to_path_buf(), bytes: mapped.len(), width: width.bytes() });
        }
        Ok(Ids { bytes: Bytes::Mapped(mapped), width })
    }

    /// Checks that every id is in the vocabulary.
    pub(super) fn check(&self, path: &Path, vocabulary: usize) -> Result<(), Error> {
        match self.iter().enumerate().find(|&(_, id)| id as usize >= vocabulary) {
            None => Ok(()),
            Some((position, id)) => Err(Error::BeyondVocabulary { path: path.to_path_buf(), position, id, vocabulary }),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapped) => mapped,
            Bytes::Held(held) => held,
        }
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.bytes().len() / self.width.bytes()
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All ids, in the order of the data.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.range(0..self.len())
    }

    /// The ids of `range`, clipped to the data.
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let width = self.width.bytes();
        let end = range.end.min(self.len());
        let bytes = &self.bytes()[range.start.min(end) * width..end * width];
        bytes.chunks_exact(width).map(|b| match b {
            [a, b] => u32::from(u16::from_le_bytes([*a, *b])),
            [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]),
            _ => 0,
        })
    }

    /// The window at `start`: `seq + 1` ids, of which the first `seq` are the inputs and the last
    /// `seq` the targets.
    pub fn window(&self, start: usize, seq: usize) -> Vec<u32> {
        self.range(start..start.saturating_add(seq + 1)).collect()
    }

    /// SHA-256 of the ids, independent of their width on disk. A resumed run compares it to check
    /// that the data are the same.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut block = Vec::with_capacity(4 << 12);
        for start in (0..self.len()).step_by(1 << 12) {
            block.clear();
            block.extend(self.range(start..start + (1 << 12)).flat_map(u32::to_le_bytes));
            hash.update(&block);
        }
        hash.finalize().into()
    }
}

/// Maps the file, which must exist and not be empty.
fn map(path: &Path) -> Result<Mapped, Error> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing(path.to_path_buf()),
        _ => Error::Io { path: path.to_path_buf(), source },
    };
    if std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Err(failed(std::io::ErrorKind::IsADirectory.into()));
    }
    let mapped = Mapped::open(path).map_err(failed)?;
    if mapped.is_empty() { Err(Error::Empty(path.to_path_buf())) } else { Ok(mapped) }
}
