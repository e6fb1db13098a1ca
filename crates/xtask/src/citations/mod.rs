//! `cargo xtask citations`: whether what a text points at is there.
//!
//! A fact cites its source as `int8` and a section sign with a number: section 3 of
//! docs/reference/int8.md. A numbered entry of a page is cited with `#`. The check finds both in
//! comments, strings, pages, filetests and the machines' data, and looks for the section. It also
//! follows the links of the pages, and the paths of pages that comments name.

mod found;
mod links;
mod reference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::found::{Citation, Mark, citations};
use self::reference::Reference;
use crate::arguments::Arguments;
use crate::lexer::Language;
use crate::markdown::Page;
use crate::passages::{Passage, language, source_passages};
use crate::report::{Finding, conclude};
use crate::workspace::{self, Result, extension};

const USAGE: &str = "\
usage: cargo xtask citations [--count]

Checks that what the texts point at is there:
  sections  `NAME §3.1` is a heading that begins with the number 3.1 in docs/reference/NAME.md, or <a id=\"3.1\"> there;
            `NAME #2` is a heading, a list item or a table row that begins with the number 2, or <a id=\"2\">
  links     a relative link of a page leads to a file and, with a #fragment, to a heading of it
  orphans   every page in docs/ can be reached by links from README.md
  paths     docs/….md named in a comment of a Rust source exists

`NAME §3, §4 and §5` and `NAME §3–5` cite several sections; a bare `§3` in a page of docs/reference/ cites that page.

options
  --count  print the number of unresolved citations per name, and do not fail";

/// Pages, and folders of pages.
const PAGES: [&str; 9] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "crates",
    "filetests",
    "gallery",
    "scripts",
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &["--count"], &[], USAGE)?;
    if let Some(extra) = arguments.positional.first() {
        return Err(format!("unexpected argument `{extra}`\n\n{USAGE}"));
    }
    let root = workspace::root()?;
    let (findings, unresolved) = check(&root)?;
    if arguments.has("--count") {
        for (name, count) in &unresolved {
            println!("{name:<24} {count:>5}");
        }
        println!("{:<24} {:>5}", "all", unresolved.values().sum::<usize>());
        return Ok(());
    }
    conclude("citations", findings)
}

/// `cargo xtask citations --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

/// The findings, and how many citations of each name lead nowhere.
fn check(root: &Path) -> Result<(Vec<Finding>, BTreeMap<String, usize>)> {
    let reference = Reference::read(root)?;
    let mut pages = Vec::new();
    for top in PAGES {
        // Below crates/ a page may be a template.
        let wanted = |path: &Path| extension(path) == "md" && (top != "crates" || path.ends_with("README.md"));
        for path in workspace::files(root, Path::new(top), &wanted)? {
            pages.push(Page::read(root, &path)?);
        }
    }
    let mut findings = links::check(root, &pages);
    let mut unresolved = BTreeMap::new();
    for page in &pages {
        let text = page.lines.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
        let own = page.path.strip_prefix(reference::FOLDER).ok().map(|path| path.with_extension(""));
        let own = own.map(|path| path.to_string_lossy().into_owned());
        let passage = Passage { line: 1, text, comment: false };
        sections(&page.path, &passage, own.as_deref(), &reference, &mut findings, &mut unresolved);
    }
    for (path, text) in sources(root)? {
        let data = language(&path) == Some(Language::Toml);
        let passages = match language(&path) {
            Some(language) if !data => source_passages(language, &text),
            _ => vec![Passage { line: 1, text, comment: false }],
        };
        for passage in &passages {
            sections(&path, passage, None, &reference, &mut findings, &mut unresolved);
            if passage.comment && language(&path) == Some(Language::Rust) {
                findings.extend(links::named_pages(root, &path, passage));
            }
        }
    }
    Ok((findings, unresolved))
}

/// Path and text of each source, filetest and data file that may cite.
fn sources(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut paths = workspace::files(root, Path::new("crates"), &|path| {
        extension(path) == "rs" || path.starts_with("crates/machine/data") && extension(path) == "toml"
    })?;
    paths.extend(workspace::files(root, Path::new("filetests"), &|path| extension(path) == "mil")?);
    paths.into_iter().map(|path| workspace::read(&root.join(&path)).map(|text| (path, text))).collect()
}

fn sections(
    path: &Path,
    passage: &Passage,
    own: Option<&str>,
    reference: &Reference,
    findings: &mut Vec<Finding>,
    unresolved: &mut BTreeMap<String, usize>,
) {
    for citation in citations(&passage.text) {
        let Citation { name, mark, number, line } = &citation;
        // "See" and a section in a page of docs/reference/ cites that page.
        let name = name.as_deref().filter(|name| own.is_none() || reference.has(name) || name.contains('-'));
        let Some(name) = name.or(own) else { continue };
        if *mark == Mark::Number && !reference.has(name) && !name.contains('-') {
            // "issue #3" is no citation.
            continue;
        }
        let Some((message, remedy)) = reference.objection(name, *mark, number) else { continue };
        findings.push(Finding::new(path, passage.line + line, message, remedy));
        *unresolved.entry(name.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
