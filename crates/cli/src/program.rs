//! Programs named on the command line: what kind of file it is, the program in it, and all that was
//! found on the way.

use std::io::{ErrorKind, IsTerminal as _};
use std::path::Path;

use ferrane::diag::{Diagnostic, Diagnostics, Severity, Source, did_you_mean};
use ferrane::mil::package::{Description, Form, PackageError, open_with};
use ferrane::mil::{Function, Missing, Options, Program, Strictness, Types, Weights, check, codes, parse_with};

use crate::error::{Error, Result};
use crate::files;

/// A file that was opened.
pub struct Opened {
    /// Its kind.
    pub form: Form,
    /// The program, if there was no error.
    pub program: Option<Program>,
    /// What a package says about itself.
    pub description: Option<Description>,
    /// What was found.
    pub diagnostics: Diagnostics,
    /// What the diagnostics point into.
    pub source: Source,
}

/// How much of a program must be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// All of it: it is to be run.
    Whole,
    /// All of it, but how strictly blob files are read is for a machine to say.
    Machine,
    /// All of it but the blob files, which are not looked for.
    Text,
    /// Only that it can be read: it is to be looked at or written in another form.
    Form,
}

impl Care {
    fn options(self) -> Options {
        Options {
            missing: if matches!(self, Care::Whole | Care::Machine) { Missing::Refuse } else { Missing::Keep },
            strictness: if self == Care::Whole { Strictness::Strict } else { Strictness::Lenient },
            types: if self == Care::Form { Types::Trust } else { Types::Check },
        }
    }
}

/// A form as it is shown, and as programs read it.
pub fn name(form: Form) -> (&'static str, &'static str) {
    match form {
        Form::Package => ("a package", "mlpackage"),
        Form::Model => ("a model", "mlmodel"),
        Form::Compiled => ("a compiled model", "mlmodelc"),
        Form::Text => ("MIL text", "text"),
    }
}

/// Opens a file. What is wrong with text is among its diagnostics; what is wrong with a container
/// is an error.
pub fn open(path: &Path, care: Care) -> Result<Opened> {
    let mut opened = read(path, care)?;
    if care != Care::Form {
        opened.diagnostics = judged(opened.program.as_ref(), opened.diagnostics);
        let right = !opened.diagnostics.has_errors();
        opened.program = opened.program.filter(|_| right);
    }
    Ok(opened)
}

fn read(path: &Path, care: Care) -> Result<Opened> {
    if files::is_stdin(path) || (care == Care::Text && !path.is_dir()) {
        // Text without a folder, or whose folder does not matter.
        let bytes = files::read_text(path)?;
        let parsed = parse_with(&bytes, &Weights::new(), care.options());
        if care != Care::Text || parsed.program.is_some() || is_text(&bytes) {
            let source = Source::new(path.display().to_string(), &bytes);
            let (program, diagnostics) = (parsed.program, parsed.diagnostics);
            return Ok(Opened { form: Form::Text, program, description: None, diagnostics, source });
        }
    }
    match open_with(path, care.options()) {
        Ok(opened) => {
            let (form, diagnostics) = (opened.form, opened.warnings);
            // The text is needed again only where something points into it.
            let text = match form {
                Form::Text if !diagnostics.is_empty() || care == Care::Machine => files::read_text(path)?,
                Form::Compiled if !diagnostics.is_empty() || care == Care::Machine => {
                    files::read_text(&path.join("model.mil"))?
                }
                _ => Vec::new(),
            };
            let source = Source::new(path.display().to_string(), text);
            let (program, description) = (Some(opened.program), opened.description);
            Ok(Opened { form, program, description, diagnostics, source })
        }
        Err(PackageError::Text { text, diagnostics }) => {
            let form = if path.is_dir() { Form::Compiled } else { Form::Text };
            Ok(Opened { form, program: None, description: None, diagnostics, source: text })
        }
        Err(PackageError::Io { path: at, source }) if at == path && source.kind() == ErrorKind::NotFound => {
            Err(files::failed(path, "no such file"))
        }
        Err(error) => Err(error.into()),
    }
}

/// False for what begins like a model's message: then the container says what is wrong.
fn is_text(bytes: &[u8]) -> bool {
    bytes.first() != Some(&0x08)
}

/// A program that is there, and what came with it.
pub struct Loaded {
    /// The file's kind.
    pub form: Form,
    /// The program.
    pub program: Program,
    /// What a package says about itself.
    pub description: Option<Description>,
}

/// Opens a file whose program must be there; what is doubtful about it is told on standard error.
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

/// The function of that name; without one, `main`, or the only one.
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

/// The reader takes ops that no registry knows and warns; a program that is to be run must not have
/// any. A container's ops have not been checked at all.
fn judged(program: Option<&Program>, found: Diagnostics) -> Diagnostics {
    let mut all = Diagnostics::new();
    for diagnostic in &found {
        let severity = if diagnostic.code == codes::UNKNOWN_OP { Severity::Error } else { diagnostic.severity };
        all.push(Diagnostic { severity, ..diagnostic.clone() });
    }
    let told = found.iter().any(|d| d.code == codes::UNKNOWN_OP);
    let Some(program) = program else { return all };
    for function in &program.functions {
        for (op, error) in check(function, &program.weights) {
            if !(told && error.code() == codes::UNKNOWN_OP) {
                all.push(Diagnostic::error(error.code(), function.op(op).span, error.to_string()));
            }
        }
    }
    all
}
