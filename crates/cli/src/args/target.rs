//! The command `target`: machines, their values, and the claims behind them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ferrane target`.
#[derive(Debug, Subcommand)]
pub enum Target {
    /// List the machines.
    List(TargetList),
    /// Show the values of a machine, and what each rests on.
    Show(TargetShow),
    /// Show claims: what was found out, where, by whom, and what takes it up.
    Claims(TargetClaims),
}

/// `ferrane target list`.
#[derive(Args, Debug)]
pub struct TargetList {
    /// One JSON object a profile instead of the table of chips.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane target show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane target show m4                                the same as m4-macos15-inmem
  ferrane target show m5-macos26-client max_kernel_width op.exp
  ferrane target show m1 --profile-file measured.toml   with what you have measured above the built-in values

A profile file holds overlays: [[overlay]] with match = { family = \"h13\" } and [overlay.set] max_axis = { value = 8192 }.")]
pub struct TargetShow {
    /// The profile, CHIP-OS-PATH; system and path may be left out. Or a report of `ferrane doctor`, a file that ends in .json.
    #[arg(value_name = "PROFILE")]
    pub profile: String,
    /// Only these values.
    #[arg(value_name = "VALUE")]
    pub values: Vec<String>,
    /// Overlays above the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub profile_file: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane target claims`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane target claims op.concat
  ferrane target claims C041
  ferrane target claims surface --profile m5-macos26-client   those about this machine, and its answer to each")]
pub struct TargetClaims {
    /// A subject, which holds all below it (`op` holds `op.concat`), or an id; all claims if not given.
    #[arg(value_name = "SUBJECT|ID")]
    pub subject: Option<String>,
    /// Only claims about this machine.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Overlays above the built-in ones.
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub profile_file: Option<PathBuf>,
    /// One JSON object a claim.
    #[arg(long)]
    pub json: bool,
}
