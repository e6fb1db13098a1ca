//! Citations in a text: a name, `§` or `#`, and a number.

/// How a section is cited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `§`: a numbered heading.
    Section,
    /// `#`: a numbered entry.
    Number,
}

/// One section that a text cites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Citation {
    /// In lower case. `None` for a `§` without a name before it.
    pub(super) name: Option<String>,
    pub(super) mark: Mark,
    /// `3` or `3.1`.
    pub(super) number: String,
    /// Counted from 0 within the text.
    pub(super) line: usize,
}

/// The citations of a text, in order. In a list (`NAME §1, §2 and §3`,
/// `NAME §1–3`) each is one.
pub(super) fn citations(text: &str) -> Vec<Citation> {
    let mut found: Vec<Citation> = Vec::new();
    // Where the last citation ended, for what continues it.
    let mut last_end = None;
    for (at, c) in text.char_indices() {
        let mark = match c {
            '§' => Mark::Section,
            '#' => Mark::Number,
            _ => continue,
        };
        let before = &text[..at];
        let after = text[at + c.len_utf8()..].trim_start_matches(' ');
        let Some(first) = number(after) else { continue };
        let name = match last_end {
            // Of a list: what is between this and the one before joins them.
            Some(end) if joins(&text[end..at]) && found.last().is_some_and(|l| l.mark == mark) => {
                found.last().and_then(|last| last.name.clone())
            }
            _ => match name(before) {
                Naming::Page(name) => Some(name),
                Naming::None if mark == Mark::Section => None,
                Naming::None | Naming::Foreign => continue,
            },
        };
        let line = before.matches('\n').count();
        let mut end = text.len() - after.len() + first.len();
        found.push(Citation { name: name.clone(), mark, number: first.to_owned(), line });
        // A range: `§2–4`.
        if let Some(rest) = text[end..].strip_prefix(['–', '-'])
            && let Some(second) = number(rest)
        {
            end = text.len() - rest.len() + second.len();
            found.push(Citation { name, mark, number: second.to_owned(), line });
        }
        // The letter of a part: `§2b`.
        let letter = text[end..].chars().next().filter(char::is_ascii_lowercase);
        last_end = Some(end + letter.map_or(0, char::len_utf8));
    }
    found
}

/// Digits with single dots between them.
fn number(text: &str) -> Option<&str> {
    let mut end = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let dot = c == '.' && end > 0 && chars.peek().is_some_and(|(_, c)| c.is_ascii_digit());
        if !(c.is_ascii_digit() || dot) {
            break;
        }
        end = at + 1;
    }
    (end > 0).then(|| &text[..end])
}

/// Whether the text between two citations makes one list of them.
fn joins(between: &str) -> bool {
    let between = between.trim();
    matches!(between, "," | "and" | "or" | ", and" | ", or" | "–" | "to" | "und")
}

enum Naming {
    Page(String),
    /// The word before is the name of no page: `IEEE 754 §4`.
    Foreign,
    None,
}

/// The name directly before a mark, if any.
fn name(before: &str) -> Naming {
    let trimmed = before.trim_end();
    // A name is followed by one space or one line break.
    if trimmed.len() == before.len() || trimmed.is_empty() {
        return Naming::None;
    }
    let token = trimmed.rsplit(char::is_whitespace).next().unwrap_or_default();
    let token = token.trim_start_matches(['(', '[', '"', '`', '*']).trim_end_matches(['`', '*']);
    let token = token.strip_suffix(".md").unwrap_or(token);
    if token.is_empty() || token.ends_with([',', '.', ';', ':', ')', '(']) {
        return Naming::None;
    }
    let lower = token.to_lowercase();
    let word = lower.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if word && lower.starts_with(|c: char| c.is_ascii_lowercase()) && token[1..] == lower[1..] {
        Naming::Page(lower)
    } else {
        Naming::Foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The citations of a text with `$` for the section sign and `%` for `#`, as `name mark number
    /// line`.
    fn found(text: &str) -> Vec<String> {
        let name = |citation: &Citation| citation.name.clone().unwrap_or_else(|| "-".to_owned());
        let mark = |citation: &Citation| if citation.mark == Mark::Section { '$' } else { '%' };
        let shown = |c: &Citation| format!("{} {}{} {}", name(c), mark(c), c.number, c.line);
        citations(&text.replace('$', "\u{a7}").replace('%', "#")).iter().map(shown).collect()
    }

    #[test]
    fn names_numbers_and_lines() {
        assert_eq!(found("(toy $3). Toy-box $3.1\nand `toy.md` $2b"), ["toy $3 0", "toy-box $3.1 0", "toy $2 1"]);
        assert_eq!(found("toy\n$4"), ["toy $4 1"]);
        assert_eq!(found("toy %2, issue %3"), ["toy %2 0", "issue %3 0"]);
    }

    #[test]
    fn lists_and_ranges_share_the_name() {
        assert_eq!(found("toy $1, $2 and $3.4, box $5"), ["toy $1 0", "toy $2 0", "toy $3.4 0", "box $5 0"]);
        assert_eq!(found("toy $2–4 and $6a, $7"), ["toy $2 0", "toy $4 0", "toy $6 0", "toy $7 0"]);
        assert_eq!(found("toy $2. Then $3"), ["toy $2 0", "then $3 0"]);
        assert_eq!(found("toy $2 and %3"), ["toy $2 0", "and %3 0"]);
    }

    #[test]
    fn a_bare_section_has_no_name_and_foreign_words_are_left_alone() {
        assert_eq!(found("($4.2). see: $3"), ["- $4.2 0", "- $3 0"]);
        assert_eq!(found("IEEE 754 $4, x%3, %[derive], $x"), [""; 0]);
    }
}
