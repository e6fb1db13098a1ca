//! Programs named on the command line.

use std::io::{ErrorKind, IsTerminal as _};
use std::path::Path;

use ferrane::diag::did_you_mean;
use ferrane::mil::package::{Description, Form, PackageError, open_checked, read_checked};
use ferrane::mil::{Function, Program};

pub use ferrane::mil::package::{Care, Checked};

use crate::error::{Error, Result};
use crate::files;

/// Opens a file, or standard input for `-`. The diagnostics have what is wrong with text; what is
/// wrong with a container is an error.
pub fn open(path: &Path, care: Care) -> Result<Checked> {
    if files::is_stdin(path) {
        return Ok(read_checked("-", &files::read_text(path)?, care));
    }
    match open_checked(path, care) {
        Err(PackageError::Io { path: at, source }) if at == path && source.kind() == ErrorKind::NotFound => {
            Err(files::failed(path, "no such file"))
        }
        found => Ok(found?),
    }
}

/// A program, and what came with it.
pub struct Loaded {
    /// The form that the file had.
    pub form: Form,
    /// The program, right as far as the [`Care`] asked for.
    pub program: Program,
    /// What a package says about itself; text says nothing.
    pub description: Option<Description>,
}

/// Opens a file that must hold a program; prints warnings to standard error.
pub fn load(path: &Path, care: Care) -> Result<Loaded> {
    let opened = open(path, care)?;
    let color = std::io::stderr().is_terminal();
    let shown = opened.diagnostics.render(&opened.source, color);
    match opened.program {
        Some(program) => {
            if !shown.is_empty() {
                crate::out::note(shown.trim_end());
            }
            Ok(Loaded { form: opened.form, program, description: opened.description })
        }
        None => Err(Error::new(format!("{}: the program is not right:\n{}", path.display(), shown.trim_end()))),
    }
}

/// The function of that name; without one, `main`, or the first one.
pub fn function<'a>(program: &'a Program, name: Option<&str>) -> Result<&'a Function> {
    let names = || program.functions.iter().map(|f| f.name.as_str());
    let found = match name {
        Some(name) => program.function(name),
        None => program.function("main").or(program.functions.first()),
    };
    found.ok_or_else(|| match name {
        Some(name) => {
            let near = did_you_mean(name, names());
            let known: Vec<&str> = names().collect();
            Error::new(format!("--function {name}: no such function{near} (there are {})", known.join(", ")))
        }
        None => Error::new("the program has no function"),
    })
}
