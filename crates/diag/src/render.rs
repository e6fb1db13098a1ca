//! Diagnostics in their text: for terminals and as JSON.
//!
//! Invariants: the output for one span is bounded, whatever the text; no span causes a panic; no
//! control character of the text reaches the terminal.
//!
//! `annotate-snippets` is not used because it panics on a span outside of the text or inside a
//! character, and because its output for several spans on one line grows with the line: 2 megabytes
//! for 200 spans on a line of 1 megabyte.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::source::{Source, Span};

/// Characters of a line that are shown, at most; inline tensors make lines of megabytes.
const WIDTH: usize = 140;

const RESET: &str = "\x1b[0m";

impl Diagnostics {
    /// The form for terminals: message, place, the line and a mark under it. `color` adds terminal
    /// escapes.
    ///
    /// ```text
    /// error E0204: no op `sofmax` in ios18
    ///   --> a.mil:5:32
    ///   |
    /// 5 |         tensor<fp16, [1, 4]> y = sofmax(x = x, axis = a);
    ///   |                                  ^^^^^^
    ///   = try `softmax`
    /// ```
    pub fn render(&self, source: &Source, color: bool) -> String {
        let mut out = String::new();
        for d in self {
            render(&mut out, d, source, color);
        }
        if self.left_out() > 0 {
            let _ = writeln!(out, "… and {} more", self.left_out());
        }
        out
    }

    /// The form for programs: an array of `{code, severity, message, span, notes, suggestion}`. A
    /// span is `{file, start, end, line, column}`: `start` and `end` in bytes, line and column from
    /// 1.
    pub fn json(&self, source: &Source) -> Value {
        Value::Array(self.iter().map(|d| as_json(d, source)).collect())
    }
}

fn as_json(d: &Diagnostic, source: &Source) -> Value {
    let span = |s: Span| {
        let at = source.position(s.start);
        json!({ "file": source.name(), "start": s.start, "end": s.end, "line": at.line, "column": at.column })
    };
    json!({
        "code": d.code.to_string(),
        "severity": d.severity.to_string(),
        "message": d.message,
        "span": d.span.map(span),
        "notes": d.notes.iter().map(|n| json!({ "message": n.message, "span": n.span.map(span) })).collect::<Vec<_>>(),
        "suggestion": d.suggestion.as_ref().map(|s| json!({ "span": span(s.span), "replacement": s.replacement })),
    })
}

fn paint(color: bool, escape: &str, text: &str) -> String {
    if color { format!("{escape}{text}{RESET}") } else { text.to_string() }
}

fn render(out: &mut String, d: &Diagnostic, source: &Source, color: bool) {
    let escape = match d.severity {
        Severity::Error => "\x1b[1;31m",
        Severity::Warning => "\x1b[1;33m",
        Severity::Note => "\x1b[1;36m",
    };
    let head = paint(color, escape, &format!("{} {}", d.severity, d.code));
    let _ = writeln!(out, "{head}: {}", d.message);
    if let Some(span) = d.span {
        place(out, span, source, color, escape);
    } else {
        let _ = writeln!(out, "  --> {}", source.name());
    }
    for note in &d.notes {
        let _ = writeln!(out, "  = {}: {}", paint(color, "\x1b[1;36m", "note"), note.message);
        if let Some(span) = note.span {
            place(out, span, source, color, "\x1b[1;36m");
        }
    }
    if let Some(s) = &d.suggestion {
        let _ = writeln!(out, "  = {} `{}`", paint(color, "\x1b[1;32m", "try"), s.replacement);
    }
}

fn place(out: &mut String, span: Span, source: &Source, color: bool, escape: &str) {
    let at = source.position(span.start);
    let line = source.line(at.line);
    let characters = line.chars().count();
    // A window of the line that holds the start of the span.
    let from = if at.column > WIDTH * 3 / 4 { at.column - WIDTH / 4 } else { 0 };
    let harmless = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    let shown: String = line.chars().skip(from).take(WIDTH).map(harmless).collect();
    let marked = span.of(source.text()).lines().next().unwrap_or("").chars().count();
    let column = at.column - 1 - from;
    let marks = marked.clamp(1, shown.chars().count().saturating_sub(column).max(1));
    let number = at.line.to_string();
    let margin = " ".repeat(number.len());
    let (open, close) = (if from > 0 { "…" } else { "" }, if from + WIDTH < characters { "…" } else { "" });
    // Tabs stay tabs, so that the mark stands under its place whatever their width.
    let indent: String = shown.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let indent = format!("{}{indent}", " ".repeat(open.chars().count()));
    let _ = writeln!(out, "{margin} --> {}:{}:{}", source.name(), at.line, at.column);
    let _ = writeln!(out, "{margin} |");
    let _ = writeln!(out, "{number} | {open}{shown}{close}");
    let _ = writeln!(out, "{margin} | {indent}{}", paint(color, escape, &"^".repeat(marks)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn shows_line_and_mark() {
        let source = Source::new("a.mil", "one\n\ttwo = sofmax(x);\n");
        let span = Span::new(11, 17);
        let d = Diagnostic::error(Code(204), span, "no op `sofmax`")
            .note(None, "ops are known by name")
            .suggest(span, "softmax");
        let all = Diagnostics::from(d);
        let expected = "error E0204: no op `sofmax`\n  --> a.mil:2:8\n  |\n2 | \ttwo = sofmax(x);\n  | \t      ^^^^^^\n  \
                        = note: ops are known by name\n  = try `softmax`\n";
        assert_eq!(all.render(&source, false), expected);
        let json = all.json(&source);
        assert_eq!(json[0]["span"]["column"], 8);
        assert_eq!(json[0]["suggestion"]["replacement"], "softmax");
        assert!(all.render(&source, true).contains("\x1b[1;31merror E0204\x1b[0m"));
    }

    #[test]
    fn long_lines_are_cut_and_odd_spans_are_harmless() {
        let text = format!("{}BAD{}", "x".repeat(1000), "y".repeat(1_000_000));
        let source = Source::new("a", &text);
        let shown = Diagnostics::from(Diagnostic::error(Code(1), Span::new(1000, 1003), "m")).render(&source, false);
        assert!(shown.len() < 1000 && shown.contains("BAD") && shown.contains("^^^\n"), "{shown}");
        for (start, end) in [(5, 2), (2_000_000, 3_000_000), (0, usize::MAX)] {
            let d = Diagnostic::error(Code(1), Span::new(start, end), "m");
            assert!(!Diagnostics::from(d).render(&source, false).is_empty());
        }
        let escape = Source::new("s", "x\x1b[2Jy");
        let shown = Diagnostics::from(Diagnostic::error(Code(1), Span::new(0, 1), "m")).render(&escape, false);
        assert!(shown.contains("x\u{fffd}[2Jy"), "{shown}");
        let empty = Source::new("e", "");
        assert!(!Diagnostics::from(Diagnostic::error(Code(1), Span::new(0, 0), "m")).render(&empty, true).is_empty());
    }
}
