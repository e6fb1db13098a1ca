//! Source text, spans, codes, findings and their rendering.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// A range of bytes in a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}
