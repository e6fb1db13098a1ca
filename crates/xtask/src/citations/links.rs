//! Links of the pages: their targets, and the pages that none leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::markdown::{Page, resolve, slug};
use crate::passages::Passage;
use crate::report::Finding;

/// The page from which every other one must be reachable.
const START: &str = "README.md";

/// Reports links that lead nowhere, and pages of docs/ that no chain of links leads to.
pub(super) fn check(root: &Path, pages: &[Page]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let by_path: BTreeMap<&Path, &Page> = pages.iter().map(|page| (page.path.as_path(), page)).collect();
    let mut leads: BTreeMap<&Path, Vec<PathBuf>> = BTreeMap::new();
    for page in pages {
        for (line, target) in page.links() {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { page.path.clone() } else { resolve(&page.path, file) };
            if !root.join(&path).exists() {
                let message = format!("the link `{target}` leads to {}, which does not exist", path.display());
                findings.push(Finding::new(&page.path, line, message, "write the path relative to this page"));
                continue;
            }
            if let Some(other) = by_path.get(path.as_path()).filter(|_| !fragment.is_empty())
                && !fragments(other).contains(fragment)
            {
                let message = format!("{} has no heading for the link `{target}`", path.display());
                findings.push(Finding::new(
                    &page.path,
                    line,
                    message,
                    "write the heading in lower case, with - for spaces",
                ));
            }
            leads.entry(page.path.as_path()).or_default().push(path);
        }
    }
    let mut reached = BTreeSet::from([PathBuf::from(START)]);
    let mut pending = vec![PathBuf::from(START)];
    while let Some(page) = pending.pop() {
        for target in leads.get(page.as_path()).into_iter().flatten() {
            if reached.insert(target.clone()) {
                pending.push(target.clone());
            }
        }
    }
    for page in pages.iter().filter(|page| page.path.starts_with("docs") && !reached.contains(&page.path)) {
        let message = format!("no chain of links leads from {START} to this page");
        findings.push(Finding::new(&page.path, 0, message, "link it from the page that a reader comes from"));
    }
    findings
}

/// Reports pages of docs/ that a comment names and that do not exist.
pub(super) fn named_pages(root: &Path, path: &Path, passage: &Passage) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = passage.text.as_str();
    for (at, _) in text.match_indices("docs/") {
        let before = text[..at].chars().next_back();
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c))).unwrap_or(rest.len());
        let named = rest[..end].trim_end_matches('.');
        // Part of a longer path, or of a URL.
        let longer = before.is_some_and(|c| c.is_alphanumeric() || c == '/' || c == '.');
        if longer || !named.ends_with(".md") || root.join(named).is_file() {
            continue;
        }
        let line = passage.line + text[..at].matches('\n').count();
        let message = format!("there is no {named}");
        findings.push(Finding::new(path, line, message, "name a page that exists"));
    }
    findings
}

/// What a link to the page may have after `#`.
fn fragments(page: &Page) -> BTreeSet<String> {
    let mut fragments = BTreeSet::new();
    for (_, _, heading) in page.headings() {
        let slug = slug(heading);
        // GitHub numbers headings of one text.
        let again = (1..).map(|n| format!("{slug}-{n}")).find(|slug| !fragments.contains(slug));
        if !fragments.insert(slug) {
            fragments.extend(again);
        }
    }
    for (_, text) in &page.lines {
        fragments.extend(text.split("<a id=\"").skip(1).filter_map(|a| a.split('"').next()).map(str::to_owned));
    }
    fragments
}
