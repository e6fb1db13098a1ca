//! The target of this crate's spans, which docs/logging.md lists.

/// Stays the same when code moves to another module, as a filter of the user names it.
pub(crate) const TARGET: &str = "ferrane::device";
