//! `ferrane explain`: the long answer to a code.

use ferrane::machine::explain;

use crate::args::Explain;
use crate::error::{Error, Result};
use crate::out;

/// Runs the command.
pub fn run(args: &Explain) -> Result<()> {
    match explain::find(&args.code) {
        Some(found) => out::print(found.text()),
        None => Err(Error::new(format!(
            "no code `{}`: codes are E0101 to E0499, `ferrane check` tells them; docs/errors.md lists them",
            args.code
        ))),
    }
}
