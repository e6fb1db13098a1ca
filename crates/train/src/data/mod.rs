//! Training data: token ids and the windows drawn from them.
//!
//! [`Ids`] are a flat sequence of token ids, mapped from a file or encoded from text; [`Split`]
//! divides them into a training and a validation part; [`Sampler`] draws window positions, and
//! checkpoints store its state; [`Compaction`](ferrane_llm::compaction::Compaction) renumbers the
//! ids that occur; [`story`] generates the default corpus.
//!
//! Invariants: every id of an opened [`Ids`] is below the vocabulary's size; every position that a
//! split returns starts a whole window (sequence and one more id) inside its part; the draws depend
//! only on the seed and the number of draws.
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

/// Why data cannot be used. Every message states a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data file does not exist.
    #[error("{}: no such data file; give `data` a UTF-8 text, or token ids as .u16, .bin or .u32", .0.display())]
    Missing(PathBuf),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the data file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The file contains no ids or no text.
    #[error("{}: the data file is empty; give `data` a file with text or token ids", .0.display())]
    Empty(PathBuf),
    /// The data are text and there is no tokenizer.
    #[error("{}: text needs a tokenizer; give `tokenizer`, or token ids as .u16, .bin or .u32", .0.display())]
    NoTokenizer(PathBuf),
    /// The text is not UTF-8.
    #[error(
        "{}: not UTF-8 at byte {offset}; convert the text to UTF-8, or name the file .u16 or .u32 if these are token ids",
        path.display()
    )]
    NotUtf8 {
        /// Path of the data file.
        path: PathBuf,
        /// Offset in bytes of the first invalid byte.
        offset: usize,
    },
    /// The size of the file is not a multiple of the size of an id.
    #[error(
        "{}: {bytes} bytes are not a whole number of {width}-byte ids; the file is cut short, or its extension is wrong \
         (.u16 and .bin: 2 bytes an id, .u32: 4)",
        path.display()
    )]
    OddLength {
        /// Path of the data file.
        path: PathBuf,
        /// Size of the file in bytes.
        bytes: usize,
        /// Bytes of an id, 2 or 4.
        width: usize,
    },
    /// An id is outside the vocabulary.
    #[error(
        "{}: id {id} at position {position} is beyond the vocabulary of {vocabulary} entries; \
         use the tokenizer and the model that the ids were made for, or check the name's ending \
         (.u16 and .bin: 2 bytes an id, .u32: 4)",
        path.display()
    )]
    BeyondVocabulary {
        /// Path of the data file.
        path: PathBuf,
        /// Index of the first such id.
        position: usize,
        /// The id at that position.
        id: u32,
        /// Number of entries of the vocabulary.
        vocabulary: usize,
    },
    /// The data are too short for a training and a validation window.
    #[error(
        "{found} token ids are too few: windows of {seq}+1 ids for training and validation need {need}; \
         give more data or a smaller `seq`"
    )]
    TooShort {
        /// Number of ids of the data.
        found: usize,
        /// Smallest sufficient number of ids.
        need: usize,
        /// Number of tokens of a sequence.
        seq: usize,
    },
    /// The data are too short for an evaluation window.
    #[error("the data have {found} tokens, a window needs {need}; give more text or a smaller `seq`")]
    NoWindow {
        /// Number of ids of the data.
        found: usize,
        /// Number of ids of a window.
        need: usize,
    },
    /// The name of a data format is unknown.
    #[error("unknown data format `{0}`; the formats are auto, text, u16 and u32")]
    Format(String),
}

#[cfg(test)]
mod tests;
