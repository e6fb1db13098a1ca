//! Training data: token ids and the windows drawn from them.
//!
//! [`Ids`] are one flat run of token ids, mapped from a file or made from text; [`Split`] cuts them
//! into training and validation parts; [`Sampler`] draws window positions and can be stored;
//! [`Compaction`](ferrane_llm::compaction::Compaction) renumbers the ids that occur; [`story`] is
//! the corpus for those who bring none.
//!
//! Invariants: every id of an opened [`Ids`] is below the vocabulary's size; every position that a
//! split gives has a whole window (sequence and one more id) inside its part; what is drawn depends
//! on the seed and the number of draws alone.
#![forbid(unsafe_code)]

mod ids;
mod sampler;
mod split;
pub mod story;
mod text;

use std::path::PathBuf;

pub use ids::{Format, Ids, Source};
pub use sampler::{Sampler, SamplerState};
pub use split::Split;
pub use text::{SEPARATOR, documents};

/// Why data cannot be trained on. Every message says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file.
    #[error("{}: no such data file; give `data` a UTF-8 text, or token ids as .u16, .bin or .u32", .0.display())]
    Missing(PathBuf),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file has no ids or no text.
    #[error("{}: the data file is empty; give `data` a file with text or token ids", .0.display())]
    Empty(PathBuf),
    /// Text was given without a tokenizer.
    #[error("{}: text needs a tokenizer; give `tokenizer`, or token ids as .u16, .bin or .u32", .0.display())]
    NoTokenizer(PathBuf),
    /// The text is not UTF-8.
    #[error(
        "{}: not UTF-8 at byte {offset}; convert the text to UTF-8, or name the file .u16 or .u32 if these are token ids",
        path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The first byte that belongs to no character.
        offset: usize,
    },
    /// The file is no whole number of ids.
    #[error(
        "{}: {bytes} bytes are no whole number of {width}-byte ids; the file is cut short, or its name's ending is wrong \
         (.u16 and .bin: 2 bytes an id, .u32: 4)",
        path.display()
    )]
    OddLength {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        bytes: usize,
        /// Bytes of an id.
        width: usize,
    },
    /// An id is not in the vocabulary.
    #[error(
        "{}: id {id} at position {position} is beyond the vocabulary of {vocabulary} entries; \
         use the tokenizer and the model that the ids were made for, or check the name's ending \
         (.u16 and .bin: 2 bytes an id, .u32: 4)",
        path.display()
    )]
    BeyondVocabulary {
        /// The file.
        path: PathBuf,
        /// The first such position, in ids.
        position: usize,
        /// The id there.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// There is no room for a training and a validation window.
    #[error(
        "{found} token ids are too few: windows of {seq}+1 ids for training and validation need {need}; \
         give more data or a smaller `seq`"
    )]
    TooShort {
        /// Ids that there are.
        found: usize,
        /// Ids that are needed.
        need: usize,
        /// Tokens of a sequence.
        seq: usize,
    },
    /// There is no room for a window to evaluate.
    #[error("the data have {found} tokens, a window needs {need}; give more text or a smaller `seq`")]
    NoWindow {
        /// Ids that there are.
        found: usize,
        /// Ids of a window.
        need: usize,
    },
    /// The name of a data format is unknown.
    #[error("unknown data format `{0}`; the formats are auto, text, u16 and u32")]
    Format(String),
}

#[cfg(test)]
mod tests;
