//! Markdown as far as the checks need it: headings, tables, fenced code, links.

use std::path::{Component, Path, PathBuf};

use crate::workspace::{self, Result};

/// What a line of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// Prose, a list item, or an empty line.
    Text,
    /// A heading of this level, from 1 to 6.
    Heading(usize),
    /// A row of a table.
    Table,
    /// The opening or closing line of fenced code.
    Fence,
    /// A line of fenced code.
    Code,
    /// A line of an HTML comment.
    Comment,
}

/// A page, line by line.
#[derive(Debug)]
pub(crate) struct Page {
    /// Relative to the root of the workspace.
    pub(crate) path: PathBuf,
    /// Kind and text of each line.
    pub(crate) lines: Vec<(LineKind, String)>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableRow {
    /// Counted from 1.
    pub(crate) line: usize,
    /// Without the space around them.
    pub(crate) cells: Vec<String>,
}

impl Page {
    /// Reads `path`, which is relative to `root`.
    pub(crate) fn read(root: &Path, path: &Path) -> Result<Self> {
        workspace::read(&root.join(path)).map(|text| Self::parse(path, &text))
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Self {
        let (mut fence, mut comment) = (None::<String>, false);
        let mut lines = Vec::new();
        for line in text.lines() {
            let trimmed = line.trim();
            let ticks: String = trimmed.chars().take_while(|c| *c == '`').collect();
            let hashes = line.chars().take_while(|c| *c == '#').count();
            let kind = if let Some(open) = &fence {
                if ticks.len() >= open.len() && ticks.len() == trimmed.len() {
                    fence = None;
                    LineKind::Fence
                } else {
                    LineKind::Code
                }
            } else if ticks.len() >= 3 {
                fence = Some(ticks);
                LineKind::Fence
            } else if comment || trimmed.starts_with("<!--") {
                comment = !trimmed.ends_with("-->");
                LineKind::Comment
            } else if (1..=6).contains(&hashes) && line[hashes..].starts_with(' ') {
                LineKind::Heading(hashes)
            } else if trimmed.starts_with('|') {
                LineKind::Table
            } else {
                LineKind::Text
            };
            lines.push((kind, line.to_owned()));
        }
        Self { path: path.to_owned(), lines }
    }

    /// Line, level and text of each heading.
    pub(crate) fn headings(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.lines.iter().enumerate().filter_map(|(index, (kind, text))| match kind {
            LineKind::Heading(level) => Some((index + 1, *level, text[*level..].trim())),
            _ => None,
        })
    }

    /// The lines below the heading with this text, up to the next heading of its level or above:
    /// pairs of number and text. `None` if there is no such heading.
    pub(crate) fn section(&self, heading: &str) -> Option<Vec<(usize, LineKind, &str)>> {
        let (begin, level, _) = self.headings().find(|(_, _, text)| *text == heading)?;
        let end = self.headings().find(|(line, l, _)| *line > begin && *l <= level).map(|(line, _, _)| line - 1);
        let end = end.unwrap_or(self.lines.len());
        Some((begin..end).map(|index| (index + 1, self.lines[index].0, self.lines[index].1.as_str())).collect())
    }

    /// The rows of the first table below a heading, without its head. `None` if the heading or the
    /// table is missing.
    pub(crate) fn table(&self, heading: &str) -> Option<Vec<TableRow>> {
        let section = self.section(heading)?;
        let begin = section.iter().position(|(_, kind, _)| *kind == LineKind::Table)?;
        let rows = section[begin..].iter().take_while(|(_, kind, _)| *kind == LineKind::Table);
        Some(rows.skip(2).map(|(line, _, text)| TableRow { line: *line, cells: cells(text) }).collect())
    }

    /// Line and target of each link and image, outside of code.
    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (index, (kind, text)) in self.lines.iter().enumerate() {
            if matches!(kind, LineKind::Code | LineKind::Fence | LineKind::Comment) {
                continue;
            }
            let text = without_code(text);
            let mut rest = text.as_str();
            while let Some(at) = rest.find("](") {
                rest = &rest[at + 2..];
                let end = rest.find([')', ' ']).unwrap_or(rest.len());
                links.push((index + 1, rest[..end].to_owned()));
                rest = &rest[end..];
            }
            // A reference definition: `[name]: target`.
            if let Some((name, target)) = text.trim_start().split_once("]: ")
                && name.starts_with('[')
            {
                links.push((index + 1, target.trim().to_owned()));
            }
        }
        links
    }
}

/// The path that a link of `page` leads to, relative to the root and without `..`.
pub(crate) fn resolve(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// What becomes of a link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// The link as it is.
    Kept,
    /// A link to this address or path.
    Replaced(String),
    /// The text without a link.
    Removed,
}

/// The text of a page with the target of each link and image, outside of code and comments,
/// replaced by what `map` returns for it.
pub(crate) fn map_links(text: &str, map: &mut dyn FnMut(&str) -> Target) -> String {
    let page = Page::parse(Path::new(""), text);
    let (mut mapped, mut paragraph) = (Vec::new(), Vec::new());
    for (kind, line) in &page.lines {
        // A link may begin on one line and end on the next.
        let prose = !matches!(kind, LineKind::Code | LineKind::Fence | LineKind::Comment) && !line.trim().is_empty();
        if prose {
            paragraph.push(line.as_str());
            continue;
        }
        if !paragraph.is_empty() {
            mapped.push(map_paragraph(&std::mem::take(&mut paragraph).join("\n"), map));
        }
        mapped.push(line.clone());
    }
    if !paragraph.is_empty() {
        mapped.push(map_paragraph(&paragraph.join("\n"), map));
    }
    let mapped = mapped.join("\n");
    if text.ends_with('\n') { mapped + "\n" } else { mapped }
}

fn map_paragraph(text: &str, map: &mut dyn FnMut(&str) -> Target) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    // Where the texts of links that are not closed yet begin in `out`.
    let mut open = Vec::new();
    while let Some(c) = rest.chars().next() {
        let ticks = rest.chars().take_while(|c| *c == '`').count();
        if ticks > 0 {
            let end = code_end(&rest[ticks..], ticks).map_or(ticks, |end| ticks + end);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        if c == '[' {
            open.push(out.len());
        } else if c == ']'
            && let Some(begin) = open.pop()
            && let Some((target, after)) = rest.strip_prefix("](").and_then(|link| link.split_once(')'))
        {
            match map(target) {
                Target::Kept => out.extend(["](", target, ")"]),
                Target::Replaced(other) => out.extend(["](", &other, ")"]),
                Target::Removed => {
                    let image = out[..begin].ends_with('!');
                    out.replace_range(begin - usize::from(image)..=begin, "");
                }
            }
            rest = after;
            continue;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// The length of a code span's rest with the run of backquotes that closes it.
fn code_end(text: &str, ticks: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find('`') {
        let begin = from + at;
        let run = text[begin..].chars().take_while(|c| *c == '`').count();
        from = begin + run;
        if run == ticks {
            return Some(from);
        }
    }
    None
}

/// The cells of a table row. A `|` in backquotes, or one with a backslash before it, is text.
pub(crate) fn cells(row: &str) -> Vec<String> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let row = row.strip_suffix('|').unwrap_or(row);
    let (mut cells, mut cell, mut code, mut escaped) = (Vec::new(), String::new(), false, false);
    for c in row.chars() {
        if c == '|' && !code && !escaped {
            cells.push(cell.trim().to_owned());
            cell.clear();
        } else {
            code ^= c == '`';
            cell.push(c);
        }
        escaped = c == '\\';
    }
    cells.push(cell.trim().to_owned());
    cells
}

/// The parts of a text that stand in single backquotes.
pub(crate) fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The text with each code span masked by `·`. Line breaks stay.
pub(crate) fn without_code(text: &str) -> String {
    let (mut out, mut open) = (String::with_capacity(text.len()), None::<usize>);
    let mut rest = text;
    while let Some(at) = rest.find('`') {
        let ticks = rest[at..].chars().take_while(|c| *c == '`').count();
        let (before, after) = (&rest[..at], &rest[at + ticks..]);
        match open {
            None if code_end(after, ticks).is_some() => {
                out.push_str(before);
                open = Some(ticks);
            }
            Some(n) if n == ticks => {
                out.extend(before.chars().map(mask));
                open = None;
            }
            Some(_) => out.extend(before.chars().map(mask)),
            None => out.push_str(before),
        }
        out.extend(std::iter::repeat_n('·', ticks));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn mask(c: char) -> char {
    if c == '\n' { c } else { '·' }
}

/// The fragment under which GitHub shows a heading.
pub(crate) fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Title
Text with `a | b` and a [link](docs/x.md#part).

## First
| floor | crate |
|---|---|
| 0 | `a`, `b` |
| 1 | `c|d` |

```sh
# no heading, [no link](nowhere.md)
```
### Inner
| other |
|---|
| row |
## Second
<!-- a comment
[no link](nowhere.md) -->
";

    #[test]
    fn headings_sections_and_tables() {
        let page = Page::parse(Path::new("p.md"), PAGE);
        let headings: Vec<_> = page.headings().collect();
        assert_eq!(headings, [(1, 1, "Title"), (4, 2, "First"), (13, 3, "Inner"), (17, 2, "Second")]);
        let section = page.section("First").unwrap();
        assert_eq!((section[0].0, section.last().unwrap().0), (5, 16));
        let rows = page.table("First").unwrap();
        assert_eq!(rows[0], TableRow { line: 7, cells: vec!["0".into(), "`a`, `b`".into()] });
        assert_eq!(rows[1].cells, ["1", "`c|d`"]);
        assert_eq!(page.table("Inner").unwrap()[0].cells, ["row"]);
        assert_eq!(page.table("Second"), None);
        assert!(page.section("Third").is_none());
    }

    #[test]
    fn links_are_found_outside_of_code_and_comments() {
        assert_eq!(Page::parse(Path::new("p.md"), PAGE).links(), [(2, "docs/x.md#part".to_owned())]);
        let page = Page::parse(Path::new("p.md"), "`[a](b)` ![img](c.svg)\n[ref]: d.md\n");
        assert_eq!(page.links(), [(1, "c.svg".to_owned()), (2, "d.md".to_owned())]);
    }

    #[test]
    fn links_are_mapped_outside_of_code() {
        let mut seen = Vec::new();
        let mut map = |target: &str| {
            seen.push(target.to_owned());
            match target {
                "a" => Target::Replaced("x/a".to_owned()),
                "b" => Target::Removed,
                _ => Target::Kept,
            }
        };
        let text = "[one\nmore](a), ![`two` of](b) `[c](a)` [](d)\n```\n[e](a)\n```\n| [[f]](a) |";
        let mapped = map_links(text, &mut map);
        assert_eq!(mapped, "[one\nmore](x/a), `two` of `[c](a)` [](d)\n```\n[e](a)\n```\n| [[f]](x/a) |");
        assert_eq!(seen, ["a", "b", "d", "a"]);
        assert_eq!(resolve(Path::new("docs/a/b.md"), "../c.md"), Path::new("docs/c.md"));
    }

    #[test]
    fn code_spans_and_slugs() {
        assert_eq!(code_spans("`a` and `b c`"), ["a", "b c"]);
        assert_eq!(without_code("x `told` y"), "x ······ y");
        assert_eq!(without_code("``a `b` c`` d"), "··········· d");
        assert_eq!(without_code("an open ` backquote"), "an open · backquote");
        assert_eq!(slug("3.1 What `e5rt` writes"), "31-what-e5rt-writes");
    }
}
