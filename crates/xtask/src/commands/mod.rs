//! The command lines of the pages, run as they are written.
//!
//! The fenced blocks of README.md, CONTRIBUTING.md, docs/*.md, docs/guide and the gallery without a
//! language, or with `sh` or `console`, hold command lines ([`lines`]). They run in the order of
//! the pages in one scratch folder, a copy of the tracked files with fixtures for the names that
//! the pages use ([`fixtures`]). The first line that fails ends the chore.
//!
//! `ferrane` is the binary that `cargo build --release` built, and `cargo run --release --` stands
//! for it, so that nothing is built again.

mod fixtures;
mod lines;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use self::lines::Fate;
use crate::arguments::Arguments;
use crate::markdown::Page;
use crate::report::Finding;
use crate::workspace::{self, Result};

const USAGE: &str = "\
usage: cargo xtask commands [--list] [--ferrane FILE] [PAGE …]

Runs the command lines in the fenced blocks of README.md, CONTRIBUTING.md, docs/*.md, docs/guide and the gallery, or of each
PAGE, in a scratch folder with fixtures. Blocks without a language or with `sh` or `console` hold command lines; if a line of a block begins
with `$ `, only such lines are commands and the others are output. A comment before the block leaves lines out:

  <!-- commands: skip, REASON -->             the whole block
  <!-- commands: skip `PREFIX`, REASON -->    lines that begin with PREFIX

options
  --list          print the lines and what happens to each; run nothing
  --ferrane FILE  the command to run; the default is release/ferrane of cargo's target folder";

/// `cargo xtask commands --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &["--list"], &["--ferrane"], USAGE)?;
    let root = workspace::root()?;
    let mut commands = Vec::new();
    for page in pages(&root, &arguments.positional)? {
        commands.extend(lines::of(&Page::read(&root, &page)?).map_err(|finding| finding.to_string())?);
    }
    if arguments.has("--list") {
        commands.iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let scratch = Scratch::new(&root, &workspace::command(&root, arguments.value("--ferrane"))?)?;
    fixtures::write(&scratch)?;
    let begun = Instant::now();
    let mut skipped = Vec::new();
    for line in &commands {
        match &line.fate {
            Fate::Skip(_) => skipped.push(line),
            Fate::Run => {
                let begun = Instant::now();
                scratch.shell(&line.text.replace("cargo run --release --", "ferrane")).map_err(|output| {
                    let message = format!("`{}` fails", line.text);
                    format!("{}\n{output}", Finding::new(&line.page, line.number, message, ""))
                })?;
                println!("{:>6.1} s  {line}", begun.elapsed().as_secs_f64());
            }
        }
    }
    skipped.iter().for_each(|line| println!(" skipped  {line}"));
    let (run, all) = (commands.len() - skipped.len(), commands.len());
    println!("commands: {run} of {all} lines run in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// The pages in the order in which a reader meets them.
fn pages(root: &Path, given: &[String]) -> Result<Vec<PathBuf>> {
    if !given.is_empty() {
        return given.iter().map(|page| workspace::relative(root, page)).collect();
    }
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    pages.extend(workspace::files(root, Path::new("docs"), &|path| {
        let folder = path.parent().unwrap_or(Path::new(""));
        workspace::extension(path) == "md" && [Path::new("docs"), Path::new("docs/guide")].contains(&folder)
    })?);
    pages.push(PathBuf::from("gallery/README.md"));
    Ok(pages)
}

/// The folder in which the lines run. It is removed at the end.
struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// A copy of the tracked files. `ferrane` is the first command of that name that a line finds.
    fn new(root: &Path, binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|e| format!("cannot make a scratch folder: {e}"))?;
        let scratch = Self { folder };
        for path in tracked(root)? {
            let to = scratch.clone_folder().join(&path);
            let parent = to.parent().unwrap_or(scratch.folder.path());
            std::fs::create_dir_all(parent)
                .and_then(|()| std::fs::copy(root.join(&path), &to))
                .map_err(|e| format!("cannot copy {}: {e}", path.display()))?;
        }
        let command = scratch.bin().join("ferrane");
        std::fs::create_dir(scratch.bin())
            .and_then(|()| std::fs::create_dir(scratch.temporary()))
            .and_then(|()| link(binary, &command))
            .map_err(|e| format!("cannot make {}: {e}", command.display()))?;
        Ok(scratch)
    }

    /// The working directory of the lines.
    fn clone_folder(&self) -> PathBuf {
        self.folder.path().join("ferrane")
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.clone_folder().join(name);
        let folder = path.parent().unwrap_or(self.folder.path());
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, bytes))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Runs a line of a shell.
    ///
    /// # Errors
    /// Its output, if it fails.
    fn shell(&self, line: &str) -> Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.bin()).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).map_err(|e| format!("PATH: {e}"))?;
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", line]).current_dir(self.clone_folder()).stdin(Stdio::null());
        shell.env("PATH", path).env("TMPDIR", self.temporary());
        // Pages write below `~`; the tools of Rust stay where they are.
        let home = std::env::home_dir().unwrap_or_default();
        for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            shell.env(variable, std::env::var_os(variable).unwrap_or_else(|| home.join(folder).into()));
        }
        shell.env("HOME", self.temporary());
        let output = shell.output().map_err(|e| format!("cannot run bash: {e}"))?;
        if output.status.success() { Ok(()) } else { Err(printed(&output)) }
    }
}

/// The status and what was printed, without the white space around it.
fn printed(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    format!("{}\n{}\n{}", output.status, text[0], text[1])
}

/// The files that git tracks and that are there, relative to the root.
fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    let output = git.args(["ls-files", "-z"]).current_dir(root).output().map_err(|e| format!("cannot run git: {e}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", printed(&output)));
    }
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(list.split('\0').filter(|path| root.join(path).is_file()).map(PathBuf::from).collect())
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(target: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::copy(target, path).map(drop)
}
