//! Documents of data files, read one after the other: a file is never in memory as a whole.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::shards::{Shard, failed};
use super::{Error, Format, SEPARATOR, jsonl};

/// Bytes of a document that are encoded at once. A longer one is encoded in pieces, which are cut
/// at line ends where there are any.
const PIECE: usize = 16 << 20;
/// Bytes that are read from a text at once.
const BLOCK: usize = 1 << 20;
/// Number of broken rows of a file whose reasons are kept.
const REASONS: usize = 3;

/// A document, or a piece of a long one.
#[derive(Debug, PartialEq)]
pub(super) struct DocumentPiece {
    pub text: String,
    /// Whether it begins a document.
    pub begins: bool,
    /// Number of its row, from 1; 0 for pieces of a text.
    pub row: u64,
}

/// What a row of JSON Lines is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rows<'a> {
    /// A document in this field, or this column.
    Field(&'a str),
    /// A conversation. The piece is the whole row, which is parsed when it is encoded.
    Conversation,
}

/// What yields the documents of a file in their order.
pub(super) trait Documents {
    /// The next piece; `None` at the end.
    fn next(&mut self, bad: &mut BadRows) -> Result<Option<DocumentPiece>, Error>;
    /// Bytes of the file that were read so far.
    fn read(&self) -> u64;
}

/// The documents of a shard; `None` for files of ids.
pub(super) fn open(shard: &Shard, rows: Rows<'_>) -> Result<Option<Box<dyn Documents>>, Error> {
    let file = || File::open(&shard.path).map_err(|e| failed(&shard.path, e));
    let field = match (rows, shard.format) {
        (Rows::Conversation, Format::Jsonl) => {
            return Ok(Some(Box::new(jsonl::Jsonl::new(&shard.path, file()?, None))));
        }
        (Rows::Conversation, _) => return Err(Error::NoConversations(shard.path.clone())),
        (Rows::Field(field), _) => field,
    };
    Ok(Some(match shard.format {
        Format::U16 | Format::U32 => return Ok(None),
        Format::Text | Format::Auto => Box::new(TextFile::new(&shard.path, file()?)),
        Format::Jsonl => Box::new(jsonl::Jsonl::new(&shard.path, file()?, Some(field))),
        #[cfg(feature = "parquet")]
        Format::Parquet => Box::new(super::parquet::Parquet::open(&shard.path, file()?, field)?),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(Error::NoParquet(shard.path.clone())),
    }))
}

/// The beginning of the documents of `shards`, at most `limit` bytes of them, joined by line ends.
pub(super) fn beginning(shards: &[Shard], field: &str, limit: usize) -> Result<String, Error> {
    let mut text = String::new();
    for shard in shards {
        let Some(mut documents) = open(shard, Rows::Field(field))? else { continue };
        // Broken rows are reported when the data are encoded.
        let mut bad = BadRows::new(&shard.path, u64::MAX);
        while text.len() < limit
            && let Some(piece) = documents.next(&mut bad)?
        {
            if !text.is_empty() && piece.begins {
                text.push('\n');
            }
            text.push_str(&piece.text);
        }
    }
    text.truncate(boundary(&text, limit));
    Ok(text)
}

/// The last boundary of a character at or before byte `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The rows of a file that have no usable text.
#[derive(Debug)]
pub(super) struct BadRows {
    path: PathBuf,
    limit: u64,
    pub count: u64,
    /// The first of them, as `line N: REASON`.
    pub reasons: Vec<String>,
}

impl BadRows {
    /// None so far, and at most `limit`.
    pub(super) fn new(path: &Path, limit: u64) -> BadRows {
        BadRows { path: path.to_path_buf(), limit, count: 0, reasons: Vec::new() }
    }

    /// Counts the row at `place`, which is `line N` or `row N`.
    pub(super) fn add(&mut self, place: &str, reason: &str) -> Result<(), Error> {
        self.count += 1;
        if self.reasons.len() < REASONS {
            self.reasons.push(format!("{place}: {reason}"));
        }
        self.check()
    }

    /// Refuses more rows than the limit.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.count <= self.limit { Ok(()) } else { Err(self.error()) }
    }

    /// The report of rows that are left out.
    pub(super) fn note(&self) -> String {
        let rows = if self.count == 1 { "row is" } else { "rows are" };
        let more = if self.count > self.reasons.len() as u64 { "; …" } else { "" };
        let (path, count, reasons) = (self.path.display(), self.count, self.reasons.join("; "));
        format!("{path}: {count} broken {rows} left out: {reasons}{more}")
    }

    pub(super) fn error(&self) -> Error {
        Error::BadRows { path: self.path.clone(), count: self.count, reasons: self.reasons.join("; ") }
    }
}

/// The documents of `text`: the parts between [`SEPARATOR`]s, without leading and trailing line
/// ends. Empty documents and a byte order mark at the start are left out.
pub fn documents(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.split(SEPARATOR).map(|document| document.trim_matches(ENDS)).filter(|document| !document.is_empty())
}

const ENDS: [char; 2] = ['\n', '\r'];

/// The documents of a text file, as [`documents`] finds them.
struct TextFile {
    path: PathBuf,
    file: File,
    /// Bytes of the file that were read.
    read: u64,
    /// Text that was read; the first `taken` bytes of it belong to pieces already.
    pending: String,
    taken: usize,
    /// The bytes of a character that are read so far.
    partial: Vec<u8>,
    ended: bool,
    /// Whether the next piece begins a document.
    begins: bool,
}

impl TextFile {
    fn new(path: &Path, file: File) -> TextFile {
        TextFile {
            path: path.to_path_buf(),
            file,
            read: 0,
            pending: String::new(),
            taken: 0,
            partial: Vec::new(),
            ended: false,
            begins: true,
        }
    }

    /// Reads a block into `pending`.
    fn fill(&mut self) -> Result<(), Error> {
        self.pending.drain(..std::mem::take(&mut self.taken));
        let (start, held) = (self.read, self.partial.len());
        let block = (&self.file).take(BLOCK as u64).read_to_end(&mut self.partial);
        let count = block.map_err(|e| failed(&self.path, e))?;
        self.read += count as u64;
        let bytes = std::mem::take(&mut self.partial);
        let not_utf8 = |at: usize| Error::NotUtf8 { path: self.path.clone(), offset: start as usize - held + at };
        match std::str::from_utf8(&bytes) {
            Ok(text) => self.pending.push_str(text),
            Err(e) if e.error_len().is_none() && count > 0 => {
                let (text, rest) = bytes.split_at(e.valid_up_to());
                self.pending.push_str(std::str::from_utf8(text).unwrap_or_default());
                self.partial = rest.to_vec();
            }
            Err(e) => return Err(not_utf8(e.valid_up_to())),
        }
        self.ended = count == 0;
        if start == 0 && self.pending.starts_with('\u{feff}') {
            self.pending.drain(..'\u{feff}'.len_utf8());
        }
        Ok(())
    }

    /// The text that belongs to no piece yet.
    fn rest(&self) -> &str {
        &self.pending[self.taken..]
    }

    /// Takes the first `end` bytes of the rest, and drops `skip` bytes after them. The piece ends
    /// its document if `ends` is set. `None` if it is empty.
    fn take(&mut self, end: usize, skip: usize, ends: bool) -> Option<DocumentPiece> {
        let mut text = &self.pending[self.taken..self.taken + end];
        self.taken += end + skip;
        if self.begins {
            text = text.trim_start_matches(ENDS);
        }
        if ends {
            text = text.trim_end_matches(ENDS);
        }
        let begins = self.begins;
        // Line ends at the start of a document may fill a whole piece.
        self.begins = ends || (begins && text.is_empty());
        (!text.is_empty()).then(|| DocumentPiece { text: text.to_string(), begins, row: 0 })
    }
}

impl Documents for TextFile {
    fn next(&mut self, _: &mut BadRows) -> Result<Option<DocumentPiece>, Error> {
        // No separator begins before this byte of the rest.
        let mut searched = 0;
        loop {
            let rest = self.rest();
            let piece = if let Some(at) = rest[searched..].find(SEPARATOR) {
                let end = searched + at;
                searched = 0;
                self.take(end, SEPARATOR.len(), true)
            } else if self.ended {
                if rest.is_empty() {
                    return Ok(None);
                }
                let end = rest.len();
                self.take(end, 0, true)
            } else if rest.len() > PIECE {
                let limit = boundary(rest, PIECE);
                let end = rest[..limit].rfind('\n').map_or(limit, |at| at + 1);
                searched = 0;
                self.take(end, 0, false)
            } else {
                // The separator may be cut by the end of what was read.
                searched = boundary(rest, rest.len().saturating_sub(SEPARATOR.len()));
                self.fill()?;
                None
            };
            if piece.is_some() {
                return Ok(piece);
            }
        }
    }

    fn read(&self) -> u64 {
        self.read
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use ferrane_llm::random::Rng;

    use super::*;

    /// The pieces of a text file with these bytes.
    fn pieces(bytes: &[u8]) -> Result<Vec<DocumentPiece>, Error> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let (mut text, mut bad) = (TextFile::new(Path::new("text.txt"), file), BadRows::new(Path::new("text.txt"), 0));
        let mut found = Vec::new();
        while let Some(piece) = text.next(&mut bad)? {
            found.push(piece);
        }
        assert_eq!(text.read(), bytes.len() as u64);
        Ok(found)
    }

    #[test]
    fn a_text_that_is_read_in_blocks_has_the_documents_of_the_whole() {
        let words = ["é", "<|endoftext|>", "\n", "<|endof", "text|>", "\r\n", "𝄞", " a word", "<", "|>", "\u{feff}"];
        let mut random = Rng::new(5);
        for size in [0, 1, 100, 3 * BLOCK] {
            let mut text = String::from("\u{feff}");
            while text.len() < size {
                let repeat = if random.below(50) == 0 { 3000 } else { 1 };
                text.push_str(&words[random.below(words.len() as u64) as usize].repeat(repeat));
            }
            let found = pieces(text.as_bytes()).unwrap();
            assert!(found.iter().all(|piece| piece.begins));
            let found: Vec<&str> = found.iter().map(|piece| piece.text.as_str()).collect();
            assert_eq!(found, documents(&text).collect::<Vec<_>>(), "{size} bytes");
        }
    }

    #[test]
    fn a_long_document_is_cut_at_line_ends() {
        let line = "é".repeat(500) + "\n";
        let text = line.repeat(2 * PIECE / line.len() + 5);
        let found = pieces(text.as_bytes()).unwrap();
        assert_eq!(found.iter().map(|piece| piece.begins).collect::<Vec<_>>(), [true, false, false]);
        assert!(found[..2].iter().all(|piece| piece.text.ends_with('\n') && piece.text.len() <= PIECE));
        let joined: String = found.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(joined, text.trim_end_matches('\n'));
        // Without line ends it is cut between characters, and line ends alone are no document.
        let found = pieces("é".repeat(PIECE / 2 + 9).as_bytes()).unwrap();
        assert_eq!(found.iter().map(|piece| piece.text.len()).collect::<Vec<_>>(), [PIECE, 18]);
        assert_eq!(pieces(&vec![b'\n'; 2 * PIECE + 9]).unwrap(), []);
    }

    #[test]
    fn the_first_byte_that_is_not_utf8_is_named_in_any_block() {
        for at in [0, 7, BLOCK - 1, BLOCK, 2 * BLOCK + 3] {
            let mut bytes = vec![b'a'; 2 * BLOCK + 9];
            bytes[at] = 0xff;
            assert!(matches!(pieces(&bytes), Err(Error::NotUtf8 { offset, .. }) if offset == at), "{at}");
        }
        let mut cut = vec![b'a'; BLOCK - 1];
        cut.extend([0xc3]);
        assert!(matches!(pieces(&cut), Err(Error::NotUtf8 { offset, .. }) if offset == BLOCK - 1));
    }
}
