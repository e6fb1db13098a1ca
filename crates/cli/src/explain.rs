//! `ferrane explain`: what a code means.

use ferrane::machine::explain;

use crate::args::Explain;
use crate::error::{Error, Result};
use crate::out;

/// Runs `ferrane explain`.
pub fn run(args: &Explain) -> Result<()> {
    match explain::find(&args.code) {
        Some(found) => out::print(found.text()),
        None => Err(Error::new(format!(
            "unknown code `{}`: codes are E0101 to E0499, `ferrane check` prints them; docs/errors.md lists them",
            args.code
        ))),
    }
}
