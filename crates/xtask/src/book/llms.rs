//! llms.txt: the pages as Markdown, listed with what each is about (<https://llmstxt.org>).

use std::path::Path;

use super::contents::{Contents, ContentsLine};
use super::stage::Stage;
use crate::markdown::{LineKind, Page};
use crate::workspace::{self, Result};

/// Copies the pages of `folder`, which mdBook has read, into the built book, and writes the list of
/// them.
pub(super) fn write(stage: &Stage, contents: &Contents, folder: &Path, out: &Path) -> Result<()> {
    let mut list = String::from("# Ferrane\n");
    if let Some(page) = stage.page(Path::new("index.md")) {
        list += &format!("\n> {}\n", first_paragraph(&page));
    }
    for entry in contents.lines() {
        match entry {
            ContentsLine::Part(part) => list += &format!("\n## {part}\n\n"),
            ContentsLine::Page(title, path) => {
                let about = stage.page(&path).map(|page| first_sentence(&first_paragraph(&page))).unwrap_or_default();
                let about = if about.is_empty() { about } else { format!(": {about}") };
                list += &format!("- [{title}]({}){about}\n", path.display());
                let to = out.join(&path);
                std::fs::copy(folder.join(&path), &to).map_err(|e| format!("cannot write {}: {e}", to.display()))?;
            }
        }
    }
    workspace::write(&out.join("llms.txt"), &list)
}

/// The first lines of prose, joined.
fn first_paragraph(page: &Page) -> String {
    let prose = page.lines.iter().skip_while(|(kind, text)| *kind != LineKind::Text || text.trim().is_empty());
    let lines: Vec<&str> = prose
        .take_while(|(kind, text)| *kind == LineKind::Text && !text.trim().is_empty())
        .map(|(_, text)| text.trim())
        .collect();
    lines.join(" ")
}

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].to_owned()
}
