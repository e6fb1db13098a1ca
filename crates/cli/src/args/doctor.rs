//! The commands about this computer: doctor, classes.

use std::path::PathBuf;

use clap::Args;

/// `ferrane doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Probes are small programs that run on the device and measure what it allows. Each runs in a process of its own, so that one that ends its
process or does not return affects no other. Those that poison a process on purpose run last, and only by name or with --probes all.
Ctrl-C ends the examination and keeps what was measured.

Examples:
  ferrane doctor                                    the engine where there is one, else the emulator
  ferrane doctor --json report.json                 and the report, to be sent or used as a machine
  ferrane doctor --probes concat,port-order,W1      probes, or experiments of pull request 40 of the reference work
  ferrane doctor --probes all --bench all --json report.json     everything, for a report to be sent
  ferrane doctor --submit-check report.json         is it complete, is anything in it private?
  ferrane doctor --list                             all probes
  ferrane doctor --device 'emulator?machine=m1-macos26-inmem' --probes all
  ferrane check --machine report.json model.mil      programs against what was measured

On a Mac: docs/doctor.md says how to run it and where to send the report.")]
pub struct Doctor {
    /// The device to examine: `ane`, `emulator?machine=m4&numerics=hardware`, `ane-or-emulator`.
    #[arg(long, default_value = "ane-or-emulator", value_name = "DEVICE")]
    pub device: String,
    /// Write the report into this file; `-` is standard output, which then holds nothing else.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Names of probes or experiments, or `all` [default: all but the risky ones].
    #[arg(long, value_name = "LIST|all", value_delimiter = ',')]
    pub probes: Vec<String>,
    /// Benchmarks to run after the probes, or `all`: those of `ferrane bench suite`, into the same
    /// report.
    #[arg(long, value_name = "LIST|all", value_delimiter = ',')]
    pub bench: Vec<String>,
    /// Examine a report instead: what it lacks, what in it looks private, which claims and which
    /// constants of the cost model it confirms or contradicts.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["probes", "bench", "list", "here"])]
    pub submit_check: Option<PathBuf>,
    /// List the probes with their questions and exit.
    #[arg(long, conflicts_with_all = ["json", "probes"])]
    pub list: bool,
    /// Seconds after which a probe is ended.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = super::whole::<u64>)]
    pub timeout: u64,
    /// Run all probes in this process.
    #[arg(long)]
    pub here: bool,
}

/// `ferrane classes`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane classes                              the engine's private framework, on a Mac
  ferrane classes --framework CoreML           another one, by name or path
  ferrane classes --json > classes.json        to keep or to send
  ferrane classes --diff                       missing classes, missing methods, other types than Ferrane calls them by
  ferrane classes --diff classes.json          the same of a dump that was kept, on any computer

Exit status with --diff: 0 no difference, 1 differences, 2 trouble.")]
pub struct Classes {
    /// A framework's name or path.
    #[arg(long, value_name = "NAME|PATH")]
    pub framework: Option<String>,
    /// Compare the classes, or those of a file that --json wrote, with those that Ferrane calls.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub diff: Option<Option<PathBuf>>,
    /// Print one indented JSON object, which --diff reads.
    #[arg(long)]
    pub json: bool,
}
