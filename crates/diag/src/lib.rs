//! Source text, spans, codes, diagnostics and their rendering.
//!
//! A reader of text collects [`Diagnostic`]s in a [`Diagnostics`] and continues, so that one pass
//! finds every fault. A diagnostic knows only byte positions; the [`Source`] turns them into
//! lines when they are shown. Codes are stable: tests and users refer to them, so a code is never
//! given a second meaning.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod base64;
mod diagnostic;
mod nearest;
mod printable;
mod render;
mod sarif;
mod source;
mod xml;

pub use base64::base64;
pub use diagnostic::{Code, Diagnostic, Diagnostics, Note, Severity, Suggestion};
pub use nearest::{closest, did_you_mean, nearest};
pub use printable::printable;
pub use sarif::{Kind, sarif};
pub use source::{Position, Source, Span};
pub use xml::escape_xml;
