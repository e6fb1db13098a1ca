//! `ferrane disasm` and `ferrane assemble`: compiled programs as words, text and pictures, and text
//! as a compiled program.

use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;

use ferrane::diag::Source;
use ferrane::hwx::bundle::{FileKind, recognize};
use ferrane::hwx::{Hwx, describe, text};
use serde_json::json;

use crate::args::{Assemble, Disasm};
use crate::error::{Error, Result};
use crate::{files, out};

/// Reads a compiled program; around one for the Linux driver a container is made.
pub fn load(path: &Path) -> Result<Hwx> {
    container(path, &files::read(path)?)
}

/// True for a program for the Linux driver.
pub fn is_anec(bytes: &[u8]) -> bool {
    recognize(bytes, bytes.len() as u64) == Some(FileKind::Anec)
}

/// [`load`] of a file's bytes.
pub fn container(path: &Path, bytes: &[u8]) -> Result<Hwx> {
    ferrane::read_compiled(bytes).map_err(|e| files::failed(path, e))
}

/// Writes a file that is not there yet, or may be replaced.
pub fn write(path: &Path, force: bool, bytes: &[u8]) -> Result<()> {
    if path.exists() && !force {
        return Err(files::failed(path, "exists; --force replaces it"));
    }
    files::replace(path, bytes)
}

/// Runs `disasm`.
pub fn disassemble(args: Disasm) -> Result<()> {
    if let Some(other) = &args.diff {
        return match compare(&args, other) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::told()),
            Err(error) => Err(error.trouble()),
        };
    }
    let hwx = load(&args.file)?;
    if let Some(picture) = &args.svg {
        return fs::write(picture, describe::svg(&hwx)).map_err(|e| files::failed(picture, e));
    }
    if args.json {
        return out::line(describe::json(&hwx));
    }
    out::print(match (args.text, args.dot) {
        (true, _) => text::print(&hwx),
        (_, true) => describe::dot(&hwx),
        _ => describe::prose(&hwx, describe::Detail { registers: args.registers }),
    })
}

/// True for files that say the same.
fn compare(args: &Disasm, other: &Path) -> Result<bool> {
    let found = describe::diff(&load(&args.file)?, &load(other)?);
    if args.json {
        out::line(json!({
            "first": args.file.display().to_string(), "second": other.display().to_string(),
            "same": found.is_empty(), "differences": found,
        }))?;
    } else {
        for difference in &found {
            out::line(difference)?;
        }
    }
    Ok(found.is_empty())
}

/// Runs `assemble`.
pub fn assemble(args: Assemble) -> Result<()> {
    let (bytes, name) = (files::read_text(&args.text)?, args.text.display());
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        files::failed(
            &args.text,
            format_args!("no text: {e}; a compiled program becomes one by `ferrane disasm --text`"),
        )
    })?;
    let hwx = text::assemble(text).map_err(|diagnostics| {
        let shown = diagnostics.render(&Source::new(name.to_string(), text), std::io::stderr().is_terminal());
        Error::new(format!("{name}: the text of a compiled program is not right:\n{}", shown.trim_end()))
    })?;
    let made = hwx.write();
    write(&args.output, args.force, &made)?;
    out::line(format_args!("{}: {} bytes from {name}", args.output.display(), made.len()))
}
