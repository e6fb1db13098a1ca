//! Chores of this workspace that need more than cargo. Run as `cargo xtask <chore>`.
//!
//! There is one so far, `macos`: checking, linting and linking for macOS on a Linux computer, and reading what came out.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
// This is a program: what it prints is its result.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

mod macos;

/// What went wrong, in words for the person who ran the chore.
type Result<T, E = String> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: cargo xtask macos <command> [--dir DIR] [arguments of cargo]

commands
  setup              fetch a compiler for macOS and write stubs of its libraries; does nothing the second time
  check              cargo check --workspace --all-targets
  clippy             cargo clippy --workspace --all-targets; lints after `--`, as in `clippy -- -D warnings`
  build              cargo build --release: the command and the C interface, put together in DIR/out
  imports [--bless]  read what build made, hold it against the rules and against docs/macos.md; --bless writes the page anew

DIR is where all of this lies: $FERRANE_MACOS_DIR, or else the folder macos of cargo's target folder.
On a Mac, setup does nothing and the other commands run cargo for this computer.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((chore, rest)) if chore == "macos" => macos::run(rest),
        Some((help, _)) if help == "help" || help == "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
