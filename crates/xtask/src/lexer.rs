//! Comments and string literals of Rust and C sources, of Python and shell scripts.
//!
//! A [`Piece`] is one comment line, one block comment or one string literal. Strings are unescaped
//! as far as words need it: an escape becomes what it stands for, or a space.

/// What a piece of text was in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    /// A comment that ends with its line; `own_line` if nothing but space is before it.
    Line { own_line: bool },
    /// `/* … */`
    Block,
    /// The value of a string literal.
    Text,
}

/// A comment or a string literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: PieceKind,
    /// The line on which it begins, counted from 1.
    pub(crate) line: usize,
    /// Without delimiters. Of a line comment, what follows `//`, `///`, `//!` or `#`.
    pub(crate) text: String,
}

/// The languages whose comments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Also good for C, whose strings are not read then.
    Rust,
    C,
    Python,
    Shell,
    /// Comments with `#`, strings with `"`; for TOML.
    Toml,
}

/// The comments and strings of a source, in order.
pub(crate) fn pieces(language: Language, source: &str) -> Vec<Piece> {
    let mut reader = Reader { chars: source.chars().collect(), at: 0, line: 1, pieces: Vec::new() };
    match language {
        Language::Rust => reader.rust(),
        Language::C => {
            reader.rust();
            reader.pieces.retain(|piece| piece.kind != PieceKind::Text);
        }
        Language::Python => reader.script(true),
        Language::Shell | Language::Toml => {
            reader.script(false);
            reader.pieces.retain(|piece| piece.kind != PieceKind::Text || language == Language::Toml);
        }
    }
    reader.pieces
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    line: usize,
    pieces: Vec<Piece>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c))
    }

    /// The next character, counting lines.
    fn take(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip(&mut self, n: usize) {
        for _ in 0..n {
            self.take();
        }
    }

    fn push(&mut self, kind: PieceKind, line: usize, text: String) {
        self.pieces.push(Piece { kind, line, text });
    }

    /// Whether only space is before this place on its line.
    fn own_line(&self) -> bool {
        self.chars[..self.at].iter().rev().take_while(|c| **c != '\n').all(|c| c.is_whitespace())
    }

    fn line_comment(&mut self, marker: usize) {
        let (line, own_line) = (self.line, self.own_line());
        self.skip(marker);
        let mut text = String::new();
        while let Some(c) = self.peek(0).filter(|c| *c != '\n') {
            text.push(c);
            self.at += 1;
        }
        self.push(PieceKind::Line { own_line }, line, text);
    }

    fn block_comment(&mut self) {
        let line = self.line;
        self.skip(2);
        let (mut depth, mut text) = (1, String::new());
        while depth > 0 {
            if self.starts_with("*/") {
                depth -= 1;
                self.skip(2);
            } else if self.starts_with("/*") {
                depth += 1;
                self.skip(2);
            } else if let Some(c) = self.take() {
                text.push(c);
            } else {
                break;
            }
        }
        self.push(PieceKind::Block, line, text);
    }

    fn rust(&mut self) {
        while let Some(c) = self.peek(0) {
            let before = self.at.checked_sub(1).map(|at| self.chars[at]);
            let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if self.starts_with("//") {
                let marker =
                    if self.starts_with("////") { 4 } else { 2 + usize::from(matches!(self.peek(2), Some('/' | '!'))) };
                self.line_comment(marker);
            } else if self.starts_with("/*") {
                self.block_comment();
            } else if c == '"' {
                self.take();
                self.escaped_string("\"");
            } else if let Some((prefix, hashes)) = self.raw_string().filter(|_| !in_word) {
                self.raw(prefix, hashes);
            } else if c == '\'' {
                self.quote();
            } else {
                self.take();
            }
        }
    }

    /// The length of `r#"`, `br"`, … up to the quote, and the number of `#`.
    fn raw_string(&self) -> Option<(usize, usize)> {
        let prefix = ["r", "br", "cr"]
            .into_iter()
            .find(|p| self.starts_with(p) && matches!(self.peek(p.len()), Some('"' | '#')))?;
        let hashes = (prefix.len()..).take_while(|i| self.peek(*i) == Some('#')).count();
        (self.peek(prefix.len() + hashes) == Some('"')).then_some((prefix.len() + hashes + 1, hashes))
    }

    fn raw(&mut self, prefix: usize, hashes: usize) {
        let line = self.line;
        self.skip(prefix);
        let end = format!("\"{}", "#".repeat(hashes));
        let mut text = String::new();
        while self.peek(0).is_some() && !self.starts_with(&end) {
            text.extend(self.take());
        }
        self.skip(end.len());
        self.push(PieceKind::Text, line, text);
    }

    /// A string after its opening quote, up to `end`.
    fn escaped_string(&mut self, end: &str) {
        let (line, mut text) = (self.line, String::new());
        while self.peek(0).is_some() && !self.starts_with(end) {
            match self.take() {
                Some('\\') => match self.take() {
                    // The literal continues on the next line, whose indentation is not part of it;
                    // the break is kept, so that lines can be counted.
                    Some('\n') => text.push('\n'),
                    Some(c @ ('"' | '\'' | '\\')) => text.push(c),
                    _ => text.push(' '),
                },
                Some(c) => text.push(c),
                None => break,
            }
        }
        self.skip(end.len());
        self.push(PieceKind::Text, line, text);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let character = match self.peek(1) {
            Some('\\') => true,
            Some(_) => self.peek(2) == Some('\''),
            None => false,
        };
        self.take();
        if character {
            if self.peek(0) == Some('\\') {
                self.skip(2);
            }
            while self.take().is_some_and(|c| c != '\'') {}
        }
    }

    /// Python (`triple`: strings in three quotes, escapes in single quotes), shell and TOML.
    fn script(&mut self, triple: bool) {
        while let Some(c) = self.peek(0) {
            let before = self.at.checked_sub(1).map(|at| self.chars[at]);
            if c == '#' && (triple || before.is_none_or(char::is_whitespace)) {
                self.line_comment(1);
            } else if triple && (self.starts_with("\"\"\"") || self.starts_with("'''")) {
                self.skip(3);
                self.escaped_string(if c == '"' { "\"\"\"" } else { "'''" });
            } else if c == '"' || (c == '\'' && triple) {
                self.take();
                self.escaped_string(if c == '"' { "\"" } else { "'" });
            } else if c == '\'' {
                self.take();
                while self.take().is_some_and(|c| c != '\'') {}
            } else if c == '\\' {
                self.skip(2);
            } else {
                self.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(language: Language, source: &str) -> Vec<(usize, String)> {
        pieces(language, source).into_iter().map(|piece| (piece.line, piece.text)).collect()
    }

    fn found(language: Language, source: &str, wanted: &[(usize, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
        assert_eq!(texts(language, source), wanted);
    }

    #[test]
    fn comments_of_each_form() {
        let source = "//! a\n/// b\n// c\nlet x = 1; // d\n/* e /* f */\ng */ h\n//// i";
        found(Language::Rust, source, &[(1, " a"), (2, " b"), (3, " c"), (4, " d"), (5, " e  f \ng "), (7, " i")]);
        let own: Vec<_> = pieces(Language::Rust, source).iter().map(|p| p.kind).collect();
        assert_eq!(own[2], PieceKind::Line { own_line: true });
        assert_eq!(own[3], PieceKind::Line { own_line: false });
        assert_eq!(own[4], PieceKind::Block);
    }

    #[test]
    fn strings_of_each_form() {
        found(
            Language::Rust,
            r##"("a // b", r"c\", r#"d " e"#, b"f", br"g", c"h")"##,
            &[(1, "a // b"), (1, "c\\"), (1, "d \" e"), (1, "f"), (1, "g"), (1, "h")],
        );
        found(Language::Rust, "\"a\\nb \\\"c\\\" \\\n   d\"\n\"e\"", &[(1, "a b \"c\" \n   d"), (3, "e")]);
        found(Language::Rust, "for_r\"x\"", &[(1, "x")]);
    }

    #[test]
    fn characters_and_lifetimes_open_no_string() {
        found(Language::Rust, "'\"' 'a' '\\'' <'a> &'static str '\\u{41}' \"x\"", &[(1, "x")]);
    }

    #[test]
    fn scripts() {
        found(
            Language::Python,
            "x = 'a # b'  # c\n\"\"\"d\ne\"\"\"\n'\\'f'",
            &[(1, "a # b"), (1, " c"), (2, "d\ne"), (4, "'f")],
        );
        found(Language::Shell, "#!/bin/sh\necho \"$#\" '# a' ${x#y} # b\n\\# c", &[(1, "!/bin/sh"), (2, " b")]);
        found(Language::C, "/* a */ char *s = \"// b\"; // c", &[(1, " a "), (1, " c")]);
        found(Language::Toml, "a = \"b # c\" # d", &[(1, "b # c"), (1, " d")]);
    }
}
