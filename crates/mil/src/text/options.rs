//! Options of the reader.

use crate::weights::Strictness;

/// What to do about a missing blob file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Missing {
    /// Report it as an error.
    #[default]
    Refuse,
    /// Keep the record's name without bytes, for formatting and checking.
    Keep,
}

/// Whether ops are checked against the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Types {
    /// An op that disagrees with its signature is an error.
    #[default]
    Check,
    /// The declared types are kept unchecked, for formatting: some published files have wrong
    /// types.
    Trust,
}

/// Options of [`parse_with`](super::parse_with).
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What to do about missing blob files.
    pub missing: Missing,
    /// How blob files are read.
    pub strictness: Strictness,
    /// Whether signatures and shapes of ops are checked.
    pub types: Types,
}
