//! The links of the book that mdBook has built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::markdown::resolve;
use crate::report::Finding;
use crate::workspace::{self, Result, extension};

/// Pages whose links are relative to wherever the book is served from.
const SPECIAL: [&str; 3] = ["404.html", "print.html", "toc.html"];

/// What a built page offers and refers to.
struct Built {
    ids: BTreeSet<String>,
    links: Vec<String>,
}

/// The number of pages, and the links that lead nowhere.
pub(super) fn check(folder: &Path) -> Result<(usize, Vec<Finding>)> {
    let mut pages = BTreeMap::new();
    for path in workspace::files(folder, Path::new(""), &|path| extension(path) == "html")? {
        if SPECIAL.iter().any(|special| path == Path::new(special)) {
            continue;
        }
        let text = workspace::read(&folder.join(&path))?;
        let built = Built { ids: attribute(&text, "id"), links: links(&text) };
        pages.insert(path, built);
    }
    let mut findings = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if let Some(message) = wrong(folder, &pages, path, link) {
                findings.push(Finding::new(path, 0, message, ""));
            }
        }
    }
    Ok((pages.len(), findings))
}

fn wrong(folder: &Path, pages: &BTreeMap<PathBuf, Built>, page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:") {
        return None;
    }
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let file = file.split('?').next().unwrap_or_default();
    let path = if file.is_empty() { page.to_owned() } else { resolve(page, file) };
    if !folder.join(&path).exists() {
        return Some(format!("the link `{link}` leads to {}, which does not exist", path.display()));
    }
    let ids = pages.get(&path).map(|page| &page.ids)?;
    let known = fragment.is_empty() || ids.contains(fragment);
    (!known).then(|| format!("{} has no place `{fragment}`", path.display()))
}

fn links(text: &str) -> Vec<String> {
    ["href", "src"].iter().flat_map(|name| attribute(text, name)).collect()
}

/// The values of an attribute. mdBook quotes all of them.
fn attribute(text: &str, name: &str) -> BTreeSet<String> {
    let quoted = format!(" {name}=\"");
    text.split(&quoted)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(|value| value.replace("&amp;", "&"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::made_up;

    #[test]
    fn links_need_a_file_and_a_place() {
        let made = made_up::workspace(&[
            ("index.html", r##"<a href="a/b.html#x">1</a><a href="#top">2</a><h1 id="top">T</h1><img src="p.svg">"##),
            (
                "a/b.html",
                r#"<h2 id="x">X</h2><a href="../index.html#none">1</a><a href="https://example.org/#q">2</a>"#,
            ),
            ("404.html", r#"<a href="/nowhere.html">1</a>"#),
        ]);
        let (pages, findings) = check(made.path()).unwrap();
        assert_eq!(pages, 2);
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "a/b.html: index.html has no place `none`",
                "index.html: the link `p.svg` leads to p.svg, which does not exist"
            ]
        );
    }
}
