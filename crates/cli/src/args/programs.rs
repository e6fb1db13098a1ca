//! The commands that work on programs: fmt, check, inspect, run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A spelling of MIL text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DialectArg {
    /// `string`, `fp16(0.5)`: what Apple's compilers write today.
    Shorthand,
    /// `tensor<string, []>`: the older spelling.
    Verbose,
}

/// `ferrane fmt`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane fmt model.mil                    in place; comments stay
  ferrane fmt --check kernels/*.mil        name the files that are not formatted, change nothing
  ferrane fmt - < model.mil > clean.mil    from standard input to standard output
  ferrane fmt --dialect verbose --stdout model.mil

A file that is no MIL stays as it is. Exit status: 0 all formatted, 1 a file is not (with --check) or is no MIL, 2 wrong usage.")]
pub struct Fmt {
    /// MIL texts; `-` is standard input, written to standard output.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write nothing; print the names of files that are not formatted.
    #[arg(long)]
    pub check: bool,
    /// The spelling to write; each file's own if not given.
    #[arg(long, value_enum)]
    pub dialect: Option<DialectArg>,
    /// Print the formatted text instead of replacing the file.
    #[arg(long, conflicts_with = "check")]
    pub stdout: bool,
}

/// How diagnostics are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// With the line and a mark under it.
    Human,
    /// One JSON object a file, one on a line.
    Json,
}

/// `ferrane check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane check model.mil
  ferrane check --no-weights kernel.mil    the text alone, without the blob files beside it
  ferrane check --format json model.mil | jq .diagnostics

Exit status: 0 no errors (warnings may be shown), 1 errors, 2 wrong usage.")]
pub struct Check {
    /// Programs: MIL text (`-` is standard input), .mlpackage, .mlmodel or .mlmodelc.
    #[arg(required = true, value_name = "PROGRAM")]
    pub files: Vec<PathBuf>,
    /// How diagnostics are shown.
    #[arg(long, value_enum, default_value = "human")]
    pub format: Format,
    /// Do not look for the blob files that a text refers to.
    #[arg(long)]
    pub no_weights: bool,
}

/// `ferrane inspect`.
#[derive(Args, Debug)]
pub struct Inspect {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel or .mlmodelc.
    #[arg(value_name = "PROGRAM")]
    pub file: PathBuf,
    /// Every weight, not only the largest of each file.
    #[arg(long)]
    pub weights: bool,
    /// One JSON object with all of it.
    #[arg(long)]
    pub json: bool,
}

/// The arithmetic of the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NumericsArg {
    /// fp16 values between ops.
    Fast,
    /// fp32 throughout.
    Exact,
}

/// How outputs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A file for each: DIR/NAME.npy.
    Npy,
    /// One file: DIR/outputs.safetensors.
    Safetensors,
}

/// `ferrane run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Values of inputs:
  x=image.npy               a NumPy array
  x=inputs.safetensors:key  a tensor of a file; without :key the one named as the input
  x=random:1                uniform draws from -1 to 1 with seed 1 (integers: 0 or 1)
  x=random:1:0:10           from 0 to 10, 10 not included
  x=zeros, x=ones           every element
  x=[1, 2, 3]               literals, nested like the shape or flat; one number, x=0.5, fills the input
Values are converted to the input's element type; what does not fit is an error.

Examples:
  ferrane run model.mil --input x=random:1
  ferrane run model.mlpackage --input image=cat.npy --output out
  ferrane run model.mil --input x=random:1 --numerics exact --json

For an input or an output that is a file's path with `=` in it, write ./ before the path.")]
pub struct Run {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel or .mlmodelc.
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// The value of an input; once for each.
    #[arg(long = "input", short = 'i', value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,
    /// Write the outputs into this folder, which is made if need be.
    #[arg(long, short = 'o', value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// How outputs are written.
    #[arg(long, value_enum, default_value = "npy", requires = "output")]
    pub output_format: OutputFormat,
    /// The function to run; the first one, or `main` if there is one.
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Where it runs: emulator, ane, ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// The emulator's arithmetic, `fast` if not given; the same as --device emulator?numerics=exact.
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsArg>,
    /// One JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
}
