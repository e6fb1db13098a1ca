//! Comment lines of more than [`WIDTH`] columns, and how their paragraphs are wrapped.
//!
//! A block is a run of comment lines with one marker and one indentation. Lists keep their items,
//! and tables, fenced and indented code, headings, link definitions keep their lines.

use std::collections::HashSet;

use crate::lexer::{Language, PieceKind, pieces};

/// Comment lines are at most this wide, in characters.
pub(super) const WIDTH: usize = 100;

/// What a line of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyKind {
    Blank,
    /// Kept as it is, and may be of any width.
    Verbatim,
    /// Kept as it is; its width counts.
    Heading,
    /// The first line of a paragraph or of a list item.
    Begin,
    /// A line that continues the paragraph above it.
    Continue,
}

/// A run of comment lines.
struct CommentBlock<'s> {
    /// Index of its first line.
    first: usize,
    /// What its lines begin with: indentation and marker.
    prefix: String,
    /// What follows the marker and one space.
    bodies: Vec<&'s str>,
}

/// The lines, counted from 1, that are too wide and no table, code or URL; with their widths.
pub(super) fn wide_lines(language: Language, source: &str) -> Vec<(usize, usize)> {
    let mut wide = Vec::new();
    for block in blocks(language, source) {
        for (index, (kind, body)) in kinds(&block.bodies).into_iter().zip(&block.bodies).enumerate() {
            let width = block.prefix.chars().count() + 1 + body.chars().count();
            if width > WIDTH && kind != BodyKind::Verbatim && !body.contains("://") {
                wide.push((block.first + index + 1, width));
            }
        }
    }
    wide
}

/// The source with each paragraph wrapped that has a line which is too wide.
pub(super) fn reflow(language: Language, source: &str) -> String {
    let lines: Vec<&str> = source.split('\n').collect();
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    let mut next = 0;
    for block in blocks(language, source) {
        out.extend(lines[next..block.first].iter().map(|&line| line.to_owned()));
        next = block.first + block.bodies.len();
        let kinds = kinds(&block.bodies);
        let mut at = 0;
        while at < kinds.len() {
            let mut end = at + 1;
            if kinds[at] == BodyKind::Begin {
                end += kinds[end..].iter().take_while(|kind| **kind == BodyKind::Continue).count();
            }
            let paragraph = &lines[block.first + at..block.first + end];
            let wide = paragraph.iter().any(|line| line.chars().count() > WIDTH);
            if wide && kinds[at] == BodyKind::Begin {
                out.extend(wrap(&block.prefix, &block.bodies[at..end]));
            } else {
                out.extend(paragraph.iter().map(|&line| line.to_owned()));
            }
            at = end;
        }
    }
    out.extend(lines[next..].iter().map(|&line| line.to_owned()));
    out.join("\n")
}

fn blocks(language: Language, source: &str) -> Vec<CommentBlock<'_>> {
    let markers: &[&str] = match language {
        Language::Rust => &["///", "//!", "//"],
        Language::Python | Language::Shell => &["#"],
        // A comment may be data there: an expectation of a filetest is one line.
        Language::C | Language::Toml => return Vec::new(),
    };
    // A line of a string may look like a comment.
    let comments: HashSet<usize> = pieces(language, source)
        .into_iter()
        .filter(|piece| piece.kind == PieceKind::Line { own_line: true })
        .map(|piece| piece.line)
        .collect();
    let mut blocks: Vec<CommentBlock<'_>> = Vec::new();
    for (index, line) in source.split('\n').enumerate() {
        if !comments.contains(&(index + 1)) {
            continue;
        }
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        let Some(marker) = markers.iter().find(|m| text.starts_with(**m)) else { continue };
        let body = &text[marker.len()..];
        // `////`, `//x` and `#!` are no prose.
        if !(body.is_empty() || body.starts_with(' ')) {
            continue;
        }
        let (prefix, body) = (format!("{indent}{marker}"), body.strip_prefix(' ').unwrap_or(body));
        match blocks.last_mut() {
            Some(block) if block.first + block.bodies.len() == index && block.prefix == prefix => {
                block.bodies.push(body)
            }
            _ => blocks.push(CommentBlock { first: index, prefix, bodies: vec![body] }),
        }
    }
    blocks
}

fn kinds(bodies: &[&str]) -> Vec<BodyKind> {
    let (mut fenced, mut open) = (false, false);
    let mut kinds = Vec::with_capacity(bodies.len());
    for body in bodies {
        let text = body.trim();
        let definition = text.starts_with('[') && text.contains("]: ");
        let kind = if text.starts_with("```") {
            fenced = !fenced;
            BodyKind::Verbatim
        } else if fenced || text.starts_with('|') || definition || (!open && body.starts_with("    ")) {
            BodyKind::Verbatim
        } else if text.is_empty() {
            BodyKind::Blank
        } else if text.starts_with("# ") || text.starts_with("## ") || text.starts_with("### ") {
            BodyKind::Heading
        } else if !open || bullet(text) > 0 {
            BodyKind::Begin
        } else {
            BodyKind::Continue
        };
        open = matches!(kind, BodyKind::Begin | BodyKind::Continue);
        kinds.push(kind);
    }
    kinds
}

/// The length of `- `, `* `, `+ `, `1. ` or `1) ` at the beginning of a text; 0 if there is none.
fn bullet(text: &str) -> usize {
    if ["- ", "* ", "+ "].iter().any(|b| text.starts_with(b)) {
        return 2;
    }
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let ends = [". ", ") "].iter().any(|end| text[digits..].starts_with(end));
    if digits > 0 && ends { digits + 2 } else { 0 }
}

fn wrap(prefix: &str, bodies: &[&str]) -> Vec<String> {
    let first = bodies[0];
    let text = first.trim_start();
    let lead = &first[..first.len() - text.len()];
    let hanging = " ".repeat(bullet(text));
    let words = bodies.iter().flat_map(|body| body.split_whitespace());
    let mut lines = Vec::new();
    let mut line = format!("{prefix} {lead}");
    let mut empty = true;
    for word in words {
        let needed = usize::from(!empty) + word.chars().count();
        if !empty && line.chars().count() + needed > WIDTH {
            lines.push(std::mem::replace(&mut line, format!("{prefix} {lead}{hanging}")));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(n: usize) -> String {
        vec!["word"; n].join(" ")
    }

    #[test]
    fn wide_prose_is_reported_and_tables_code_and_urls_are_not() {
        let wide = words(30);
        let source = format!(
            "/// {wide}\n/// | {wide} |\n/// ```\n/// {wide}\n/// ```\n// https://a.b/{wide}\nlet x = 1; // {wide}\n//     {wide}\n"
        );
        assert_eq!(wide_lines(Language::Rust, &source), [(1, 4 + wide.len())]);
        assert_eq!(wide_lines(Language::Shell, &format!("# {wide}\n")), [(1, 2 + wide.len())]);
    }

    #[test]
    fn a_paragraph_is_wrapped_and_the_others_stay() {
        let source =
            format!("    /// Short\n    /// one.\n    ///\n    /// {}\n    /// end.\nfn f() {{}}\n", words(25));
        let fixed = reflow(Language::Rust, &source);
        assert_eq!(wide_lines(Language::Rust, &fixed), []);
        assert!(fixed.starts_with("    /// Short\n    /// one.\n    ///\n    /// word word"), "{fixed}");
        assert!(fixed.ends_with("word word word end.\nfn f() {}\n"), "{fixed}");
        assert_eq!(reflow(Language::Rust, &fixed), fixed);
    }

    #[test]
    fn list_items_stay_items_with_hanging_lines() {
        let source = format!("//! Text:\n//! - {}\n//! - b\n//! 1. {}\n", words(22), words(22));
        let fixed = reflow(Language::Rust, &source);
        let starts: Vec<&str> = fixed.lines().map(|line| &line[..line.len().min(8)]).collect();
        assert_eq!(starts, ["//! Text", "//! - wo", "//!   wo", "//! - b", "//! 1. w", "//!    w"]);
    }

    #[test]
    fn what_looks_like_a_comment_in_a_string_is_kept() {
        let source = format!("const A: &str = \"\n// {}\n\";\n", words(30));
        assert_eq!(wide_lines(Language::Rust, &source), []);
        assert_eq!(reflow(Language::Rust, &source), source);
    }

    #[test]
    fn headings_tables_and_fences_are_kept() {
        let source = format!("//! # A\n//! {}\n//! | a |\n//! ```text\n//! {}\n//! ```\n", words(22), words(40));
        let fixed = reflow(Language::Rust, &source);
        assert!(fixed.contains(&format!("//! | a |\n//! ```text\n//! {}\n//! ```\n", words(40))), "{fixed}");
        assert!(fixed.starts_with("//! # A\n//! word"));
    }
}
