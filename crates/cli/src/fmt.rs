//! `ferrane fmt`: MIL text in the printer's spelling.

use std::io::IsTerminal as _;
use std::path::Path;

use ferrane::diag::Source;
use ferrane::mil::{Dialect, format};

use crate::args::{DialectArg, Fmt};
use crate::error::{Error, Result};
use crate::{files, out};

impl From<DialectArg> for Dialect {
    fn from(dialect: DialectArg) -> Dialect {
        match dialect {
            DialectArg::Shorthand => Dialect::Shorthand,
            DialectArg::Verbose => Dialect::Verbose,
        }
    }
}

/// Runs the command. A file that cannot be formatted does not keep the others from it.
pub fn run(args: Fmt) -> Result<()> {
    let mut failed = false;
    for file in &args.files {
        match one(&args, file) {
            Ok(fine) => failed |= !fine,
            Err(error) if error.is_closed() => return Err(error),
            Err(error) => {
                failed = true;
                out::note(format_args!("error: {error}"));
            }
        }
    }
    if failed { Err(Error::told()) } else { Ok(()) }
}

/// False for a file that is not formatted and was to be checked only.
fn one(args: &Fmt, file: &Path) -> Result<bool> {
    let bytes = files::read_text(file)?;
    let name = file.display();
    let formatted = format(&bytes, args.dialect.map(Dialect::from)).map_err(|diagnostics| {
        let source = Source::new(name.to_string(), &bytes);
        let shown = diagnostics.render(&source, std::io::stderr().is_terminal());
        Error::new(format!("{name}: not formatted, because it is no MIL text:\n{}", shown.trim_end()))
    })?;
    let same = formatted.as_bytes() == bytes;
    if args.check {
        if !same {
            out::line(name)?;
        }
        return Ok(same);
    }
    if args.stdout || files::is_stdin(file) {
        out::print(formatted)?;
    } else if !same {
        files::replace(file, formatted.as_bytes())?;
    }
    Ok(true)
}
