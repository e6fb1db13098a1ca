//! Programs that are opened and checked: everything that is wrong, with the text that it points
//! into.

use std::path::Path;

use ferrane_diag::{Diagnostic, Diagnostics, Severity, Source};

use super::{Description, Form, PackageError, open_with};
use crate::codes;
use crate::program::Program;
use crate::text::{Missing, Options, Types, parse_with};
use crate::verify::check;
use crate::weights::{Strictness, Weights};

/// How much of a program must be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// All of it: the program runs next.
    Whole,
    /// All of it, but blob files are read leniently, because a machine decides how strict it is.
    Machine,
    /// All of it but the blob files, which are not opened.
    Text,
    /// Only that it can be read: the program is shown, or written in another form.
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

/// A program that was opened, and everything that is wrong with it.
#[derive(Debug)]
pub struct Checked {
    /// What the program was in.
    pub form: Form,
    /// The program; `None` if there was an error.
    pub program: Option<Program>,
    /// What a package says about itself; text says nothing.
    pub description: Option<Description>,
    /// Errors and warnings of the reader, and of the checks that [`Care`] asks for.
    pub diagnostics: Diagnostics,
    /// The text that the diagnostics point into; empty for packages and models, and where there is
    /// nothing to show.
    pub source: Source,
}

/// Opens whatever the path names and checks it with this care. Errors in a text are among the
/// diagnostics; errors in a container are a [`PackageError`].
///
/// # Errors
/// As [`open`](super::open).
pub fn open_checked(path: impl AsRef<Path>, care: Care) -> Result<Checked, PackageError> {
    let path = path.as_ref();
    if care == Care::Text && !path.is_dir() {
        // No blob file is opened, so the folder does not matter.
        let bytes = std::fs::read(path).map_err(PackageError::io(path))?;
        // A model's message begins with field 1; then the container's reader says what is wrong.
        let found = read_checked(&path.display().to_string(), &bytes, care);
        if found.program.is_some() || bytes.first() != Some(&0x08) {
            return Ok(found);
        }
    }
    match open_with(path, care.options()) {
        Ok(opened) => {
            let (form, diagnostics) = (opened.form, opened.warnings);
            // The text is needed again only if something points into it.
            let wanted = !diagnostics.is_empty() || care == Care::Machine;
            let file = match form {
                Form::Text if wanted => Some(path.to_path_buf()),
                Form::Compiled if wanted => Some(path.join("model.mil")),
                _ => None,
            };
            let text = file.map(|f| std::fs::read(&f).map_err(PackageError::io(&f))).transpose()?.unwrap_or_default();
            let source = Source::new(path.display().to_string(), text);
            let (program, description) = (Some(opened.program), opened.description);
            Ok(Checked { form, program, description, diagnostics, source }.judged(care))
        }
        Err(PackageError::Text { text, diagnostics }) => {
            let form = if path.is_dir() { Form::Compiled } else { Form::Text };
            Ok(Checked { form, program: None, description: None, diagnostics, source: text }.judged(care))
        }
        Err(error) => Err(error),
    }
}

/// Reads and checks a text that has no folder. `name` stands for its path in messages.
pub fn read_checked(name: &str, text: &[u8], care: Care) -> Checked {
    let parsed = parse_with(text, &Weights::new(), care.options());
    let (program, diagnostics) = (parsed.program, parsed.diagnostics);
    Checked { form: Form::Text, program, description: None, diagnostics, source: Source::new(name, text) }.judged(care)
}

impl Checked {
    /// Adds the checks of the program. The reader accepts unknown ops and warns; a program that is
    /// to run must not have any. The ops of a container have not been checked at all.
    fn judged(mut self, care: Care) -> Checked {
        if care == Care::Form {
            return self;
        }
        let is_unknown = |code| code == codes::UNKNOWN_OP;
        let mut all = Diagnostics::new();
        for diagnostic in &self.diagnostics {
            let severity = if is_unknown(diagnostic.code) { Severity::Error } else { diagnostic.severity };
            all.push(Diagnostic { severity, ..diagnostic.clone() });
        }
        let reported = self.diagnostics.iter().any(|d| is_unknown(d.code));
        let functions = self.program.iter().flat_map(|program| program.functions.iter().map(|f| (f, &program.weights)));
        for (function, weights) in functions {
            for (op, error) in check(function, weights) {
                if !(reported && is_unknown(error.code())) {
                    all.push(Diagnostic::error(error.code(), function.op(op).span, error.to_string()));
                }
            }
        }
        self.program = self.program.filter(|_| !all.has_errors());
        self.diagnostics = all;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "program(1.3) { func main<ios18>(tensor<fp16, [2]> x) {
        tensor<fp16, [2]> y = rellu(x = x)[name = string(\"y\")]; } -> (y); }";

    #[test]
    fn an_unknown_op_is_an_error_unless_only_the_form_counts() {
        let found = read_checked("p.mil", TEXT.as_bytes(), Care::Whole);
        assert!(found.program.is_none() && found.diagnostics.has_errors());
        assert_eq!(found.diagnostics.iter().filter(|d| d.code == codes::UNKNOWN_OP).count(), 1);
        let found = read_checked("p.mil", TEXT.as_bytes(), Care::Form);
        assert!(found.program.is_some() && !found.diagnostics.has_errors());
        let right = TEXT.replace("rellu", "relu");
        assert!(read_checked("p.mil", right.as_bytes(), Care::Whole).diagnostics.is_empty());
    }
}
