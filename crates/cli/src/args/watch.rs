//! The arguments of `watch`, and those of `train` that show a run.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use ferrane::train::metrics::plot::LossAxis;

use super::{address, whole};

/// `ferrane watch`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane watch runs/a              follow a run that trains, or look at one that has ended
  ferrane watch runs/a --once       print one picture as text
  ferrane watch runs/a --html a.html   write a page, also while the run trains

The keys are listed by `?`, and in docs/watch.md.")]
pub struct Watch {
    /// Folder of the run, or its metrics.jsonl.
    #[arg(value_name = "RUN", default_value = "runs/default")]
    pub run: PathBuf,
    /// Print one picture as text instead of taking the terminal.
    #[arg(long)]
    pub once: bool,
    /// Write a page with zoomable curves, samples and settings instead, in one file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "machine"])]
    pub html: Option<PathBuf>,
    /// Columns of the picture [default: $COLUMNS, or 120].
    #[arg(long, value_name = "N", requires = "once", value_parser = RangedU64ValueParser::<u16>::new().range(1..=500))]
    pub width: Option<u16>,
    /// Lines of the picture [default: $LINES, or 40].
    #[arg(long, value_name = "N", requires = "once", value_parser = RangedU64ValueParser::<u16>::new().range(1..=200))]
    pub height: Option<u16>,
    /// Compare the speed with the peak of this chip or profile: `m4`, `m4-max-macos26-inmem`.
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
}

/// `ferrane runs`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane runs                          the runs in the folder runs
  ferrane runs runs/a runs/b --compare  two of them, with the settings in which they differ
  ferrane runs --prune 1                keep only the newest checkpoint of each run
  ferrane runs --plot losses.svg --over time")]
pub struct Runs {
    /// Folders of runs, or folders with the folders of runs.
    #[arg(value_name = "FOLDER", default_value = "runs")]
    pub folders: Vec<PathBuf>,
    /// Also list the settings in which the runs differ.
    #[arg(long)]
    pub compare: bool,
    /// Draw the losses of all runs: lines for training, points for validation.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Before the list: remove the checkpoints of each run but the newest KEEP, of which one is
    /// intact. A run that trains keeps all.
    #[arg(long, value_name = "KEEP", value_parser = clap::value_parser!(u32).range(1..))]
    pub prune: Option<u32>,
    /// What the plot is drawn over.
    #[arg(long, value_enum, default_value = "tokens", requires = "plot")]
    pub over: LossAxisArg,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What losses are drawn over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LossAxisArg {
    /// Updates, skipped ones included.
    Updates,
    /// Number of tokens trained on.
    Tokens,
    /// Seconds of training, without pauses.
    Time,
}

impl From<LossAxisArg> for LossAxis {
    fn from(axis: LossAxisArg) -> LossAxis {
        match axis {
            LossAxisArg::Updates => LossAxis::Updates,
            LossAxisArg::Tokens => LossAxis::Tokens,
            LossAxisArg::Time => LossAxis::Time,
        }
    }
}

/// What `train` shows of a run, and where.
#[derive(Args, Clone, Debug)]
pub struct Showing {
    /// Show curves, times and samples on the whole terminal, with keys that pause, save, sample and
    /// quit (docs/watch.md).
    #[arg(long, conflicts_with = "json")]
    pub dashboard: bool,
    /// Updates between texts by the model, in the dashboard and in metrics.jsonl; 0 writes none.
    #[arg(long, value_name = "UPDATES", value_parser = whole::<u64>)]
    pub sample_every: Option<u64>,
    /// Also write event files for TensorBoard; without DIR, into the folder `tensorboard` of --out.
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub tensorboard: Option<Option<PathBuf>>,
    /// Answer GET /metrics at this address in the text format of Prometheus while the run trains: a
    /// port of this computer (0: any that is free), or HOST:PORT (docs/watch.md).
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub prometheus: Option<String>,
}
