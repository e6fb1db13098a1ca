//! Text to token ids and back.
//!
//! One type, [`Tokenizer`], over three kinds of vocabulary, told apart by content:
//!
//! - llama2.c `tokenizer.bin` (training-dynamic §11),
//! - SentencePiece `.model` files: BPE and unigram, with and without byte fallback,
//! - byte-level BPE: `vocab.json` with `merges.txt`, or Hugging Face's `tokenizer.json`, through
//!   the crate `tokenizers`.
//!
//! Invariants: [`Tokenizer::encode`] adds no begin or end id; every id that it returns is below
//! [`Tokenizer::vocab_size`]; decoding what was encoded gives the text back, up to the
//! normalization that the vocabulary itself asks for (NFC, joined spaces, characters without a
//! piece). Opening a hostile file gives an [`Error`].
//!
//! The one decision: decoding knows no kinds. Every vocabulary is reduced to the bytes of its
//! pieces, so that streams behave the same everywhere (see [`Stream`]).
#![forbid(unsafe_code)]

mod byte_level;
mod charsmap;
mod llama2c;
mod merge;
mod sentencepiece;
mod stream;
#[cfg(test)]
mod tests;
mod trainer;

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::run_folder;

pub use byte_level::PreTokenizer;
pub use stream::Stream;

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The content is not a vocabulary that this crate reads, or is damaged.
    #[error("{0}")]
    Format(String),
    /// A [`Error::Format`] with the file that it was found in.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// No vocabulary was found under this name.
    #[error(
        "{}: no tokenizer found; expected a llama2.c tokenizer.bin, a SentencePiece .model, a tokenizer.json, or vocab.json with merges.txt",
        .0.display()
    )]
    NotFound(PathBuf),
}

/// How to open a vocabulary whose files leave something open.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// How byte-level BPE cuts text into words. `None`: from the files (see [`PreTokenizer`]).
    /// Other kinds ignore it.
    pub pre_tokenizer: Option<PreTokenizer>,
    /// The `tokenizer_config.json` with added tokens and the begin and end pieces. `None`: the one
    /// beside the vocabulary.
    pub config: Option<PathBuf>,
}

/// A vocabulary with its encoder and decoder.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    kind: TokenizerKind,
    pieces: Pieces,
    bos: Option<u32>,
    eos: Option<u32>,
    strips_space: bool,
    digest: [u8; 32],
}

#[derive(Debug, Clone)]
enum TokenizerKind {
    Llama2c(Box<llama2c::Llama2c>),
    SentencePiece(Box<sentencepiece::SentencePiece>),
    ByteLevel(Box<byte_level::ByteLevel>),
}

/// The bytes of every piece, one after the other.
#[derive(Debug, Clone, Default)]
struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        Some(&self.bytes[start..end])
    }
}

impl Tokenizer {
    /// Opens the vocabulary at `path`: a file of any kind, or a directory that holds one under its
    /// usual name.
    ///
    /// `PREFIX_vocab.json` and `PREFIX_merges.txt` (or `vocab.json` and `merges.txt`) belong
    /// together; either may be named. A `tokenizer_config.json` (with the same prefix) beside a
    /// byte-level vocabulary gives added tokens and the begin and end pieces.
    ///
    /// # Errors
    /// When the file cannot be read, is of no known kind, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer, Error> {
        Tokenizer::open_with(path, &Options::default())
    }

    /// Opens the tokenizer that lies with a model: in its folder, or for a training run's
    /// checkpoint (`step-000100`) in the run's folder above it. `None` if there is none.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn find(model: impl AsRef<Path>) -> Result<Option<Tokenizer>, Error> {
        let model = model.as_ref();
        let folder = if model.is_dir() { Some(model) } else { model.parent() };
        // What lies above other folders has nothing to do with them.
        let of_run = |f: &&Path| f.file_name().is_some_and(|n| run_folder::step_of(&n.to_string_lossy()).is_some());
        let above = folder.filter(of_run).and_then(Path::parent);
        for folder in [folder, above].into_iter().flatten() {
            for name in ["tokenizer.json", "tokenizer.bin", "tokenizer.model", "vocab.json"] {
                let path = folder.join(name);
                if path.is_file() {
                    // `vocab.json` is one file of several, which the folder stands for.
                    return Tokenizer::open(if name == "vocab.json" { folder } else { &path }).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Opens the vocabulary at `path` as [`Tokenizer::open`] does, with what `options` say instead
    /// of what the files say.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Tokenizer, Error> {
        let path = find(path.as_ref())?;
        let _span = tracing::info_span!(target: "ferrane::model", "open_tokenizer", path = %path.display()).entered();
        let bytes = load(&path)?;
        let opened = if llama2c::sniff(&bytes) {
            Tokenizer::from_llama2c(&bytes)
        } else if byte_level::sniff(&path, &bytes) {
            byte_level::ByteLevel::open(&path, &bytes, options).map(Tokenizer::from_byte_level)
        } else if sentencepiece::sniff(&bytes) {
            Tokenizer::from_sentencepiece(&bytes)
        } else {
            return Err(Error::NotFound(path));
        };
        opened.map_err(|e| match e {
            Error::Format(message) => Error::File { path, message },
            other => other,
        })
    }

    /// Reads a llama2.c `tokenizer.bin`.
    ///
    /// # Errors
    /// [`Error::Format`] when the bytes are not one.
    pub fn from_llama2c(bytes: &[u8]) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_vocabulary(llama2c::read(bytes)?))
    }

    fn from_vocabulary(vocabulary: Vec<(Vec<u8>, f32)>) -> Tokenizer {
        let digest = Sha256::digest(llama2c::write(&vocabulary)).into();
        let kind = llama2c::Llama2c::new(vocabulary);
        let (pieces, bos, eos) = kind.pieces();
        Tokenizer { kind: TokenizerKind::Llama2c(Box::new(kind)), pieces, bos, eos, strips_space: true, digest }
    }

    /// Reads a SentencePiece `.model`.
    ///
    /// # Errors
    /// [`Error::Format`] when the bytes are not one, or the model type is neither BPE nor unigram.
    pub fn from_sentencepiece(bytes: &[u8]) -> Result<Tokenizer, Error> {
        let kind = sentencepiece::SentencePiece::read(bytes)?;
        let (pieces, bos, eos) = kind.pieces();
        let strips_space = kind.strips_space();
        let digest = Sha256::digest(bytes).into();
        Ok(Tokenizer { kind: TokenizerKind::SentencePiece(Box::new(kind)), pieces, bos, eos, strips_space, digest })
    }

    fn from_byte_level(kind: byte_level::ByteLevel) -> Tokenizer {
        let (pieces, bos, eos) = kind.pieces();
        let (strips_space, digest) = (kind.strips_space(), kind.digest());
        Tokenizer { kind: TokenizerKind::ByteLevel(Box::new(kind)), pieces, bos, eos, strips_space, digest }
    }

    /// Trains a byte-pair vocabulary of `size` pieces on `text`, in the llama2.c form: `<unk>`,
    /// begin and end of sequence at 0, 1 and 2, the 256 bytes, the merges by falling count, and the
    /// characters of the text. Merges join letters, with one space in front, and nothing else. The
    /// same text gives the same vocabulary, everywhere and always: equal counts are decided by the
    /// pieces' bytes. Fewer pieces come back when the text has no more pairs.
    ///
    /// # Errors
    /// [`Error::Format`] when `size` has no room for the bytes and the text's characters.
    pub fn train(text: &str, size: usize) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_vocabulary(trainer::train(text, size)?))
    }

    /// The ids of `text`, without begin or end of sequence.
    ///
    /// llama2.c and SentencePiece vocabularies put a space in front if they say so. Byte-level
    /// vocabularies find their added tokens in the text, as Hugging Face does. A character without
    /// a piece, where there are no byte pieces, becomes the unknown piece; without that it is left
    /// out.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match &self.kind {
            TokenizerKind::Llama2c(kind) => kind.encode(text),
            TokenizerKind::SentencePiece(kind) => kind.encode(text),
            TokenizerKind::ByteLevel(kind) => kind.encode(text),
        }
    }

    /// The text of `ids`. Control pieces have none; the space that encoding puts in front of a text
    /// is taken away at the start and after every [`Tokenizer::bos`], as llama2.c does; bytes that
    /// are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for ids that come one at a time.
    pub fn stream(&self) -> Stream<'_> {
        Stream::new(self)
    }

    /// The bytes of the piece `id`, empty for control pieces; they need not be whole characters.
    /// `None` beyond the vocabulary.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id)
    }

    /// The number of ids: one more than the greatest.
    pub fn vocab_size(&self) -> usize {
        self.pieces.ends.len()
    }

    /// The id of a piece as the vocabulary spells it (`<0x0A>`, `▁the`, `Ġthe`, `<|im_end|>`).
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        match &self.kind {
            TokenizerKind::Llama2c(kind) => kind.id_of(piece),
            TokenizerKind::SentencePiece(kind) => kind.id_of(piece),
            TokenizerKind::ByteLevel(kind) => kind.id_of(piece),
        }
    }

    /// The id that begins a sequence, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The id that ends a sequence, if the vocabulary has one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// SHA-256 of what the vocabulary was made from. Equal digests mean equal ids.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The usual name of the file that [`Tokenizer::save`] writes.
    pub fn file_name(&self) -> &'static str {
        match &self.kind {
            TokenizerKind::Llama2c(_) => "tokenizer.bin",
            TokenizerKind::SentencePiece(_) => "tokenizer.model",
            TokenizerKind::ByteLevel(_) => "tokenizer.json",
        }
    }

    /// Writes the vocabulary to `path` in its own format. A byte-level vocabulary becomes a
    /// `tokenizer.json`, and its begin and end pieces go to the `tokenizer_config.json` beside it;
    /// such a file must be named `tokenizer.json` or `PREFIX_tokenizer.json`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        match &self.kind {
            TokenizerKind::Llama2c(kind) => store(path, &llama2c::write(&kind.vocabulary)),
            TokenizerKind::SentencePiece(kind) => store(path, kind.file()),
            TokenizerKind::ByteLevel(kind) => {
                let (vocabulary, config) = kind.files()?;
                store(path, vocabulary.as_bytes())?;
                store(&byte_level::sibling(path, "tokenizer_config.json"), config.as_bytes())
            }
        }
    }

    fn strips_space(&self) -> bool {
        self.strips_space
    }
}

/// The file that `path` means: itself, or the vocabulary in a directory.
fn find(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let names = ["tokenizer.json", "vocab.json", "tokenizer.model", "tokenizer.bin"];
    names
        .iter()
        .map(|name| path.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::NotFound(path.to_path_buf()))
}

fn load(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

fn store(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

/// The byte that a piece of the form `<0xNN>` stands for.
fn byte_piece(piece: &[u8]) -> Option<u8> {
    let [b'<', b'0', b'x', high, low, b'>'] = piece else { return None };
    let digit = |c: &u8| (*c as char).to_digit(16).map(|d| d as u8);
    Some(digit(high)? << 4 | digit(low)?)
}
