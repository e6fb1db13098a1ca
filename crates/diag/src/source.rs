//! Source texts, and positions in them.

/// A range of bytes in a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes `start..end`; offsets beyond 4 GiB saturate.
    pub fn new(start: usize, end: usize) -> Span {
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { start: clip(start), end: clip(end) }
    }

    /// The smallest span that covers both.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The part of `text` that the span covers; empty if the span lies outside of the text or ends
    /// inside a character.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize).unwrap_or("")
    }
}

/// A place as an editor shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
}

/// A text with the name that it is shown under.
///
/// Bytes that are not UTF-8 are replaced, so that a broken file can be shown. Positions refer to
/// the text after the replacement, so they may be off after the first such byte.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Offset of the first byte of each line.
    lines: Vec<usize>,
}

impl Source {
    /// A text under a name, which is usually a path.
    pub fn new(name: impl Into<String>, text: impl AsRef<[u8]>) -> Source {
        let text = String::from_utf8_lossy(text.as_ref()).into_owned();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Source { name: name.into(), text, lines }
    }

    /// The name that diagnostics show, usually a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text after the replacement of bytes that are not UTF-8.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of the byte at this offset; an offset beyond the text means its end.
    pub fn position(&self, byte: u32) -> Position {
        let byte = self.boundary(byte as usize);
        let line = self.line_of(byte);
        let column = self.text[self.lines[line - 1]..byte].chars().count() + 1;
        Position { line, column }
    }

    /// The number of the line of the byte at this offset, counted from 1. Unlike
    /// [`Source::position`], it takes the same time for lines of any length.
    pub fn line_number(&self, byte: u32) -> usize {
        self.line_of(self.boundary(byte as usize))
    }

    fn line_of(&self, byte: usize) -> usize {
        self.lines.partition_point(|&start| start <= byte).max(1)
    }

    /// The line with this number, counted from 1, without its line break; empty if there is none.
    pub fn line(&self, line: usize) -> &str {
        let Some(&start) = line.checked_sub(1).and_then(|i| self.lines.get(i)) else { return "" };
        let end = self.lines.get(line).map_or(self.text.len(), |&next| next - 1);
        self.text[start..end].trim_end_matches('\r')
    }

    /// The largest offset, at most `byte`, that lies between two characters.
    fn boundary(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let s = Source::new("a.mil", "one\nzwölf x\n");
        assert_eq!(s.position(0), Position { line: 1, column: 1 });
        assert_eq!(s.position(4), Position { line: 2, column: 1 });
        assert_eq!(s.position(11), Position { line: 2, column: 7 });
        // Inside the ö, and after the end.
        assert_eq!(s.position(7), Position { line: 2, column: 3 });
        assert_eq!(s.position(999), Position { line: 3, column: 1 });
        assert_eq!([0, 4, 7, 999].map(|at| s.line_number(at)), [1, 2, 2, 3]);
        assert_eq!(s.line(2), "zwölf x");
        assert_eq!(s.line(9), "");
    }
}
