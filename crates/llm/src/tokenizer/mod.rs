//! Text to token ids and back.
//!
//! One type, [`Tokenizer`], for three kinds of vocabulary, which are recognized by content. The
//! last two also occur in the metadata of GGUF files:
//!
//! - llama2.c `tokenizer.bin` (training-dynamic §11),
//! - SentencePiece `.model` files: BPE and unigram, with and without byte fallback,
//! - byte-level BPE: `vocab.json` with `merges.txt`, or Hugging Face's `tokenizer.json`, through
//!   the crate `tokenizers`.
//!
//! Invariants: [`Tokenizer::encode`] adds no begin or end id; every id that it returns is below
//! [`Tokenizer::vocab_size`]; decoding an encoded text returns the text, up to the normalization of
//! the vocabulary (NFC, joined spaces, characters without a piece). Opening a malformed file
//! returns an [`Error`].
//!
//! Decoding does not depend on the kind: every vocabulary is reduced to the bytes of its pieces, so
//! all streams behave the same (see [`Stream`]).
#![forbid(unsafe_code)]

mod byte_level;
mod charsmap;
mod controls;
mod gguf;
mod llama2c;
mod merge;
mod scored;
mod sentencepiece;
mod stream;
#[cfg(test)]
mod tests;
mod trainer;

use std::path::{Path, PathBuf};

use ferrane_gguf::MetadataValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::run_folder;

pub use byte_level::PreTokenizer;
pub use stream::Stream;

/// Why a vocabulary cannot be opened, trained or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The content is not a vocabulary that this crate reads, or is damaged.
    #[error("{0}")]
    Format(String),
    /// An [`Error::Format`] with the path of its file.
    #[error("{}: {message}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The message of the [`Error::Format`].
        message: String,
    },
    /// There is no vocabulary at this path.
    #[error(
        "{}: no tokenizer found; expected a llama2.c tokenizer.bin, a SentencePiece .model, a tokenizer.json, or vocab.json with merges.txt, or a GGUF file that has one",
        .0.display()
    )]
    NotFound(PathBuf),
}

/// Options of [`Tokenizer::open_with`], for settings that the files do not specify.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// How byte-level BPE splits text into words. `None`: determined from the files (see
    /// [`PreTokenizer`]). Other kinds ignore it.
    pub pre_tokenizer: Option<PreTokenizer>,
    /// The `tokenizer_config.json` with added tokens and the begin and end pieces. `None`: the one
    /// next to the vocabulary, if any.
    pub config: Option<PathBuf>,
}

/// A vocabulary as `transformers` reads it.
#[derive(Debug, Clone)]
pub struct HfTokenizer {
    /// The text of `tokenizer.json`.
    pub json: String,
    /// The fields of `tokenizer_config.json`.
    pub config: Map<String, Value>,
    /// Where the ids of a text may differ, if anywhere.
    pub note: Option<String>,
}

/// A vocabulary with its encoder and decoder.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    kind: TokenizerKind,
    pieces: Pieces,
    bos: Option<u32>,
    eos: Option<u32>,
    /// The ids that precede a text.
    begin: Vec<u32>,
    /// The ids that end a text or a turn, `eos` first.
    ends: Vec<u32>,
    /// Names of the tokens that are never text, none of them empty.
    controls: Vec<String>,
    strips_space: bool,
    digest: [u8; 32],
}

/// What every kind has.
struct TokenizerParts {
    pieces: Pieces,
    bos: Option<u32>,
    eos: Option<u32>,
    begin: Vec<u32>,
    controls: Vec<String>,
    strips_space: bool,
    digest: [u8; 32],
}

#[derive(Debug, Clone)]
enum TokenizerKind {
    Llama2c(Box<llama2c::Llama2c>),
    SentencePiece(Box<sentencepiece::SentencePiece>),
    ByteLevel(Box<byte_level::ByteLevel>),
}

/// The bytes of all pieces, concatenated, with the end of each.
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
    /// Opens the vocabulary at `path`: a file of any kind, or a directory that contains one under
    /// its usual name.
    ///
    /// `PREFIX_vocab.json` and `PREFIX_merges.txt` (or `vocab.json` and `merges.txt`) belong
    /// together; either may be named. A `tokenizer_config.json` (with the same prefix) next to a
    /// byte-level vocabulary provides added tokens and the begin and end pieces.
    ///
    /// # Errors
    /// If the file cannot be read, is not of a known kind, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer, Error> {
        Tokenizer::open_with(path, &Options::default())
    }

    /// Opens the tokenizer of a model: in the metadata of a GGUF file, in the model's folder, or
    /// for a training run's checkpoint (`step-000100`) in the run's folder. `None` if there is
    /// none.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn find(model: impl AsRef<Path>) -> Result<Option<Tokenizer>, Error> {
        let model = model.as_ref();
        if model.is_file()
            && let Some(tokenizer) = in_gguf(model, &Options::default())?
        {
            return Ok(Some(tokenizer));
        }
        let folder = if model.is_dir() { Some(model) } else { model.parent() };
        // Only for a checkpoint does the search include the parent folder.
        let of_run = |f: &&Path| f.file_name().is_some_and(|n| run_folder::step_of(&n.to_string_lossy()).is_some());
        let above = folder.filter(of_run).and_then(Path::parent);
        for folder in [folder, above].into_iter().flatten() {
            for name in ["tokenizer.json", "tokenizer.bin", "tokenizer.model", "vocab.json"] {
                let path = folder.join(name);
                if path.is_file() {
                    // `vocab.json` is one of several files, so the folder is opened.
                    return Tokenizer::open(if name == "vocab.json" { folder } else { &path }).map(Some);
                }
            }
        }
        match crate::weights::gguf::only_file(model) {
            Some(file) => in_gguf(&file, &Options::default()),
            None => Ok(None),
        }
    }

    /// Like [`Tokenizer::open`]; `options` override the files.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Tokenizer, Error> {
        let path = find(path.as_ref())?;
        let _span = tracing::info_span!(target: "ferrane::model", "open_tokenizer", path = %path.display()).entered();
        if let Some(tokenizer) = in_gguf(&path, options)? {
            return Ok(tokenizer);
        }
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
    /// [`Error::Format`] if the bytes are malformed.
    pub fn from_llama2c(bytes: &[u8]) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_vocabulary(llama2c::read(bytes)?))
    }

    fn from_vocabulary(vocabulary: Vec<(Vec<u8>, f32)>) -> Tokenizer {
        let digest = Sha256::digest(llama2c::write(&vocabulary)).into();
        let kind = llama2c::Llama2c::new(vocabulary);
        let (pieces, bos, eos) = kind.pieces();
        let (begin, controls) = (bos.into_iter().collect(), Vec::new());
        let parts = TokenizerParts { pieces, bos, eos, begin, controls, strips_space: true, digest };
        Tokenizer::of(TokenizerKind::Llama2c(Box::new(kind)), parts)
    }

    /// Reads a SentencePiece `.model`.
    ///
    /// # Errors
    /// [`Error::Format`] if the bytes are malformed, or the model type is neither BPE nor unigram.
    pub fn from_sentencepiece(bytes: &[u8]) -> Result<Tokenizer, Error> {
        let kind = sentencepiece::SentencePiece::read(bytes)?;
        let (pieces, bos, eos) = kind.pieces();
        let strips_space = kind.strips_space();
        let digest = Sha256::digest(bytes).into();
        let (begin, controls) = (bos.into_iter().collect(), kind.controls());
        let parts = TokenizerParts { pieces, bos, eos, begin, controls, strips_space, digest };
        Ok(Tokenizer::of(TokenizerKind::SentencePiece(Box::new(kind)), parts))
    }

    fn from_byte_level(kind: byte_level::ByteLevel) -> Tokenizer {
        let (pieces, bos, eos) = kind.pieces();
        let (strips_space, digest) = (kind.strips_space(), kind.digest());
        let (begin, controls) = (kind.begin().to_vec(), kind.controls());
        let parts = TokenizerParts { pieces, bos, eos, begin, controls, strips_space, digest };
        Tokenizer::of(TokenizerKind::ByteLevel(Box::new(kind)), parts)
    }

    fn of(kind: TokenizerKind, parts: TokenizerParts) -> Tokenizer {
        let TokenizerParts { pieces, bos, eos, begin, controls, strips_space, digest } = parts;
        Tokenizer { kind, pieces, bos, eos, begin, ends: eos.into_iter().collect(), controls, strips_space, digest }
    }

    /// The vocabulary in the metadata of a GGUF file. Options that the file states are overridden
    /// by `options`.
    ///
    /// # Errors
    /// [`Error::File`] if the file has none, or one of a kind or with a pre-tokenizer that is not
    /// supported.
    pub fn from_gguf(file: &ferrane_gguf::File, options: &Options) -> Result<Tokenizer, Error> {
        gguf::read(file, options).map_err(|e| match e {
            Error::Format(message) => Error::File { path: file.path().to_path_buf(), message },
            other => other,
        })
    }

    /// Trains a byte-pair vocabulary of `size` pieces on `text`, in the llama2.c form: `<unk>`,
    /// begin and end of sequence at 0, 1 and 2, the 256 bytes, the merges by descending count, and
    /// the characters of the text. Merges join only letters, with at most one leading space. The
    /// result is deterministic on every platform: ties of counts are broken by the pieces' bytes.
    /// The vocabulary is smaller than `size` if the text has too few pairs.
    ///
    /// # Errors
    /// [`Error::Format`] if `size` is too small for the bytes and the text's characters.
    pub fn train(text: &str, size: usize) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::from_vocabulary(trainer::train(text, size)?))
    }

    /// Encodes `text`, without begin or end of sequence.
    ///
    /// llama2.c vocabularies, and SentencePiece ones with that setting, prepend a space. Byte-level
    /// vocabularies recognize their added tokens in the text, as Hugging Face does. A character
    /// without a piece becomes byte pieces; if there are none, the unknown piece; and without that
    /// it is dropped.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match &self.kind {
            TokenizerKind::Llama2c(kind) => kind.encode(text),
            TokenizerKind::SentencePiece(kind) => kind.encode(text),
            TokenizerKind::ByteLevel(kind) => kind.encode(text),
        }
    }

    /// Decodes `ids`. Control pieces have no text; the space that encoding prepends is removed at
    /// the start and after every [`Tokenizer::bos`], as in llama2.c; bytes that are not UTF-8
    /// become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder that takes ids one at a time.
    pub fn stream(&self) -> Stream<'_> {
        Stream::new(self)
    }

    /// The bytes of the piece `id`, which need not be whole characters; empty for control pieces.
    /// `None` outside the vocabulary.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id)
    }

    /// The number of ids: the highest id plus 1.
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

    /// The ids that precede a text: what the post-processor of a `tokenizer.json` puts there, or
    /// what `add_bos_token` of a `tokenizer_config.json` or a GGUF file says; otherwise the id that
    /// begins a sequence, if there is one.
    pub fn begin(&self) -> &[u32] {
        &self.begin
    }

    /// The id that ends a sequence, if the vocabulary has one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The ids that end a text or, in a chat, a turn: [`Tokenizer::eos`] and those that a GGUF file
    /// names.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The ids that end a generated text: [`Tokenizer::bos`], which begins another one, and
    /// [`Tokenizer::ends`].
    pub fn stop_ids(&self) -> Vec<u32> {
        self.bos.into_iter().chain(self.ends.iter().copied()).collect()
    }

    /// SHA-256 of the data that the vocabulary was built from. Equal digests mean equal ids.
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

    /// Writes the vocabulary to `path` in its own format. A byte-level vocabulary is written as a
    /// `tokenizer.json`, with its begin and end pieces in a `tokenizer_config.json` next to it; the
    /// file must be named `tokenizer.json` or `PREFIX_tokenizer.json`.
    ///
    /// # Errors
    /// If a file cannot be written.
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

    /// The files of Hugging Face for this vocabulary. They encode as this tokenizer does, except
    /// that a text may name control tokens, and that `▁` in it is a space for vocabularies that
    /// spell spaces so.
    ///
    /// # Errors
    /// [`Error::Format`] with the property of the vocabulary that a `tokenizer.json` lacks.
    pub fn to_hf(&self) -> Result<HfTokenizer, Error> {
        match &self.kind {
            TokenizerKind::Llama2c(kind) => kind.scored()?.check()?.to_hf(self.text_begin()),
            TokenizerKind::SentencePiece(kind) => kind.scored()?.check()?.to_hf(self.text_begin()),
            TokenizerKind::ByteLevel(kind) => kind.to_hf(self.text_begin()),
        }
    }

    /// The metadata of a GGUF file for this vocabulary, in a model of `vocab` ids: keys below
    /// `tokenizer.ggml`. `ends` are the ids that end a text, of which the file holds up to three.
    ///
    /// # Errors
    /// [`Error::Format`] with the property of the vocabulary that the file lacks.
    pub fn to_gguf(&self, vocab: usize, ends: &[u32]) -> Result<Vec<(String, MetadataValue)>, Error> {
        let mut list = match &self.kind {
            TokenizerKind::Llama2c(kind) => kind.scored()?.check()?.to_gguf(vocab)?,
            TokenizerKind::SentencePiece(kind) => kind.scored()?.check()?.to_gguf(vocab)?,
            TokenizerKind::ByteLevel(kind) => kind.to_gguf(vocab)?,
        };
        let adds = match self.begin[..] {
            [] => false,
            [one] if Some(one) == self.bos => true,
            _ => {
                return Err(Error::Format(format!(
                    "texts begin with the ids {:?}, not with the begin piece",
                    self.begin
                )));
            }
        };
        list.extend(self.bos.map(|id| scored::key("bos_token_id", id)));
        list.extend(self.eos.map(|id| scored::key("eos_token_id", id)));
        let others = ends.iter().filter(|id| Some(**id) != self.eos);
        let names = ["eot_token_id", "eom_token_id"];
        list.extend(names.into_iter().zip(others).map(|(name, id)| scored::key(name, *id)));
        list.push(scored::key("add_bos_token", adds));
        Ok(list)
    }

    /// The ids that end a text for a program that generates until one of them. Texts of llama2.c
    /// end where the next one begins.
    pub(crate) fn text_ends(&self) -> Vec<u32> {
        match &self.kind {
            TokenizerKind::Llama2c(_) => self.ends.iter().copied().chain(self.bos).collect(),
            _ => self.ends.clone(),
        }
    }

    fn text_begin(&self) -> scored::TextEnds<'_> {
        scored::TextEnds { bos: self.bos, eos: self.eos, begin: &self.begin }
    }

    fn strips_space(&self) -> bool {
        self.strips_space
    }
}

/// Names for the ids from `from` up to `vocab`, which the vocabulary lacks and the model has.
fn padding(from: usize, vocab: usize) -> impl Iterator<Item = String> {
    (from..vocab).map(|id| format!("[PAD{id}]"))
}

/// The vocabulary file at `path`: the file itself, or the one in a directory.
fn find(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let names = ["tokenizer.json", "vocab.json", "tokenizer.model", "tokenizer.bin"];
    names
        .iter()
        .map(|name| path.join(name))
        .find(|file| file.is_file())
        .or_else(|| crate::weights::gguf::only_file(path))
        .ok_or_else(|| Error::NotFound(path.to_path_buf()))
}

/// The vocabulary of a GGUF file; `None` for a file of another kind, or one without vocabulary.
fn in_gguf(path: &Path, options: &Options) -> Result<Option<Tokenizer>, Error> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    if !ferrane_gguf::File::recognize(path).map_err(io)? {
        return Ok(None);
    }
    let file = ferrane_gguf::File::open(path).map_err(|e| Error::Format(e.to_string()))?;
    gguf::has_vocabulary(&file).then(|| Tokenizer::from_gguf(&file, options)).transpose()
}

fn load(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

fn store(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

/// The byte that a piece of the form `<0xNN>` represents; `None` for other pieces.
fn byte_piece(piece: &[u8]) -> Option<u8> {
    let [b'<', b'0', b'x', high, low, b'>'] = piece else { return None };
    let digit = |c: &u8| (*c as char).to_digit(16).map(|d| d as u8);
    Some(digit(high)? << 4 | digit(low)?)
}
