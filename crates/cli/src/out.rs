//! Standard output and standard error, whose readers may close them.
//!
//! `println!` panics when a pipe is closed. Here that is an ordinary end: what is written to
//! standard output returns [`Error::closed`], which ends the command quietly and with success, as
//! `ferrane … | head -1` should.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

use crate::error::{Error, Result};

/// Prints a line of the result.
pub fn line(text: impl Display) -> Result<()> {
    print(format_args!("{text}\n"))
}

/// Prints a report as text, or as one line of JSON.
pub fn report(json: bool, report: &(impl Display + Serialize)) -> Result<()> {
    if json { self::json(report) } else { print(report) }
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).map_err(|e| Error::new(format!("JSON: {e}")))?)
}

/// Prints a part of the result and flushes it.
pub fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::closed(),
        _ => Error::new(format!("standard output: {error}")),
    })
}

/// A line on standard error. Returns false if its reader has gone away; other failures are ignored.
pub fn note(text: impl Display) -> bool {
    !writeln!(io::stderr(), "{text}").is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// A word as a shell wants it, for commands that are shown: quoted where it must be.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("runs/a-1"), "runs/a-1");
        assert_eq!(quoted("my runs"), "'my runs'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
