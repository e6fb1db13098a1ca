//! Source text, spans, codes, findings and their rendering.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod nearest;

pub use nearest::nearest;

use std::fmt;

/// A range of bytes in a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// The number of a diagnostic, shown as `E0103`. Ranges belong to crates: `mil` has 01xx (syntax), 02xx (names and types) and
/// 03xx (weights).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.0)
    }
}
