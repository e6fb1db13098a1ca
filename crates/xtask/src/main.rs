//! Chores of this workspace that need more than cargo. Run as `cargo xtask <chore>`.
//!
//! The checks keep what ARCHITECTURE.md and docs/style.md promise: [`floors`] who may depend on
//! whom, [`names`] that a name means one thing, [`prose`] that comments read well, [`citations`]
//! that what they cite is there, [`commands`] that the command lines of the pages run. [`book`]
//! builds the pages as a book, and [`dist`] the files of a release, whose version [`version`]
//! writes. [`macos`] checks, lints and links for macOS on a Linux computer, and reads the result.
//!
//! A check reads the sources, prints one line for each finding (file, line, what is wrong, what to
//! do) and fails if there is one. It changes nothing unless an option says so.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
// This is a program: what it prints is its result.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

mod arguments;
mod book;
mod citations;
mod commands;
mod dist;
mod floors;
mod lexer;
mod macos;
mod markdown;
mod names;
mod passages;
mod prose;
mod report;
mod syntax;
mod tree;
mod version;
mod workspace;

use self::workspace::Result;

const USAGE: &str = "\
usage: cargo xtask <chore> [arguments]

chores
  floors     crates, modules and files against ARCHITECTURE.md: who may depend on whom
  names      type names that several crates define; long functions and files
  prose      words that docs/style.md rules out, wide comments, doc comments that say nothing
  citations  cited sections, links between pages, pages that no link leads to
  commands   run the command lines of the pages
  book       the pages as one book, with its links checked
  dist       the files of a release, for this computer
  version    the version of all crates, and the changelog's heading for it
  macos      check, lint and link for macOS on Linux

`cargo xtask <chore> --help` describes one.";

/// A chore: its name, its usage, and what runs it.
type Chore = (&'static str, fn() -> &'static str, fn(&[String]) -> Result<()>);

const CHORES: [Chore; 9] = [
    ("floors", floors::usage, floors::run),
    ("names", names::usage, names::run),
    ("prose", prose::usage, prose::run),
    ("citations", citations::usage, citations::run),
    ("commands", commands::usage, commands::run),
    ("book", book::usage, book::run),
    ("dist", dist::usage, dist::run),
    ("version", version::usage, version::run),
    ("macos", macos::usage, macos::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (name, rest) = arguments.split_first().ok_or(USAGE)?;
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{USAGE}");
        return Ok(());
    }
    let (_, usage, run) = CHORES.iter().find(|(chore, ..)| chore == name).ok_or(USAGE)?;
    if rest.iter().take_while(|a| *a != "--").any(|a| a == "--help" || a == "-h") {
        println!("{}", usage());
        return Ok(());
    }
    run(rest)
}
