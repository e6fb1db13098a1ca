//! `ferrane check`: all that is wrong with programs, in their text.

use std::io::IsTerminal as _;

use ferrane::diag::Severity;
use serde_json::json;

use crate::args::{Check, Format};
use crate::error::{Error, Result};
use crate::out;
use crate::program::{self, Care};

/// Runs the command. The diagnostics are its result and go to standard output.
pub fn run(args: Check) -> Result<()> {
    let care = if args.no_weights { Care::Text } else { Care::Whole };
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (mut failed, mut told) = (false, Ok(()));
    for file in &args.files {
        let opened = match program::open(file, care) {
            Ok(opened) => opened,
            Err(error) if args.format == Format::Json => {
                failed = true;
                let file = file.display().to_string();
                out::line(json!({"file": file, "ok": false, "error": error.to_string()}))?;
                continue;
            }
            Err(error) => {
                // The other files are looked at all the same.
                let last = std::mem::replace(&mut told, Err(error));
                if let Err(error) = last {
                    out::note(format_args!("error: {error}"));
                }
                continue;
            }
        };
        failed |= opened.program.is_none();
        let count = |severity| opened.diagnostics.iter().filter(|d| d.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        if args.format == Format::Json {
            out::line(json!({
                "file": file.display().to_string(), "kind": program::name(opened.form).1, "ok": opened.program.is_some(),
                "errors": errors, "warnings": warnings, "left_out": opened.diagnostics.left_out(),
                "diagnostics": opened.diagnostics.json(&opened.source),
            }))?;
            continue;
        }
        out::print(opened.diagnostics.render(&opened.source, colour))?;
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let name = file.display();
        match &opened.program {
            Some(p) => {
                let ops: usize = p.functions.iter().map(|f| f.ops.len()).sum();
                let (functions, ops) = (plural(p.functions.len(), "function"), plural(ops, "op"));
                let doubts = if warnings > 0 { format!(", {}", plural(warnings, "warning")) } else { String::new() };
                out::line(format_args!("{name}: ok ({functions}, {ops}{doubts})"))?;
            }
            None => out::line(format_args!("{name}: {}, {}", plural(errors, "error"), plural(warnings, "warning")))?,
        }
    }
    told.and(if failed { Err(Error::told()) } else { Ok(()) })
}
