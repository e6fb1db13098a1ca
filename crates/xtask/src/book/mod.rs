//! `cargo xtask book`: the pages of the project as one book.
//!
//! The pages stay where a reader of the repository finds them; docs/SUMMARY.md gives their order.
//! The chore copies them into one folder ([`stage`]), with the links turned to their places in the
//! book, a page for each diagnostic code and one for each command, has mdBook build that folder,
//! and then follows every link of the result ([`html`]). [`llms`] lists the pages for programs
//! that read text.
//!
//! The address of a code, `codes/E0421.html`, does not change: SARIF logs and editors refer to it.

mod contents;
mod html;
mod llms;
mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::contents::Contents;
use self::stage::Stage;
use crate::arguments::Arguments;
use crate::report::conclude;
use crate::workspace::{self, Result};

const USAGE: &str = "\
usage: cargo xtask book [--out FOLDER] [--ferrane FILE] [--mdbook FILE]

Builds the book from README.md, docs/ and the other pages, in the order of docs/SUMMARY.md, and checks that every page is
in it and that every link of it leads somewhere. docs/book.toml configures mdBook, which
`cargo install mdbook --locked --no-default-features --features search` installs.

options
  --out FOLDER    where the book goes, a new or empty folder; the default is book/html in cargo's target folder
  --ferrane FILE  the command whose options are described; the default is release/ferrane of cargo's target folder
  --mdbook FILE   mdBook; the default is `mdbook`";

/// `cargo xtask book --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &[], &["--out", "--ferrane", "--mdbook"], USAGE)?;
    if let Some(extra) = arguments.positional.first() {
        return Err(format!("unexpected argument `{extra}`\n\n{USAGE}"));
    }
    let root = workspace::root()?;
    let target = workspace::target(&root);
    let folder = target.join("book");
    let out = workspace::output(arguments.value("--out"), folder.join("html"))?;
    let ferrane = workspace::command(&root, arguments.value("--ferrane"))?;

    let mut stage = Stage::read(&root)?;
    stage.split_codes()?;
    stage.add_commands(&commands(&ferrane)?);
    let contents = Contents::read(&root, &stage)?;
    let mut findings = contents.missing(&stage);
    findings.extend(stage.write(&root, &folder.join("src"), contents.text())?);
    if !findings.is_empty() {
        return conclude("book", findings);
    }
    let settings = workspace::read(&root.join("docs/book.toml"))?;
    workspace::write(&folder.join("book.toml"), &settings)?;
    build(arguments.value("--mdbook").unwrap_or("mdbook"), &folder, &out)?;
    llms::write(&stage, &contents, &folder.join("src"), &out)?;
    let (pages, findings) = html::check(&out)?;
    println!("book: {pages} pages in {}", out.display());
    conclude("book", findings)
}

/// The pages of the commands, as `ferrane man` writes them: the path in the book, and the text.
fn commands(ferrane: &Path) -> Result<Vec<(String, String)>> {
    let folder = tempfile::tempdir().map_err(|e| format!("cannot make a scratch folder: {e}"))?;
    let output = Command::new(ferrane).args(["man", "--format", "markdown", "--out"]).arg(folder.path()).output();
    let output = output.map_err(|e| format!("{}: {e}", ferrane.display()))?;
    if !output.status.success() {
        return Err(format!("`ferrane man` fails\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let mut pages = Vec::new();
    for path in workspace::files(folder.path(), Path::new(""), &|path| workspace::extension(path) == "md")? {
        let text = workspace::read(&folder.path().join(&path))?;
        pages.push((format!("commands/{}", path.display()), text));
    }
    Ok(pages)
}

fn build(mdbook: &str, folder: &Path, out: &Path) -> Result<()> {
    let out = std::path::absolute(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let status = Command::new(mdbook).arg("build").arg(folder).arg("--dest-dir").arg(&out).status();
    let status = status.map_err(|e| {
        format!(
            "`{mdbook}` does not start: {e}; `cargo install mdbook --locked --no-default-features --features search` \
             installs it, --mdbook names another"
        )
    })?;
    if status.success() { Ok(()) } else { Err(format!("`{mdbook} build` fails: {status}")) }
}

/// Where a file of the repository is in the book. A page that stands for its folder is the index
/// there, as on the web.
fn in_book(source: &Path) -> PathBuf {
    let path = source.strip_prefix("docs").unwrap_or(source);
    if path.ends_with("README.md") { path.with_file_name("index.md") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::made_up;

    const SUMMARY: &str = "# Summary\n\n[Start](../README.md)\n\n- [Codes](errors.md)\n  <!-- codes -->\n- [A](a.md)\n";

    fn made() -> tempfile::TempDir {
        made_up::workspace(&[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/x/Cargo.toml", "[package]\nname = \"x\"\n"),
            ("README.md", "# Start\n[a](docs/a.md#part) [the code](crates/x/Cargo.toml) `[a](b)` ![p](docs/p.svg)\n"),
            ("docs/a.md", "# A\nSee [E0101](errors.md#e0101), [all](errors.md), [start](../README.md).\n"),
            (
                "docs/errors.md",
                "# Codes\n\nIntro.\n\n<a id=\"e0101\"></a>\n\n## E0101: bytes\n\nText of [a](a.md).\n\n<a id=\"e0102\"></a>\n\n## E0102: token\n\nMore.\n",
            ),
            ("docs/p.svg", "<svg/>"),
            ("docs/SUMMARY.md", SUMMARY),
        ])
    }

    fn staged(root: &Path) -> (Stage, Contents) {
        let mut stage = Stage::read(root).unwrap();
        stage.split_codes().unwrap();
        let contents = Contents::read(root, &stage).unwrap();
        (stage, contents)
    }

    #[test]
    fn links_lead_to_places_in_the_book() {
        let made = made();
        let (stage, contents) = staged(made.path());
        assert_eq!(contents.missing(&stage), []);
        let out = made.path().join("out");
        assert_eq!(stage.write(made.path(), &out, contents.text()).unwrap(), []);
        let read = |path: &str| workspace::read(&out.join(path)).unwrap();
        assert_eq!(read("index.md"), "# Start\n[a](a.md#part) the code `[a](b)` ![p](p.svg)\n");
        assert_eq!(read("a.md"), "# A\nSee [E0101](codes/E0101.md), [all](errors.md), [start](index.md).\n");
        assert!(read("codes/E0101.md").starts_with("# E0101: bytes\n\nText of [a](../a.md).\n"));
        assert!(read("errors.md").ends_with("\n- [E0101](codes/E0101.md): bytes\n- [E0102](codes/E0102.md): token\n"));
        assert!(
            read("SUMMARY.md").contains("\n  - [E0101: bytes](codes/E0101.md)\n  - [E0102: token](codes/E0102.md)\n")
        );
        assert!(out.join("p.svg").exists());
    }

    #[test]
    fn a_repository_takes_the_links_to_files() {
        let made = made();
        made_up::add(made.path(), "Cargo.toml", "[workspace.package]\nrepository = \"https://example.org/r/\"\n");
        let (stage, contents) = staged(made.path());
        let out = made.path().join("out");
        stage.write(made.path(), &out, contents.text()).unwrap();
        let text = workspace::read(&out.join("index.md")).unwrap();
        assert!(text.contains("[the code](https://example.org/r/tree/HEAD/crates/x/Cargo.toml)"), "{text}");
    }

    #[test]
    fn links_to_nothing_and_pages_outside_of_the_summary_are_reported() {
        let made = made();
        made_up::add(made.path(), "docs/guide/b.md", "# B\n[gone](../gone.md)\n");
        let (stage, contents) = staged(made.path());
        let missing = contents.missing(&stage);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].file, Path::new("docs/guide/b.md"));
        let dead = stage.write(made.path(), &made.path().join("out"), contents.text()).unwrap();
        assert_eq!(dead.len(), 1);
        assert!(dead[0].message.contains("leads to docs/gone.md"), "{}", dead[0]);
    }
}
