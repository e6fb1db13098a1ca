//! Texts and positions in them.

/// A range of bytes in a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes `start..end`; positions beyond 4 GiB saturate.
    pub fn new(start: usize, end: usize) -> Span {
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { start: clip(start), end: clip(end) }
    }

    /// From the start of this one to the end of the other.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The bytes of `text` it covers; empty if it does not lie on them.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize).unwrap_or("")
    }
}

/// A place for people: both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

/// A text with the name it is shown under. Bytes that are no UTF-8 are replaced for display, so
/// that a broken file can be shown too; positions then count from the replaced text and may be off
/// behind the first bad byte.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// First byte of each line.
    lines: Vec<usize>,
}

impl Source {
    /// A text under a name, a path as a rule.
    pub fn new(name: impl Into<String>, text: impl AsRef<[u8]>) -> Source {
        let text = String::from_utf8_lossy(text.as_ref()).into_owned();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Source { name: name.into(), text, lines }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of a byte.
    pub fn position(&self, byte: u32) -> Position {
        let byte = self.boundary(byte as usize);
        let line = self.lines.partition_point(|&start| start <= byte).max(1);
        let column = self.text[self.lines[line - 1]..byte].chars().count() + 1;
        Position { line, column }
    }

    /// A line, counted from 1, without its end.
    pub fn line(&self, line: usize) -> &str {
        let Some(&start) = line.checked_sub(1).and_then(|i| self.lines.get(i)) else { return "" };
        let end = self.lines.get(line).map_or(self.text.len(), |&next| next - 1);
        self.text[start..end].trim_end_matches('\r')
    }

    /// The next lower place between two characters.
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
        // Inside the ö, and behind the end.
        assert_eq!(s.position(7), Position { line: 2, column: 3 });
        assert_eq!(s.position(999), Position { line: 3, column: 1 });
        assert_eq!(s.line(2), "zwölf x");
        assert_eq!(s.line(9), "");
    }
}
