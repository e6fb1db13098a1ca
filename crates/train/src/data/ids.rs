//! A flat sequence of token ids, 2 or 4 bytes each, little-endian, from one or several files.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ferrane_host::map::Mapped;
use ferrane_llm::chat::Template;
use ferrane_llm::reference::IGNORED;
use ferrane_llm::tokenizer::Tokenizer;
use sha2::{Digest as _, Sha256};

use super::cache::{Cached, Footer, IdsCache};
use super::documents::BadRows;
use super::encode::{self, Encoder};
use super::shards::{self, Found, failed};
use super::{DataEvent, Error};

/// The format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// By the extension: `.u16` and `.bin` are 2-byte ids, `.u32` is 4-byte ids, `.jsonl` and
    /// `.ndjson` are JSON Lines, `.parquet` is Parquet, anything else is text.
    #[default]
    Auto,
    /// UTF-8 text.
    Text,
    /// JSON Lines: an object a line, with the text in one field.
    Jsonl,
    /// Parquet, with the text in one column.
    Parquet,
    /// Little-endian 2-byte ids, as llama2.c writes them (training-dynamic §11).
    U16,
    /// Little-endian 4-byte ids.
    U32,
}

impl Format {
    /// The format that a file's extension indicates.
    pub fn of(path: &Path) -> Format {
        Format::known(path).unwrap_or(Format::Text)
    }

    /// The format that a file's extension indicates; `None` for an extension that is not known,
    /// which in a folder need not be data.
    pub(super) fn known(path: &Path) -> Option<Format> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "u16" | "bin" => Format::U16,
            "u32" => Format::U32,
            "jsonl" | "ndjson" => Format::Jsonl,
            "parquet" => Format::Parquet,
            "txt" | "text" | "md" => Format::Text,
            _ => return None,
        })
    }

    /// Whether the file holds ids, and needs no tokenizer.
    pub fn is_ids(self) -> bool {
        matches!(self, Format::U16 | Format::U32)
    }
}

impl FromStr for Format {
    type Err = Error;
    fn from_str(name: &str) -> Result<Format, Error> {
        match name {
            "auto" => Ok(Format::Auto),
            "text" => Ok(Format::Text),
            "jsonl" => Ok(Format::Jsonl),
            "parquet" => Ok(Format::Parquet),
            "u16" => Ok(Format::U16),
            "u32" => Ok(Format::U32),
            other => Err(Error::Format(other.into())),
        }
    }
}

/// The bit of a stored id that does not count: no loss is computed for it.
pub(super) const UNCOUNTED: u32 = 1 << 31;

/// The field of JSON Lines, or the column of Parquet files, that holds the text by default.
pub const FIELD: &str = "text";

/// Number of broken rows of a set that are left out by default before the set is refused.
pub const BAD_ROWS: u64 = 100;

/// What opening a data file needs in addition to its path.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The format of the file, or of all files of a folder.
    pub format: Format,
    /// The tokenizer; required for all but ids.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Number of entries of the model's vocabulary; every id must be below it.
    pub vocabulary: usize,
    /// The field or column with the text, by default [`FIELD`].
    pub field: &'a str,
    /// If given, rows of JSON Lines are conversations, with their messages in `field`; this
    /// template writes them, and the loss runs over the tokens that an assistant wrote.
    pub template: Option<&'a Template>,
    /// Largest number of broken rows of a set that are left out.
    pub bad_rows: u64,
    /// Folder of the cache of ids; `None`: the user's ([`IdsCache::user`]).
    pub cache: Option<&'a Path>,
}

impl<'a> Source<'a> {
    /// Data for a vocabulary of `vocabulary` entries, with the defaults of everything else.
    pub fn new(tokenizer: Option<&'a Tokenizer>, vocabulary: usize) -> Source<'a> {
        let (format, field, template) = (Format::Auto, FIELD, None);
        Source { format, tokenizer, vocabulary, field, template, bad_rows: BAD_ROWS, cache: None }
    }
}

/// Token ids of one or several files, mapped or in memory. Clones share the data.
#[derive(Debug, Clone)]
pub struct Ids {
    parts: Vec<Part>,
    /// Position of the first id of each part, and the number of all ids.
    starts: Vec<usize>,
}

/// The ids of one file.
#[derive(Debug, Clone)]
struct Part {
    bytes: Bytes,
    width: Width,
    /// Whether ids may have the bit [`UNCOUNTED`].
    marked: bool,
    /// SHA-256 of the ids, if a cache knows it.
    sha256: Option<String>,
    watched: Option<Arc<Watched>>,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(Mapped),
    Held(Arc<[u8]>),
}

/// A mapped file as it was when it was mapped.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    file: File,
    found: Found,
    /// Removes the file when its ids are no longer used.
    _temporary: Option<tempfile::TempPath>,
}

impl Watched {
    fn new(path: &Path, temporary: Option<tempfile::TempPath>) -> Result<Arc<Watched>, Error> {
        let file = File::open(path).map_err(|e| failed(path, e))?;
        let found = Found::of(&file).map_err(|e| failed(path, e))?;
        Ok(Arc::new(Watched { path: path.to_path_buf(), file, found, _temporary: temporary }))
    }

    /// Reading what was cut off a mapped file ends the process, so its size is compared before.
    fn check(&self) -> Result<(), Error> {
        match Found::of(&self.file) {
            Ok(found) if found == self.found => Ok(()),
            Ok(_) => Err(Error::Changed(self.path.clone())),
            Err(e) => Err(failed(&self.path, e)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Two,
    Four,
}

impl Width {
    pub(super) fn bytes(self) -> usize {
        match self {
            Width::Two => 2,
            Width::Four => 4,
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

impl Part {
    /// Maps a file of ids without checking their values.
    fn map(path: &Path, width: Width) -> Result<Part, Error> {
        let watched = Watched::new(path, None)?;
        let mapped = Mapped::open(path).map_err(|e| failed(path, e))?;
        if !mapped.len().is_multiple_of(width.bytes()) {
            return Err(Error::OddLength { path: path.to_path_buf(), bytes: mapped.len(), width: width.bytes() });
        }
        Ok(Part { bytes: Bytes::Mapped(mapped), width, marked: false, sha256: None, watched: Some(watched) })
    }

    fn cached(cached: Cached) -> Part {
        let width = if cached.footer.width == 2 { Width::Two } else { Width::Four };
        let watched = cached.temporary.and_then(|temporary| {
            let path = temporary.to_path_buf();
            Watched::new(&path, Some(temporary)).ok()
        });
        let Footer { marked, sha256, .. } = cached.footer;
        Part { bytes: Bytes::Mapped(cached.ids), width, marked, sha256: Some(sha256), watched }
    }

    fn held(bytes: Vec<u8>, width: Width) -> Part {
        Part { bytes: Bytes::Held(bytes.into()), width, marked: false, sha256: None, watched: None }
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapped) => mapped,
            Bytes::Held(held) => held,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len() / self.width.bytes()
    }

    /// The ids of `range`, clipped to the part.
    fn range(&self, range: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let plain = if self.marked { !UNCOUNTED } else { u32::MAX };
        self.stored(range).map(move |id| id & plain)
    }

    /// The ids of `range` as targets: [`IGNORED`] where they do not count.
    fn targets(&self, range: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let mark = if self.marked { UNCOUNTED } else { 0 };
        self.stored(range).map(move |id| if id & mark != 0 { IGNORED } else { id })
    }

    /// The ids of `range` with their marks, clipped to the part.
    fn stored(&self, range: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let width = self.width.bytes();
        let end = range.end.min(self.len());
        let bytes = &self.bytes()[range.start.min(end) * width..end * width];
        bytes.chunks_exact(width).map(|b| match b {
            [a, b] => u32::from(u16::from_le_bytes([*a, *b])),
            [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]),
            _ => 0,
        })
    }

    /// Checks that every id is in the vocabulary.
    fn check(&self, path: &Path, vocabulary: usize) -> Result<(), Error> {
        let beyond = self.range(0..self.len()).enumerate().find(|&(_, id)| id as usize >= vocabulary);
        self.release();
        match beyond {
            None => Ok(()),
            Some((position, id)) => Err(Error::BeyondVocabulary { path: path.to_path_buf(), position, id, vocabulary }),
        }
    }

    /// Gives back the memory of pages that were read, which may be more than the computer has.
    fn release(&self) {
        if let Bytes::Mapped(mapped) = &self.bytes {
            mapped.release();
        }
    }

    fn digest(&self) -> String {
        if let Some(sha256) = &self.sha256 {
            return sha256.clone();
        }
        let mut hash = Sha256::new();
        let mut block = Vec::with_capacity(4 << 12);
        for start in (0..self.len()).step_by(1 << 12) {
            block.clear();
            block.extend(self.stored(start..start + (1 << 12)).flat_map(u32::to_le_bytes));
            hash.update(&block);
        }
        self.release();
        super::cache::hex(&hash.finalize())
    }
}

impl Ids {
    /// Opens the data file `path`, or the files of the folder `path` in the order of their names.
    ///
    /// Text is encoded once, and the ids are kept in [`Source::cache`]. Documents of a text are
    /// split by [`documents`](super::documents), and each row of JSON Lines or Parquet is one. Each
    /// begins with the tokenizer's begin id, or with its end id if it has no begin id. Rows without
    /// a text (`null`, empty) are left out, and so are broken ones up to [`Source::bad_rows`].
    ///
    /// # Errors
    /// Every [`Error`] except those of splits, windows and weights.
    pub fn open(path: impl AsRef<Path>, source: &Source<'_>) -> Result<Ids, Error> {
        Ids::open_with(path, source, &mut |_| {})
    }

    /// [`Ids::open`], which emits the progress of the encoding.
    ///
    /// # Errors
    /// As [`Ids::open`].
    pub fn open_with(
        path: impl AsRef<Path>,
        source: &Source<'_>,
        listen: &mut dyn FnMut(&DataEvent),
    ) -> Result<Ids, Error> {
        let path = path.as_ref();
        let shards = shards::list(path, source.format)?;
        let alone = shards.len() == 1;
        let cache = source.cache.map(IdsCache::at).or_else(IdsCache::user);
        let total = shards.iter().filter(|shard| !shard.format.is_ids()).map(|shard| shard.found.bytes).sum();
        let mut encoder = source.tokenizer.map(|tokenizer| Encoder {
            tokenizer,
            field: source.field,
            template: source.template,
            cache,
            total,
            done: 0,
            noted: false,
        });
        let (mut parts, mut bad_rows, mut broken) = (Vec::new(), source.bad_rows, None);
        for shard in &shards {
            let file = &shard.path;
            if shard.found.bytes == 0 {
                if alone {
                    return Err(Error::Empty(file.clone()));
                }
                listen(&DataEvent::Note(format!("{}: the file is empty and is left out", file.display())));
                continue;
            }
            let part = match (shard.format, &mut encoder) {
                (Format::U16 | Format::U32, _) if source.template.is_some() => {
                    return Err(Error::NoConversations(file.clone()));
                }
                (Format::U16, _) => Part::map(file, Width::Two)?,
                (Format::U32, _) => Part::map(file, Width::Four)?,
                (_, None) => return Err(Error::NoTokenizer(file.clone())),
                (_, Some(encoder)) => {
                    let mut bad = BadRows::new(file, bad_rows);
                    let part = Part::cached(encoder.open(shard, &mut bad, listen)?);
                    bad_rows -= bad.count;
                    if bad.count > 0 {
                        broken.get_or_insert_with(|| bad.error());
                        listen(&DataEvent::Note(bad.note()));
                    }
                    part
                }
            };
            let below = encoder.as_ref().is_some_and(|encoder| encoder.tokenizer.vocab_size() <= source.vocabulary);
            if shard.format.is_ids() || !below {
                part.check(file, source.vocabulary)?;
            }
            if part.len() > 0 {
                parts.push(part);
            }
        }
        let ids = Ids::of(parts);
        if ids.is_empty() { Err(broken.unwrap_or_else(|| Error::Empty(path.to_path_buf()))) } else { Ok(ids) }
    }

    fn of(parts: Vec<Part>) -> Ids {
        let mut starts = vec![0];
        let mut end = 0usize;
        starts.extend(parts.iter().map(|part| {
            end = end.saturating_add(part.len());
            end
        }));
        Ids { parts, starts }
    }

    /// The ids of `text`, encoded like a text file, in memory.
    pub fn from_text(text: &str, tokenizer: &Tokenizer) -> Ids {
        Ids::from_slice(&encode::text(text, tokenizer))
    }

    /// A copy of `ids` in memory.
    pub fn from_slice(ids: &[u32]) -> Ids {
        let width = if ids.iter().all(|&id| id <= u32::from(u16::MAX)) { Width::Two } else { Width::Four };
        Ids::of(vec![Part::held(width.pack(ids), width)])
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
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
        self.parts_of(range).flat_map(|(part, range)| part.range(range))
    }

    /// The parts that overlap with `range`, and the range inside of each.
    fn parts_of(&self, range: Range<usize>) -> impl Iterator<Item = (&Part, Range<usize>)> + '_ {
        let Range { start, end } = range;
        // The first start is 0, so there is a part at or before each position.
        let first = self.starts.partition_point(|at| *at <= start).saturating_sub(1).min(self.parts.len());
        let parts = self.parts[first..].iter().zip(&self.starts[first..]).take_while(move |(_, at)| **at < end);
        parts.map(move |(part, at)| (part, start.saturating_sub(*at)..end - at))
    }

    /// The window at `start`: `seq + 1` ids, of which the first `seq` are the inputs and the last
    /// `seq` the targets.
    ///
    /// # Errors
    /// [`Error::Changed`] if a file of ids was written to since it was opened.
    pub fn window(&self, start: usize, seq: usize) -> Result<Vec<u32>, Error> {
        let range = start..start.saturating_add(seq + 1);
        self.check_unchanged(range.clone())?;
        Ok(self.range(range).collect())
    }

    /// The inputs and targets of the window at `start`, `seq` of each. Targets that do not count
    /// are [`IGNORED`].
    ///
    /// # Errors
    /// As [`Ids::window`].
    pub fn sample(&self, start: usize, seq: usize) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let range = start..start.saturating_add(seq);
        let next = range.start.saturating_add(1)..range.end.saturating_add(1);
        self.check_unchanged(start..next.end)?;
        let targets = self.parts_of(next).flat_map(|(part, range)| part.targets(range));
        Ok((self.range(range).collect(), targets.collect()))
    }

    fn check_unchanged(&self, range: Range<usize>) -> Result<(), Error> {
        self.parts_of(range).filter_map(|(part, _)| part.watched.as_ref()).try_for_each(|watched| watched.check())
    }

    /// SHA-256 of the ids, independent of their width on disk; for the files of a folder, of the
    /// hashes of its files. A resumed run compares it to check that the data are the same.
    pub fn digest(&self) -> [u8; 32] {
        let digests: Vec<String> = self.parts.iter().map(Part::digest).collect();
        let mut digest = [0; 32];
        if let [one] = digests.as_slice() {
            for (byte, pair) in digest.iter_mut().zip(one.as_bytes().chunks_exact(2)) {
                *byte = std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()).unwrap_or(0);
            }
            return digest;
        }
        Sha256::digest(digests.concat()).into()
    }
}
