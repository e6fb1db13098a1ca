//! The prose of a file as passages: text that is read as one, with the line on which it begins.

use std::path::Path;

use crate::lexer::{Language, Piece, PieceKind, pieces};
use crate::markdown::{LineKind, Page};
use crate::workspace::extension;

/// Text that is read as one: a phrase may run over its line breaks.
pub(crate) struct Passage {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// A comment of a source, not a string.
    pub(crate) comment: bool,
}

impl Passage {
    fn new(line: usize, text: &str, comment: bool) -> Self {
        Self { line, text: text.to_owned(), comment }
    }
}

/// The comments and strings of a source. Comments on consecutive lines are one passage.
pub(crate) fn source_passages(language: Language, source: &str) -> Vec<Passage> {
    let pieces = pieces(language, source);
    let marks = |piece: &Piece| piece.kind != PieceKind::Text && piece.text.contains("prose: quoted");
    let quoted: Vec<usize> = pieces.iter().filter(|p| marks(p)).flat_map(|p| [p.line, p.line + 1]).collect();
    let mut passages: Vec<Passage> = Vec::new();
    let (mut next, mut fenced) = (0, false);
    for piece in &pieces {
        match piece.kind {
            PieceKind::Line { own_line } => {
                let joins = own_line && piece.line == next;
                fenced &= joins;
                let fence = piece.text.trim_start().starts_with("```");
                fenced ^= fence;
                let text = if fence || fenced { "" } else { piece.text.as_str() };
                match passages.last_mut().filter(|_| joins) {
                    Some(passage) => passage.text = format!("{}\n{text}", passage.text),
                    None => passages.push(Passage::new(piece.line, text, true)),
                }
                next = piece.line + 1;
            }
            PieceKind::Block => passages.push(Passage::new(piece.line, &piece.text, true)),
            // A single word is a name or a value.
            PieceKind::Text if piece.text.trim().contains(char::is_whitespace) && !quoted.contains(&piece.line) => {
                passages.push(Passage::new(piece.line, &piece.text, false));
                next = 0;
            }
            PieceKind::Text => {}
        }
    }
    passages
}

/// The paragraphs, headings and tables of a page, and the comments in its fenced code.
pub(crate) fn page_passages(page: &Page) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut joins = false;
    for (index, (kind, text)) in page.lines.iter().enumerate() {
        let line = index + 1;
        match kind {
            LineKind::Text | LineKind::Comment => {
                match passages.last_mut().filter(|_| joins) {
                    Some(passage) => passage.text = format!("{}\n{text}", passage.text),
                    None => passages.push(Passage::new(line, text, false)),
                }
                joins = true;
            }
            LineKind::Heading(_) | LineKind::Table => {
                passages.push(Passage::new(line, text, false));
                joins = false;
            }
            LineKind::Code => {
                let comment = ["# ", "// ", "/* "].iter().filter_map(|mark| text.find(mark)).min();
                passages.extend(comment.map(|at| Passage::new(line, &text[at..], false)));
                joins = false;
            }
            LineKind::Fence => joins = false,
        }
    }
    passages
}

/// How to read a source, by its extension; `None` for pages and data.
pub(crate) fn language(path: &Path) -> Option<Language> {
    match extension(path) {
        "rs" => Some(Language::Rust),
        // MIL has C's comments. Its strings are values.
        "c" | "mil" => Some(Language::C),
        "py" => Some(Language::Python),
        "sh" => Some(Language::Shell),
        "toml" => Some(Language::Toml),
        _ => None,
    }
}
