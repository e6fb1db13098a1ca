//! Training data: token ids and the windows drawn from them.
//!
//! A [`DataSet`] names a file or folder of texts, JSON Lines, Parquet or ids. [`Corpus`] opens one
//! or several: documents are read one after the other, encoded in parallel, and kept as [`Ids`] in
//! an [`IdsCache`], so a file is never in memory as a whole. [`Split`] divides ids into a training
//! and a validation part; [`Sampler`] draws the [`Position`] of each window, and checkpoints store
//! its state; [`Compaction`](ferrane_llm::compaction::Compaction) renumbers the ids that occur;
//! [`story`] generates the default corpus.
//!
//! Invariants: every id of an opened [`Ids`] is below the vocabulary's size; every position that a
//! split returns starts a whole window (sequence and one more id) inside its part; the draws depend
//! only on the seed, the number of draws, and the sizes and weights of the sets.
#![forbid(unsafe_code)]

mod cache;
mod conversation;
mod corpus;
mod documents;
mod encode;
mod ids;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;
mod sampler;
mod set;
mod shards;
mod split;
pub mod story;

use std::path::PathBuf;

pub use cache::{IdsCache, Usage, VARIABLE as CACHE_VARIABLE};
pub use conversation::MESSAGES_FIELD;
pub use corpus::{Corpus, Position, Windows};
pub use documents::documents;
pub use ids::{BAD_ROWS, FIELD, Format, Ids, Source};
pub use sampler::{Sampler, SamplerState};
pub use set::DataSet;
pub use split::Split;

/// The separator between two documents of a text, usually on a separate line.
pub const SEPARATOR: &str = "<|endoftext|>";

/// What is emitted while data are opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataEvent {
    /// A part of a set was encoded. Not emitted for data whose ids are in the cache.
    Encoding {
        /// Path of the file.
        path: PathBuf,
        /// Bytes of the set's files that are done.
        done: u64,
        /// Bytes of all files of the set that are not ids.
        total: u64,
    },
    /// Something that the user should know: broken rows that are left out, a cache that cannot be
    /// written to. Without a full stop.
    Note(String),
}

/// The beginning of the documents of some sets, at most `limit` bytes, for training a vocabulary on
/// it. `None` if a set has files of ids, whose vocabulary exists already.
///
/// # Errors
/// As [`Ids::open`].
pub fn beginning(sets: &[DataSet], field: &str, limit: usize) -> Result<Option<String>, Error> {
    let mut text = String::new();
    for (index, set) in sets.iter().enumerate() {
        let shards = shards::list(&set.path, Format::Auto)?;
        if shards.iter().any(|shard| shard.format.is_ids()) {
            return Ok(None);
        }
        // Each set gets an equal share of what earlier ones left.
        let share = (limit - text.len()) / (sets.len() - index);
        let part = documents::beginning(&shards, field, share.saturating_sub(usize::from(!text.is_empty())))?;
        if !text.is_empty() && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(&part);
    }
    Ok(Some(text))
}

/// Why data cannot be used. Every message states a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data file does not exist.
    #[error("{}: no such data file; give `data` a UTF-8 text, .jsonl, .parquet, token ids as .u16, .bin or .u32, or a folder of such files", .0.display())]
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
    #[error("unknown data format `{0}`; the formats are auto, text, jsonl, parquet, u16 and u32")]
    Format(String),
    /// No set of data was given.
    #[error("there are no data; give `data` a file or folder")]
    NoSet,
    /// The weight of a set is not a positive number.
    #[error("{}: the weight {weight} must be finite and positive; leave a set out instead of giving it 0", path.display())]
    Weight {
        /// Path of the set.
        path: PathBuf,
        /// The given weight, which may be NaN.
        weight: f64,
    },
    /// The data are conversations, and this file is not JSON Lines.
    #[error("{}: conversations are read from JSON Lines; give `data` files that end in .jsonl or .ndjson", .0.display())]
    NoConversations(PathBuf),
    /// Many windows in a row have no token that counts.
    #[error("{draws} windows in a row have no token of an assistant; give more data with answers, or a larger `seq`")]
    NothingCounts {
        /// Number of windows drawn.
        draws: usize,
    },
    /// Some sets have a weight and this one has none.
    #[error("{}: this set has no weight and others have; give each set a weight (PATH=WEIGHT) or none", .0.display())]
    NoWeight(PathBuf),
    /// A set of several cannot be used.
    #[error("{}: {source}", path.display())]
    InSet {
        /// Path of the set.
        path: PathBuf,
        /// Why this set cannot be used.
        source: Box<Error>,
    },
    /// A folder has no data files.
    #[error(
        "{}: the folder has no data files; they end in .txt, .text, .md, .jsonl, .ndjson, .parquet, .u16, .bin or .u32, and \
         folders in it are not searched",
        .0.display()
    )]
    NoShards(PathBuf),
    /// Too many rows of a file are broken.
    #[error(
        "{}: {count} broken rows are more than `bad_rows` allows: {reasons}; correct the file, give `data_field` the \
         name of the field with the text, or give a larger `bad_rows`",
        path.display()
    )]
    BadRows {
        /// Path of the file.
        path: PathBuf,
        /// Number of broken rows so far.
        count: u64,
        /// Place and reason of the first ones.
        reasons: String,
    },
    /// A Parquet file has no column of the name.
    #[error("{}: there is no column `{column}`; give `data_field` one of {found}", path.display())]
    NoColumn {
        /// Path of the file.
        path: PathBuf,
        /// The name of the column.
        column: String,
        /// The columns that there are.
        found: String,
    },
    /// A column of a Parquet file does not hold strings.
    #[error("{}: the column `{column}` holds {kind}, not strings; give `data_field` the name of a column with text", path.display())]
    NotText {
        /// Path of the file.
        path: PathBuf,
        /// The name of the column.
        column: String,
        /// The type that it holds.
        kind: String,
    },
    /// A Parquet file is compressed in a way that this build does not read.
    #[error(
        "{}: the column is compressed with {codec}, which this build does not read; write the file with SNAPPY, GZIP or LZ4_RAW{}",
        path.display(),
        if codec == "ZSTD" { ", or build with the feature `zstd`" } else { "" }
    )]
    Compression {
        /// Path of the file.
        path: PathBuf,
        /// Name of the compression.
        codec: String,
    },
    /// A Parquet file, and this build does not read them.
    #[error("{}: this build does not read Parquet; build with the feature `parquet`, or convert the file to .jsonl", .0.display())]
    NoParquet(PathBuf),
    /// A Parquet file is damaged.
    #[error("{}: not a valid Parquet file: {reason}; get or write the file again", path.display())]
    Parquet {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the Parquet library reports it.
        reason: String,
    },
    /// A file was written to while it was being used.
    #[error(
        "{}: the file changed while it was being used; restore it, then continue from the last checkpoint or begin again",
        .0.display()
    )]
    Changed(PathBuf),
    /// Ids cannot be written to the cache, or the cache cannot be cleared.
    #[error(
        "{}: the cache of ids cannot be used: {source}; free some space, or give `data_cache` another folder",
        folder.display()
    )]
    Cache {
        /// Path of the cache's folder.
        folder: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests;
