//! The command `recording`: what a machine computed, recorded and replayed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::whole;

/// `ferrane recording`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
With a Mac: `ferrane recording make --suite filetests --device ane --out my-mac` writes one file for each program, also where
the engine refused it. `ferrane recording show` prints what is in a file before you send the folder.
Without one: `ferrane recording replay my-mac/*.anetrace` runs each program here and says where the numbers differ.
The files are described in docs/recordings.md.")]
pub enum Recording {
    /// Run a program and record inputs, outputs, times and the machine.
    #[command(alias = "record")]
    Make(RecordingMake),
    /// Run recorded programs here and compare the outputs bit by bit.
    Replay(RecordingReplay),
    /// Show what is in recordings.
    Show(RecordingShow),
    /// Write program, weights and tensors of a recording as files of their own.
    Extract(RecordingExtract),
}

/// `ferrane recording make`.
#[derive(Args, Debug)]
#[command(after_help = "\
Values of inputs are those of `ferrane run`: a file, random:SEED, zeros, ones or literals. An input without --input, or with
NAME=random, is drawn with --seed. A program that the device refuses is recorded as well, with the error.

A recording holds one shape for each input: that of its value, or the one that --shape chooses, or the default of the file.

Examples:
  ferrane recording make model.mlpackage --device ane --runs 20
  ferrane recording make conv.mil --device ane --input x=image.npy --out conv-m3.anetrace
  ferrane recording make model.onnx --device ane --shape batch=1,seq=128
  ferrane recording make --suite filetests --device ane --out my-mac

A suite is every .mil, .mlpackage, .mlmodel and .mlmodelc below a folder. Of filetests, each `// run:` line is recorded with its
values, and what is not for running is left out. Ctrl-C ends a suite after the program at hand; every file is whole. The same
command again continues where it ended: programs whose files exist are skipped.")]
pub struct RecordingMake {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc, .onnx or .aimodel.
    #[arg(value_name = "PROGRAM", required_unless_present = "suite", conflicts_with = "suite")]
    pub program: Option<PathBuf>,
    /// Record every program below this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["inputs", "states", "function", "shapes"])]
    pub suite: Option<PathBuf>,
    /// The device: ane, emulator or ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "ane-or-emulator", value_name = "DEVICE")]
    pub device: String,
    /// The value of an input; may be repeated.
    #[arg(long = "input", short = 'i', value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,
    /// The first value of a state [default: zeros].
    #[arg(long = "state", value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub states: Vec<String>,
    /// The shape of an input, x=1x3x224x224, or of several, separated by commas [default: that of
    /// its value, or of the package's description].
    #[arg(long = "shape", value_name = "NAME=DIMS")]
    pub shapes: Vec<String>,
    /// The function [default: `main`, or the first one].
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Seed of the inputs that are not given.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<u64>)]
    pub seed: u64,
    /// Evaluations, each timed; their outputs are compared with each other.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole::<usize>)]
    pub runs: usize,
    /// The file, or the folder of a suite [default: PROGRAM.anetrace, or `recordings`].
    #[arg(long, short = 'o', value_name = "FILE|DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object for each recording, one on a line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane recording replay`.
#[derive(Args, Debug)]
#[command(after_help = "\
A unit in the last place (ulp) is the step to the next value of the output's own type, so 1 ulp of fp16 near 1 is 2^-10.
Without --device a recording runs on the emulator with the arithmetic of the recorded machine; where the machine refused the program,
with its limits, too.

Examples:
  ferrane recording replay my-mac/*.anetrace
  ferrane recording replay conv.anetrace --device 'emulator?numerics=fast' --device 'emulator?numerics=exact' --ulp 2
  ferrane recording replay conv.anetrace --json | jq .outputs

Exit status: 0 all agree within --ulp, 1 something differs, 2 trouble.")]
pub struct RecordingReplay {
    /// Files of recordings, .anetrace.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The device that replays; may be repeated to compare devices.
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<String>,
    /// The largest difference of an element, in units in the last place.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole::<u64>)]
    pub ulp: u64,
    /// Evaluations here, each timed.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<usize>)]
    pub runs: usize,
    /// Print one JSON object for each recording and device, one on a line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane recording show`.
#[derive(Args, Debug)]
pub struct RecordingShow {
    /// Files of recordings, .anetrace.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the program's text as well.
    #[arg(long)]
    pub text: bool,
    /// Print one JSON object for each recording, one on a line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane recording extract`.
#[derive(Args, Debug)]
#[command(after_help = "\
In the folder are then program.mil, its weight files, inputs.safetensors, states.safetensors, outputs.safetensors, after.safetensors
(states after the run) and recording.json, as far as the recording has them. So the run can be repeated by hand:
  ferrane run out/program.mil --input x=out/inputs.safetensors")]
pub struct RecordingExtract {
    /// The recording whose parts become files, .anetrace.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A folder that is new or empty.
    #[arg(long, short = 'o', value_name = "DIR")]
    pub out: PathBuf,
}
