//! The command `machine`: machines, their values, and the claims that these rest on.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ferrane machine`.
#[derive(Debug, Subcommand)]
pub enum Machine {
    /// List chips, systems and paths, of which machines are made.
    List(MachineList),
    /// Show the values of a machine, and what each rests on.
    Show(MachineShow),
    /// Show claims: what was found, where, by whom, and what uses it.
    Claims(MachineClaims),
}

/// `ferrane machine list`.
#[derive(Args, Debug)]
pub struct MachineList {
    /// Print one JSON object for each profile instead of the table of chips.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane machine show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane machine show m4                                the same as m4-macos15-inmem
  ferrane machine show m5-macos26-client max_kernel_width op.exp
  ferrane machine show m1 --machine-file measured.toml   with your measured values above the built-in ones

A profile file holds overlays: [[overlay]] with match = { family = \"h13\" } and [overlay.set] max_axis = { value = 8192 }.")]
pub struct MachineShow {
    /// The profile, CHIP-OS-PATH; system and path may be left out. Or a report of `ferrane doctor`,
    /// a file that ends in .json.
    #[arg(value_name = "MACHINE")]
    pub machine: String,
    /// Show only these values.
    #[arg(value_name = "VALUE")]
    pub values: Vec<String>,
    /// Overlays above the built-in ones.
    #[arg(long, alias = "profile-file", value_name = "FILE")]
    pub machine_file: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane machine claims`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane machine claims op.concat
  ferrane machine claims C041
  ferrane machine claims surface --machine m5-macos26-client   those about this machine, and its answer to each")]
pub struct MachineClaims {
    /// A subject, which holds all below it (`op` holds `op.concat`), or an id; all claims if not
    /// given.
    #[arg(value_name = "SUBJECT|ID")]
    pub subject: Option<String>,
    /// Only claims about this machine.
    #[arg(long, alias = "profile", value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Overlays above the built-in ones.
    #[arg(long, alias = "profile-file", value_name = "FILE", requires = "machine")]
    pub machine_file: Option<PathBuf>,
    /// Print one JSON object for each claim.
    #[arg(long)]
    pub json: bool,
}
