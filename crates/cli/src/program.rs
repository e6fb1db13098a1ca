//! Programs named on the command line: what kind of file it is, the program in it, and all that was found on the way.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use ferrane::diag::{Code, Diagnostic, Diagnostics, Severity, Source};
use ferrane::host::map::Mapped;
use ferrane::mil::{Missing, Options, Program, Strictness, Types, WeightId, Weights, check, parse_with};

use crate::error::{Error, Result};
use crate::files;

/// The reader's warning about an op that the registry does not have.
const UNKNOWN_OP: Code = Code(204);

/// The file's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// MIL text with its blob files beside it.
    Text,
}

impl Container {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Container::Text => "MIL text",
        }
    }

    /// For programs that read what is printed.
    pub fn tag(self) -> &'static str {
        match self {
            Container::Text => "text",
        }
    }
}

/// A file that was opened.
pub struct Opened {
    /// Its kind.
    pub container: Container,
    /// The program, if there was no error.
    pub program: Option<Program>,
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
    /// All of it but the blob files, which are not looked for.
    Text,
    /// Only that it can be read: it is to be looked at or written in another form.
    Form,
}

/// Opens a file.
pub fn open(path: &Path, care: Care) -> Result<Opened> {
    let bytes = files::read_text(path)?;
    let source = Source::new(path.display().to_string(), &bytes);
    let types = if care == Care::Form { Types::Trust } else { Types::Check };
    let strictness = if care == Care::Whole { Strictness::Strict } else { Strictness::Lenient };
    let keep = Options { missing: Missing::Keep, strictness, types };
    let mut parsed = parse_with(&bytes, &Weights::new(), keep);
    // What the text refers to is known only when it is read; then the files are opened and it is read again.
    let named = parsed.program.as_ref().map(|p| absent(&p.weights)).unwrap_or_default();
    if care != Care::Text && !named.is_empty() {
        let mut weights = Weights::new();
        for name in named {
            if let Some(file) = beside(path, &name).filter(|f| f.is_file()) {
                weights.open_file(&name, Mapped::open(&file).map_err(|e| files::failed(&file, e))?);
            }
        }
        let missing = if care == Care::Whole { Missing::Refuse } else { Missing::Keep };
        parsed = parse_with(&bytes, &weights, Options { missing, ..keep });
    }
    let (mut program, mut diagnostics) = (parsed.program, parsed.diagnostics);
    if care != Care::Form {
        diagnostics = judged(program.as_ref(), diagnostics);
        program = program.filter(|_| !diagnostics.has_errors());
    }
    Ok(Opened { container: Container::Text, program, diagnostics, source })
}

/// Opens a file whose program must be there; what is doubtful about it is told on standard error.
pub fn load(path: &Path, care: Care) -> Result<(Container, Program)> {
    let opened = open(path, care)?;
    let colour = std::io::stderr().is_terminal();
    let shown = opened.diagnostics.render(&opened.source, colour);
    match opened.program {
        Some(program) => {
            if !shown.is_empty() {
                crate::out::note(shown.trim_end());
            }
            Ok((opened.container, program))
        }
        None => Err(Error::new(format!("{}: the program is not right:\n{}", path.display(), shown.trim_end()))),
    }
}

/// The reader takes ops that no registry knows and warns; a program that is to be run must not have any.
fn judged(program: Option<&Program>, found: Diagnostics) -> Diagnostics {
    let mut all = Diagnostics::new();
    for diagnostic in &found {
        let severity = if diagnostic.code == UNKNOWN_OP { Severity::Error } else { diagnostic.severity };
        all.push(Diagnostic { severity, ..diagnostic.clone() });
    }
    let told = found.iter().any(|d| d.code == UNKNOWN_OP);
    let Some(program) = program else { return all };
    for function in &program.functions {
        for (op, error) in check(function, &program.weights) {
            if !(told && error.code() == UNKNOWN_OP) {
                all.push(Diagnostic::error(error.code(), function.op(op).span, error.to_string()));
            }
        }
    }
    all
}

/// The blob files that a text names and nobody has opened.
fn absent(weights: &Weights) -> Vec<String> {
    let ids = (0..weights.len()).map(|i| WeightId(i as u32)).filter(|id| weights.bytes(*id).is_none());
    let mut names: Vec<String> = ids.filter_map(|id| Some(weights.location(id)?.0.to_string())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Where a blob file lies: `@model_path` is the folder of the text. For standard input it is the folder the command runs in.
pub fn beside(text: &Path, name: &str) -> Option<PathBuf> {
    let folder = text.parent().unwrap_or(Path::new(""));
    let inner = name.strip_prefix("@model_path/").unwrap_or(name);
    (!inner.is_empty()).then(|| folder.join(inner))
}
