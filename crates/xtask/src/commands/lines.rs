//! The command lines of a page, and which of them are left out.

use std::fmt;
use std::path::PathBuf;

use crate::markdown::{LineKind, Page};
use crate::report::Finding;

/// What the chore does with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Run,
    /// Left out for this reason.
    Skip(String),
}

/// One command line; continued lines are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// Relative to the root of the workspace.
    pub(super) page: PathBuf,
    /// Of the first line, counted from 1.
    pub(super) number: usize,
    /// Without the prompt and without the space at its end.
    pub(super) text: String,
    pub(super) fate: Fate,
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.page.display(), self.number, self.text)?;
        match &self.fate {
            Fate::Run => Ok(()),
            Fate::Skip(reason) => write!(f, "  ({reason})"),
        }
    }
}

/// A comment that leaves lines out.
#[derive(Debug)]
struct Marker {
    /// Empty for the whole block.
    prefix: String,
    reason: String,
    line: usize,
    used: bool,
}

/// The command lines of a page, in order.
///
/// # Errors
/// A comment that cannot be read, or that leaves no line out.
pub(super) fn of(page: &Page) -> Result<Vec<CommandLine>, Finding> {
    let mut commands = Vec::new();
    let mut markers: Vec<Marker> = Vec::new();
    let mut lines = page.lines.iter().enumerate().peekable();
    while let Some((index, (kind, text))) = lines.next() {
        match kind {
            LineKind::Comment => markers.extend(marker(page, index + 1, text)?),
            LineKind::Fence => {
                let language = text.trim().trim_start_matches('`').trim();
                let mut block = Vec::new();
                for (index, (kind, text)) in lines.by_ref() {
                    if *kind == LineKind::Fence {
                        break;
                    }
                    block.push((index + 1, text.as_str()));
                }
                if matches!(language, "" | "sh" | "console") {
                    commands.extend(joined(&block).into_iter().map(|(number, text)| {
                        let fate = fate(&mut markers, &text);
                        CommandLine { page: page.path.clone(), number, text, fate }
                    }));
                }
                unused(page, &mut markers)?;
            }
            _ => unused(page, &mut markers)?,
        }
    }
    Ok(commands)
}

/// Reads `<!-- commands: skip, REASON -->` or ``<!-- commands: skip `PREFIX`, REASON -->``.
fn marker(page: &Page, line: usize, text: &str) -> Result<Option<Marker>, Finding> {
    let Some(text) = text.trim().strip_prefix("<!-- commands:") else { return Ok(None) };
    let parsed = || {
        let rest = text.strip_suffix("-->")?.trim().strip_prefix("skip")?.trim_start();
        let (prefix, rest) = match rest.strip_prefix('`') {
            Some(rest) => rest.split_once('`')?,
            None => ("", rest),
        };
        let reason = rest.strip_prefix(',')?.trim();
        (!reason.is_empty()).then(|| Marker { prefix: prefix.into(), reason: reason.into(), line, used: false })
    };
    let remedy = "write `<!-- commands: skip, REASON -->`";
    parsed().map(Some).ok_or_else(|| Finding::new(&page.path, line, "the comment cannot be read", remedy))
}

/// Forgets the markers, each of which must have left a line out.
fn unused(page: &Page, markers: &mut Vec<Marker>) -> Result<(), Finding> {
    match std::mem::take(markers).into_iter().find(|marker| !marker.used) {
        None => Ok(()),
        Some(marker) => Err(Finding::new(&page.path, marker.line, "the comment leaves no line out", "remove it")),
    }
}

fn fate(markers: &mut [Marker], text: &str) -> Fate {
    match markers.iter_mut().find(|marker| text.starts_with(&marker.prefix)) {
        None => Fate::Run,
        Some(marker) => {
            marker.used = true;
            Fate::Skip(marker.reason.clone())
        }
    }
}

/// The commands of a block with their line numbers: without prompts, output, comments and empty
/// lines, and with continued lines joined.
fn joined(block: &[(usize, &str)]) -> Vec<(usize, String)> {
    let prompts = block.iter().any(|(_, text)| text.starts_with("$ "));
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (number, text) in block {
        let command = text.strip_prefix("$ ");
        if prompts && command.is_none() && !continued {
            continue;
        }
        let text = command.unwrap_or(text).trim_end();
        match commands.last_mut() {
            Some((_, begun)) if continued => *begun = format!("{} {}", begun.trim_end(), text.trim_start()),
            _ => commands.push((*number, text.to_owned())),
        }
        continued = text.ends_with('\\');
        if let Some((_, begun)) = commands.last_mut()
            && continued
        {
            begun.pop();
        }
    }
    commands.retain(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    commands
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, String> {
        let found = of(&Page::parse(Path::new("p.md"), text));
        found.map(|list| list.iter().map(ToString::to_string).collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn blocks_of_a_shell_hold_commands() {
        let page = "```\na   # why\n\nb \\\n  c\n```\n```text\nno\n```\n```sh\n# no\n$ d\noutput\n```\n";
        assert_eq!(shown(page).unwrap(), ["p.md:2: a   # why", "p.md:4: b c", "p.md:12: d"]);
    }

    #[test]
    fn comments_leave_out_blocks_and_lines() {
        let page = "<!-- commands: skip, needs a Mac -->\n```\na\n```\n<!-- commands: skip `b x`, slow -->\n```\nb x y\nb\n```\n";
        assert_eq!(shown(page).unwrap(), ["p.md:3: a  (needs a Mac)", "p.md:7: b x y  (slow)", "p.md:8: b"]);
    }

    #[test]
    fn comments_that_do_nothing_are_findings() {
        let unread = shown("<!-- commands: skip -->\n```\na\n```\n").unwrap_err();
        assert!(unread.starts_with("p.md:1: the comment cannot be read"), "{unread}");
        for page in ["<!-- commands: skip, slow -->\ntext\n", "<!-- commands: skip `b`, slow -->\n```\na\n```\n"] {
            assert!(shown(page).unwrap_err().starts_with("p.md:1: the comment leaves no line out"), "{page}");
        }
    }
}
