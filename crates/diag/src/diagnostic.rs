//! Diagnostics and their collection.

use std::fmt;

use crate::source::Span;

/// The number of a diagnostic, shown as `E0103`. Ranges belong to crates: `mil` has 01xx (syntax),
/// 02xx (names and types) and 03xx (weights), `machine` has 04xx and 10xx (what a machine
/// does with a program), `device` 06xx, `hwx` 07xx (compiled programs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.0)
    }
}

/// What a diagnostic means for the text that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// A fact that needs no change.
    Note,
    /// The text is accepted, but is probably not what its author means.
    Warning,
    /// The text is rejected.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A further fact about a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text that the fact is about, if any.
    pub span: Option<Span>,
    /// The fact, without a full stop.
    pub message: String,
}

/// A replacement that makes the text right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The text to replace.
    pub span: Span,
    /// What stands there instead.
    pub replacement: String,
}

/// One fault of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of fault, which `ferrane explain` describes.
    pub code: Code,
    /// Whether the text is rejected for it.
    pub severity: Severity,
    /// The faulty text; `None` if the fault has no place, as a missing function has none.
    pub span: Option<Span>,
    /// One sentence, in lower case and without a full stop.
    pub message: String,
    /// Facts that explain the fault, in the order in which they are shown.
    pub notes: Vec<Note>,
    /// How to fix it, if the reader of the text knows.
    pub suggestion: Option<Suggestion>,
}

impl Diagnostic {
    /// A diagnostic that rejects the text, without notes and suggestion.
    pub fn error(code: Code, span: impl Into<Option<Span>>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            span: span.into(),
            message: message.into(),
            notes: Vec::new(),
            suggestion: None,
        }
    }

    /// A diagnostic that does not reject the text, without notes and suggestion.
    pub fn warning(code: Code, span: impl Into<Option<Span>>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Adds a further fact.
    pub fn note(mut self, span: impl Into<Option<Span>>, message: impl Into<String>) -> Diagnostic {
        self.notes.push(Note { span: span.into(), message: message.into() });
        self
    }

    /// Sets the way to fix it.
    pub fn suggest(mut self, span: Span, replacement: impl Into<String>) -> Diagnostic {
        self.suggestion = Some(Suggestion { span, replacement: replacement.into() });
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.message)?;
        match &self.suggestion {
            Some(s) => write!(f, " (try `{}`)", s.replacement),
            None => Ok(()),
        }
    }
}

/// The faults of one text, in the order in which they were found, or [sorted](Diagnostics::sort).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
    left_out: usize,
}

impl Diagnostics {
    /// The largest number of diagnostics that are kept. Further ones are only counted, so that a
    /// file that is broken throughout does not fill the memory.
    pub const LIMIT: usize = 200;

    /// A collection without a diagnostic and with nothing left out.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Adds a diagnostic. Beyond [`Diagnostics::LIMIT`] it is only counted, unless it is the first
    /// error, which replaces the last one that was kept.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.items.len() < Diagnostics::LIMIT {
            self.items.push(diagnostic);
            return;
        }
        self.left_out += 1;
        if diagnostic.severity == Severity::Error
            && !self.has_errors()
            && let Some(last) = self.items.last_mut()
        {
            *last = diagnostic;
        }
    }

    /// Sorts by the start of the span. Diagnostics without a span come last; the order of those
    /// with equal starts is kept.
    pub fn sort(&mut self) {
        self.items.sort_by_key(|d| d.span.map_or((true, 0), |s| (false, s.start)));
    }

    /// True if at least one diagnostic rejects the text.
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.severity == Severity::Error)
    }

    /// The diagnostics that were kept.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.items.iter()
    }

    /// The number of diagnostics that were kept.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if no diagnostic was added.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of diagnostics beyond the limit.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// True once the limit is exceeded: a reader may stop.
    pub fn is_full(&self) -> bool {
        self.left_out > 0
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Diagnostics {
        Diagnostics { items: vec![diagnostic], left_out: 0 }
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// One line for each diagnostic, without its place, for logs. [`Diagnostics::render`] shows the
/// text.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.items.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{d}")?;
        }
        if self.left_out > 0 {
            write!(f, "\n… and {} more", self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_bounded_number_and_an_error() {
        let mut all = Diagnostics::new();
        for i in 0..300 {
            all.push(Diagnostic::warning(Code(1), None, i.to_string()));
        }
        assert!(!all.has_errors());
        all.push(Diagnostic::error(Code(2), None, "bad"));
        assert!(all.has_errors());
        assert_eq!((all.len(), all.left_out()), (200, 101));
        assert!(all.to_string().ends_with("error E0002: bad\n… and 101 more"));
    }

    #[test]
    fn sorts_by_place() {
        let mut all = Diagnostics::new();
        for (place, name) in [(Some(7), "c"), (None, "e"), (Some(3), "a"), (Some(7), "d"), (Some(5), "b")] {
            all.push(Diagnostic::error(Code(1), place.map(|p| Span::new(p, p + 1)), name));
        }
        all.sort();
        assert_eq!(all.iter().map(|d| d.message.as_str()).collect::<String>(), "abcde");
    }
}
