//! The commands about the command: completions, man.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// `ferrane completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane completions bash > ~/.local/share/bash-completion/completions/ferrane
  ferrane completions zsh > ~/.zfunc/_ferrane
  ferrane completions fish > ~/.config/fish/completions/ferrane.fish")]
pub struct Completions {
    /// The shell that reads the script.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// `ferrane man`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane man | man -l -
  ferrane man --out ~/.local/share/man/man1        and then: man ferrane-check
  ferrane man --format markdown --out commands")]
pub struct Man {
    /// How to write a page.
    #[arg(long, value_enum, default_value_t = PageFormat::Roff)]
    pub format: PageFormat,
    /// Write the pages of all commands into this folder, which is created if necessary.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The format of a manual page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageFormat {
    /// What `man` reads.
    Roff,
    /// For a web page: a heading and the text of `--help`.
    Markdown,
}
