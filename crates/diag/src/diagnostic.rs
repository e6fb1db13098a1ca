//! Diagnostics and their collection.

use std::fmt;

use crate::source::Span;

/// The number of a diagnostic, shown as `E0103`. Ranges belong to crates: `mil` has 01xx (syntax),
/// 02xx (names and types) and 03xx (weights), `target` has 04xx (what a machine does with a
/// program), `device` 06xx, `hwx` 07xx (compiled programs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.0)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Read, but doubtful.
    Warning,
    /// Refused.
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

/// A further fact, at a place of its own if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where.
    pub span: Option<Span>,
    /// What.
    pub message: String,
}

/// A text that would be right in place of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// What to replace.
    pub span: Span,
    /// By what.
    pub replacement: String,
}

/// One thing that is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its kind.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub span: Option<Span>,
    /// What, in one sentence without a full stop.
    pub message: String,
    /// More about it.
    pub notes: Vec<Note>,
    /// How to mend it.
    pub suggestion: Option<Suggestion>,
}

impl Diagnostic {
    /// An error.
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

    /// A warning.
    pub fn warning(code: Code, span: impl Into<Option<Span>>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// With a further fact.
    pub fn note(mut self, span: impl Into<Option<Span>>, message: impl Into<String>) -> Diagnostic {
        self.notes.push(Note { span: span.into(), message: message.into() });
        self
    }

    /// With a way to mend it.
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

/// All that is wrong with one text, in the order found or [sorted](Diagnostics::sort).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
    left_out: usize,
}

impl Diagnostics {
    /// More are counted, not kept: a file that is broken throughout must not fill the memory.
    pub const LIMIT: usize = 200;

    /// None.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Adds one. Beyond [`Diagnostics::LIMIT`] only errors displace: the first error is always
    /// kept.
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

    /// Puts them into the order of their places; those without one come last. Those of one place
    /// keep their order.
    pub fn sort(&mut self) {
        self.items.sort_by_key(|d| d.span.map_or((true, 0), |s| (false, s.start)));
    }

    /// True if one is an error.
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.severity == Severity::Error)
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.items.iter()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many were found beyond the limit.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// True when so many were found that going on has no use.
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

/// One line for each, without places: for logs. [`Diagnostics::render`] shows them in their text.
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
