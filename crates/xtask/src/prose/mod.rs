//! `cargo xtask prose`: what a program can check of docs/style.md.
//!
//! Words of the style page's table in comments, strings and pages; comment lines that are too wide;
//! doc comments that say nothing. Code is never read: identifiers, code spans, fenced code.

mod paragraphs;
mod stubs;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::words::WordList;
use crate::arguments::Arguments;
use crate::lexer::Language;
use crate::markdown::Page;
use crate::passages::{Passage, language, page_passages, source_passages};
use crate::report::{Finding, conclude};
use crate::workspace::{self, Result, extension};

const STYLE: &str = "docs/style.md";

const USAGE: &str = "\
usage: cargo xtask prose [--count | --fix] [PATH …]

Checks comments, doc comments, strings and pages, of the whole workspace or of the files at and below each PATH:
  words  those in the left column of the table in docs/style.md, as whole words in any case
  width  comment lines of more than 100 columns; tables, code and lines with a URL may be wider
  stubs  doc comments of at most 3 words, or that only repeat the item's name (\"Its name.\")

Identifiers, code in backquotes and fenced code are not prose. A comment `prose: quoted` on a line exempts the strings
that begin on that line or the next.

options
  --count  print the number of findings per crate, and do not fail
  --fix    wrap the paragraphs of comments that are too wide";

/// Folders and files that quote what others published, or list the words themselves.
const EXEMPT: [&str; 6] =
    [STYLE, "docs/claims.md", "crates/machine/data", "crates/train/src/data/story", "filetests/golden", "LICENSE"];

/// Pages in the root of the workspace.
const PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Concern {
    Words,
    Width,
    Stubs,
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &["--count", "--fix"], &[], USAGE)?;
    let root = workspace::root()?;
    let list = match WordList::read(&Page::read(&root, Path::new(STYLE))?) {
        Ok(list) => list,
        Err(finding) => return conclude("prose", vec![finding]),
    };
    let files = files(&root, &arguments.positional)?;
    if arguments.has("--fix") {
        return fix(&root, &files);
    }
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(check(file, &workspace::read(&root.join(file))?, &list));
    }
    if arguments.has("--count") {
        print!("{}", table(&findings));
        return Ok(());
    }
    conclude("prose", findings.into_iter().map(|(_, finding)| finding).collect())
}

/// `cargo xtask prose --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

/// The files to check, relative to the root: those of the workspace at or below each of `paths`,
/// or all.
fn files(root: &Path, paths: &[String]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for folder in ["crates", "docs", "filetests", "gallery", "scripts"].iter().chain(&PAGES) {
        all.extend(workspace::files(root, Path::new(folder), &|path| {
            (language(path).is_some() || extension(path) == "md") && !EXEMPT.iter().any(|e| path.starts_with(e))
        })?);
    }
    if paths.is_empty() {
        return Ok(all);
    }
    let mut chosen = Vec::new();
    for path in paths {
        let wanted = workspace::relative(root, path)?;
        let before = chosen.len();
        chosen.extend(all.iter().filter(|file| file.starts_with(&wanted)).cloned());
        if chosen.len() == before {
            return Err(format!("{path} has no file that this check reads"));
        }
    }
    Ok(chosen)
}

fn check(path: &Path, text: &str, list: &WordList) -> Vec<(Concern, Finding)> {
    let mut findings = Vec::new();
    let mut words = |passage: &Passage| {
        for hit in list.hits(&passage.text) {
            let line = passage.line + hit.line;
            let message = format!("`{}` is out", hit.phrase);
            findings.push((Concern::Words, Finding::new(path, line, message, format!("instead: {}", hit.instead))));
        }
    };
    let Some(language) = language(path) else {
        page_passages(&Page::parse(path, text)).iter().for_each(&mut words);
        return findings;
    };
    source_passages(language, text).iter().for_each(&mut words);
    for (line, width) in paragraphs::wide_lines(language, text) {
        let message = format!("this comment line has {width} columns, and may have {}", paragraphs::WIDTH);
        let remedy = format!("`cargo xtask prose --fix {}` wraps it", path.display());
        findings.push((Concern::Width, Finding::new(path, line, message, remedy)));
    }
    if language == Language::Rust {
        for stub in stubs::stubs(text) {
            let message = format!("the documentation \"{}\" says nothing", stub.text);
            let remedy =
                "give a unit, a shape, a range, an owner or what an empty value means; of a private item, remove it";
            findings.push((Concern::Stubs, Finding::new(path, stub.line, message, remedy)));
        }
    }
    findings
}

fn fix(root: &Path, files: &[PathBuf]) -> Result<()> {
    let mut changed = 0;
    for file in files {
        let Some(language) = language(file) else { continue };
        let text = workspace::read(&root.join(file))?;
        let fixed = paragraphs::reflow(language, &text);
        if fixed != text {
            workspace::write(&root.join(file), &fixed)?;
            println!("{}", file.display());
            changed += 1;
        }
    }
    println!("{changed} files changed");
    Ok(())
}

/// The number of findings of each concern, by crate or top folder.
fn table(findings: &[(Concern, Finding)]) -> String {
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for (concern, finding) in findings {
        let mut parts = finding.file.iter().map(|part| part.to_string_lossy());
        let first = parts.next().unwrap_or_default();
        let name = if first == "crates" { parts.next().unwrap_or_default() } else { first };
        counts.entry(name.into_owned()).or_default()[*concern as usize] += 1;
    }
    let mut text = format!("{:<18} {:>6} {:>6} {:>6}\n", "", "words", "width", "stubs");
    let mut total = [0; 3];
    for (name, row) in &counts {
        text += &format!("{name:<18} {:>6} {:>6} {:>6}\n", row[0], row[1], row[2]);
        total.iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
    }
    text + &format!("{:<18} {:>6} {:>6} {:>6}\n", "all", total[0], total[1], total[2])
}

#[cfg(test)]
mod tests;
