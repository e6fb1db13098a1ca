//! How a text is read.

use crate::weights::Strictness;

/// What to do about a blob file that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Missing {
    /// An error.
    #[default]
    Refuse,
    /// The program gets the record's name without bytes: for formatting and checking.
    Keep,
}

/// What to do about ops that disagree with the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Types {
    /// Errors.
    #[default]
    Check,
    /// Nothing: the declared types stand. For formatting; published files exist whose types are
    /// wrong.
    Trust,
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Blob files that are not there.
    pub missing: Missing,
    /// How blob files are read.
    pub strictness: Strictness,
    /// Signatures and shapes of ops.
    pub types: Types,
}
