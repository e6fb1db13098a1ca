//! The input of a compile: as text and files for the framework, and as a parsed program.

use std::borrow::Cow;

use ferrane_device::backend::ProgramSource;
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::text::{Missing, Options};
use ferrane_mil::weights::{Bytes, Strictness};
use ferrane_mil::{Program, parse_with, print};

fn neither() -> Error {
    Error::new(ErrorKind::Unsupported, "the engine's paths take programs and text, nothing compiled")
}

/// Blob files by path.
type Files = Vec<(String, Bytes)>;

/// The text and the blob files. Text is passed on unchanged.
pub(crate) fn parts(source: &ProgramSource<'_>) -> Result<(Vec<u8>, Files)> {
    match source {
        ProgramSource::Program(program) => Ok((print(program).into_bytes(), program.weights.files())),
        ProgramSource::Text { mil, weights } => Ok((mil.to_vec(), weights.files())),
        _ => Err(neither()),
    }
}

/// The parsed program. Missing weights are ignored here: the framework reports them.
pub(crate) fn program<'a>(source: &ProgramSource<'a>, label: &str) -> Result<Cow<'a, Program>> {
    match source {
        ProgramSource::Program(program) => Ok(Cow::Borrowed(*program)),
        ProgramSource::Text { mil, weights } => {
            let reading = Options { missing: Missing::Keep, strictness: Strictness::Lenient, ..Options::default() };
            let parsed = parse_with(mil, weights, reading);
            let why = || parsed.diagnostics.iter().next().map(|d| d.message.clone()).unwrap_or_default();
            let refused = || Error::new(ErrorKind::InvalidProgram, format!("{label}: {}", why()));
            Ok(Cow::Owned(parsed.program.as_ref().ok_or_else(refused)?.clone()))
        }
        _ => Err(neither()),
    }
}
