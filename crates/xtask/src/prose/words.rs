//! The words that docs/style.md rules out, and where a text has them.

use std::collections::BTreeMap;

use crate::markdown::{Page, without_code};
use crate::report::Finding;

/// The heading of docs/style.md above the table.
const HEADING: &str = "Prose";

/// The left column of the table, by first word.
#[derive(Debug, Default)]
pub(super) struct WordList {
    by_first: BTreeMap<String, Vec<Phrase>>,
}

#[derive(Debug)]
struct Phrase {
    words: Vec<String>,
    instead: String,
}

/// A ruled-out phrase in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Counted from 0 within the text.
    pub(super) line: usize,
    pub(super) phrase: String,
    pub(super) instead: String,
}

impl WordList {
    /// Reads the table "not | but" of docs/style.md.
    pub(super) fn read(page: &Page) -> Result<Self, Finding> {
        let rows = page.table(HEADING).unwrap_or_default();
        let mut list = Self::default();
        for row in &rows {
            let [not, but, ..] = row.cells.as_slice() else { continue };
            for phrase in not.split(',') {
                let words: Vec<String> = phrase.split_whitespace().map(str::to_lowercase).collect();
                if let Some(first) = words.first() {
                    let phrase = Phrase { words: words.clone(), instead: but.clone() };
                    list.by_first.entry(first.clone()).or_default().push(phrase);
                }
            }
        }
        if list.by_first.is_empty() {
            let message = format!("there is no table \"not | but\" below \"{HEADING}\"");
            return Err(Finding::new(&page.path, 0, message, "list there the words that are out, and what to say"));
        }
        Ok(list)
    }

    /// The hits in a text. Code spans, URLs, link targets and `{placeholders}` are not read.
    pub(super) fn hits(&self, text: &str) -> Vec<Hit> {
        let words = words(&readable(text));
        let mut hits = Vec::new();
        for at in 0..words.len() {
            for phrase in self.by_first.get(&words[at].text).into_iter().flatten() {
                let here = &words[at..words.len().min(at + phrase.words.len())];
                let same = here.iter().map(|w| &w.text).eq(&phrase.words);
                if same && here[1..].iter().all(|word| word.follows) {
                    let phrase_text = phrase.words.join(" ");
                    hits.push(Hit { line: words[at].line, phrase: phrase_text, instead: phrase.instead.clone() });
                }
            }
        }
        hits
    }
}

struct Word {
    /// Converted to lower case.
    text: String,
    line: usize,
    /// Only space is between it and the word before.
    follows: bool,
}

fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut line, mut follows, mut open) = (0, false, false);
    for c in text.chars() {
        if c.is_alphanumeric() || c == '_' {
            if !open {
                words.push(Word { text: String::new(), line, follows });
            }
            if let Some(word) = words.last_mut() {
                word.text.extend(c.to_lowercase());
            }
            (open, follows) = (true, true);
        } else {
            follows &= c.is_whitespace();
            open = false;
        }
        line += usize::from(c == '\n');
    }
    words
}

/// The text with everything masked that is not prose. Lines stay.
fn readable(text: &str) -> String {
    let text = without_code(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let masked = if rest.starts_with("](") {
            rest.find(')').map(|end| end + 1)
        } else if rest.starts_with("http://") || rest.starts_with("https://") {
            Some(rest.find(|c: char| c.is_whitespace() || matches!(c, ')' | '>' | '"')).unwrap_or(rest.len()))
        } else if c == '{' {
            rest.find('}').filter(|end| !rest[1..*end].contains([' ', '\n', '{'])).map(|end| end + 1)
        } else {
            None
        };
        let taken = masked.unwrap_or(c.len_utf8());
        if masked.is_some() {
            out.extend(rest[..taken].chars().map(|c| if c == '\n' { c } else { '·' }));
        } else {
            out.push(c);
        }
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn list() -> WordList {
        let text = "## Prose\n\n| not | but |\n|---|---|\n| zork, zorked | report |\n| if glad be | if necessary |\n| blip | nothing |\n";
        WordList::read(&Page::parse(Path::new("docs/style.md"), text)).unwrap()
    }

    fn hits(text: &str) -> Vec<(usize, String)> {
        list().hits(text).into_iter().map(|hit| (hit.line, hit.phrase)).collect()
    }

    #[test]
    fn whole_words_are_found_in_any_case() {
        assert_eq!(hits("Zorked to zork.\nBLIP so"), [(0, "zorked".into()), (0, "zork".into()), (1, "blip".into())]);
        assert_eq!(hits("unzorked, is_zorked, zorker, blipper"), []);
        assert_eq!(list().hits("zorked")[0].instead, "report");
    }

    #[test]
    fn a_phrase_may_run_over_a_line_but_not_over_punctuation() {
        assert_eq!(hits("if glad\nbe"), [(0, "if glad be".into())]);
        assert_eq!(hits("if glad, be"), []);
        assert_eq!(hits("if glad"), []);
    }

    #[test]
    fn code_urls_targets_and_placeholders_are_not_prose() {
        assert_eq!(hits("`zorked` [x](zorked.md) https://zorked.org/zork {zorked} {zork:?}"), []);
        assert_eq!(hits("``blip `zorked` ``\n[zorked](x.md) {blip so}"), [(1, "zorked".into()), (1, "blip".into())]);
    }

    #[test]
    fn the_table_is_needed() {
        assert!(WordList::read(&Page::parse(Path::new("docs/style.md"), "## Prose\n")).is_err());
    }
}
