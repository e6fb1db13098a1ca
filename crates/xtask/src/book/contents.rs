//! docs/SUMMARY.md: the order of the pages.
//!
//! Its links are relative to docs/, as those of any page are. A comment `<!-- codes -->` or
//! `<!-- commands -->` stands for the generated pages of that folder, at its indentation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Stage, in_book};
use crate::markdown::{Page, Target, map_links, resolve};
use crate::report::Finding;
use crate::workspace::{self, Result};

const FILE: &str = "docs/SUMMARY.md";

/// The table of contents, as mdBook reads it.
#[derive(Debug)]
pub(super) struct Contents {
    text: String,
}

/// One line of it.
#[derive(Debug)]
pub(super) enum ContentsLine {
    /// The heading of a part.
    Part(String),
    /// A page: its title and path.
    Page(String, PathBuf),
}

impl Contents {
    /// Reads the file and fills in the generated pages of the stage.
    pub(super) fn read(root: &Path, stage: &Stage) -> Result<Self> {
        let written = workspace::read(&root.join(FILE))?;
        let mut text = String::new();
        for line in written.lines() {
            let marker = line.trim().strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            let Some(folder) = marker else {
                text += &map_links(line, &mut |target| {
                    Target::Replaced(in_book(&resolve(Path::new(FILE), target)).display().to_string())
                });
                text.push('\n');
                continue;
            };
            let pages = stage.below(folder);
            if pages.is_empty() {
                return Err(format!("{FILE}: there are no generated pages for `{}`", line.trim()));
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            for (path, title) in pages {
                text += &format!("{indent}- [{title}]({})\n", path.display());
            }
        }
        Ok(Self { text })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Parts and pages in their order.
    pub(super) fn lines(&self) -> Vec<ContentsLine> {
        let page = Page::parse(Path::new(FILE), &self.text);
        let mut lines = Vec::new();
        // The first heading is that of the list.
        for (_, line) in page.lines.iter().skip(1) {
            if let Some(part) = line.strip_prefix("# ") {
                lines.push(ContentsLine::Part(part.to_owned()));
            } else if let Some((_, rest)) = line.split_once('[')
                && let Some((title, rest)) = rest.split_once("](")
                && let Some((path, _)) = rest.split_once(')')
            {
                lines.push(ContentsLine::Page(title.to_owned(), PathBuf::from(path)));
            }
        }
        lines
    }

    /// Reports pages that are not in the list.
    pub(super) fn missing(&self, stage: &Stage) -> Vec<Finding> {
        let listed: BTreeSet<PathBuf> = self
            .lines()
            .into_iter()
            .filter_map(|line| match line {
                ContentsLine::Page(_, path) => Some(path),
                ContentsLine::Part(_) => None,
            })
            .collect();
        let missing = stage.paths().filter(|path| !listed.contains(*path));
        let file = |path: &Path| stage.source(path).unwrap_or(path).to_owned();
        missing.map(|path| Finding::new(file(path), 0, "the page is not in docs/SUMMARY.md", "list it there")).collect()
    }
}
