//! The entry points of the reader.

use ferrane_diag::{Diagnostic, Diagnostics, Span};

use super::foreign;
use super::options::Options;
use super::reader::Reader;
use crate::codes;
use crate::program::Program;
use crate::weights::Weights;

/// The largest text in bytes: spans have 32 bits.
const MAX_TEXT: usize = 1 << 31;

/// The result of reading a text.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The program, if there was no error.
    pub program: Option<Program>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Diagnostics,
}

/// Reads a program. Blob files are looked up in `weights`, which the program's own store starts
/// from; they are read strictly.
///
/// # Errors
/// Everything that is wrong with the text, its types and its weights. Warnings are not errors;
/// [`parse_with`] returns them.
pub fn parse(text: impl AsRef<[u8]>, weights: &Weights) -> Result<Program, Diagnostics> {
    let parsed = parse_with(text, weights, Options::default());
    parsed.program.ok_or(parsed.diagnostics)
}

/// Reads a program with options, and returns warnings too.
pub fn parse_with(text: impl AsRef<[u8]>, weights: &Weights, options: Options) -> Parsed {
    let bytes = text.as_ref();
    let refuse = |d: Diagnostic| Parsed { program: None, diagnostics: d.into() };
    if let Some(d) = foreign::recognize(bytes) {
        return refuse(d);
    }
    if bytes.len() > MAX_TEXT {
        let message = format!("the text has {} bytes, more than {MAX_TEXT}", bytes.len());
        return refuse(Diagnostic::error(codes::TOO_LARGE, None, message));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let at = e.valid_up_to();
            return refuse(Diagnostic::error(codes::NOT_TEXT, Span::new(at, at + 1), "the text is not UTF-8"));
        }
    };
    let mut reader = Reader::new(text, weights, options);
    let program = reader.program();
    let mut diagnostics = reader.finish();
    let mut program = program.filter(|_| !diagnostics.has_errors());
    // The reader only accepts programs that hold the invariants; this checks it.
    if let Some(Err(e)) = program.as_ref().map(crate::verify::verify) {
        diagnostics.push(Diagnostic::error(e.code(), None, e.to_string()));
        program = None;
    }
    Parsed { program, diagnostics }
}
