//! The pages of docs/reference/: which sections each of them has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::found::Mark;
use crate::markdown::{LineKind, Page, cells};
use crate::workspace::{self, Result, extension};

/// Where the pages are.
pub(super) const FOLDER: &str = "docs/reference";

/// The numbers that can be cited, by the name of the page.
#[derive(Debug, Default)]
pub(super) struct Reference {
    pages: BTreeMap<String, Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    /// Of headings, and ids of anchors.
    sections: BTreeSet<String>,
    /// Of list items and table rows too.
    entries: BTreeSet<String>,
}

impl Reference {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut reference = Self::default();
        for path in workspace::files(root, Path::new(FOLDER), &|path| extension(path) == "md")? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            reference.pages.insert(name, numbers(&Page::read(root, &path)?));
        }
        Ok(reference)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.pages.contains_key(name)
    }

    /// Message and remedy if the section does not exist.
    pub(super) fn objection(&self, name: &str, mark: Mark, number: &str) -> Option<(String, String)> {
        let Some(page) = self.pages.get(name) else {
            let message = format!("`{name}` is no page of {FOLDER}");
            let known: Vec<&str> = self.pages.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there is none yet".to_owned() } else { known.join(", ") };
            return Some((message, format!("cite one of its pages: {known}")));
        };
        let (found, sign, what) = match mark {
            Mark::Section => (page.sections.contains(number), '§', "heading"),
            Mark::Number => (page.entries.contains(number), '#', "entry"),
        };
        let message = format!("{FOLDER}/{name}.md has no {what} {number}, cited as `{name} {sign}{number}`");
        let remedy =
            format!("begin the {what} with the number {number}, write <a id=\"{number}\"></a> there, or cite another");
        (!found).then_some((message, remedy))
    }
}

fn numbers(page: &Page) -> Numbers {
    let mut numbers = Numbers::default();
    for (kind, text) in &page.lines {
        match kind {
            LineKind::Heading(level) => numbers.sections.extend(leading(text[*level..].trim())),
            LineKind::Table => numbers.entries.extend(cells(text).first().and_then(|cell| whole(cell))),
            LineKind::Text => {
                let item = text.trim_start().trim_start_matches("- ").trim_start_matches(['§', '#']);
                numbers.entries.extend(leading(item).filter(|n| item[n.len()..].starts_with(['.', ')'])));
            }
            _ => {}
        }
        for anchor in text.split("<a id=\"").skip(1) {
            numbers.sections.extend(anchor.split('"').next().map(str::to_owned));
        }
    }
    numbers.entries.extend(numbers.sections.iter().cloned());
    numbers
}

/// The number that a text begins with: `3`, `3.1`, also after `§` or `#`.
fn leading(text: &str) -> Option<String> {
    let text = text.trim_start_matches(['§', '#']);
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.');
    let ends = text[number.len()..].starts_with([' ', '.', ')', ':']) || number.len() == text.len();
    (ends && number.starts_with(|c: char| c.is_ascii_digit())).then(|| number.to_owned())
}

/// A text that is nothing but a number.
fn whole(text: &str) -> Option<String> {
    leading(text).filter(|number| text.trim_start_matches(['§', '#']).trim_end_matches('.') == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_items_rows_and_anchors_have_numbers() {
        let text = "# Toy\n## 1 One\n### 1.2. Two\n## No 7\n## 16-bit\n- 3. Three\n4) Four\n| 5 | Five |\n<a id=\"6\"></a> Six\n5.5 is text\n\u{a7}5 begins a line\n\u{a7}é\n";
        let numbers = numbers(&Page::parse(Path::new("docs/reference/toy.md"), text));
        assert_eq!(numbers.sections.iter().collect::<Vec<_>>(), ["1", "1.2", "6"]);
        assert_eq!(numbers.entries.iter().collect::<Vec<_>>(), ["1", "1.2", "3", "4", "5", "6"]);
    }
}
