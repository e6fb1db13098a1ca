//! `ferrane bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::bench::Shape;

use super::{DeviceArg, Residual, WeightsForm, WeightsType, whole};

/// `ferrane bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time one training step of a preset with random weights and tokens.
    Step(BenchStep),
    /// Time matrix products beside what the processor and its memory can do at best.
    Gemm(BenchGemm),
    /// Time prompt and continuation of a preset with random weights and tokens.
    Decode(BenchDecode),
    /// Time any program on random inputs, and show where in it the time goes.
    Program(BenchProgram),
    /// Time what an evaluation costs besides its arithmetic: median, 99th percentile, extremes.
    Dispatch(BenchDispatch),
}

/// What a sweep makes larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sweep {
    /// The window: eighths of --seq.
    Tokens,
    /// The model: eighths of its layers.
    Layers,
}

/// `ferrane bench step`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Shown are medians of forward and backward of one window, and of an update with all that it brings; the lowest and the highest time
stand in brackets. Weights and tokens are random.

Examples:
  ferrane bench step --vocab 9216
  ferrane bench step --model stories15m --vocab 9216 --sweep layers --plot layers.svg")]
pub struct BenchStep {
    /// Preset.
    #[arg(long, default_value = "stories110m", value_name = "PRESET")]
    pub model: String,
    /// Entries of the vocabulary that are in use; the preset's if not given.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub vocab: Option<usize>,
    /// Tokens in the window.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub seq: usize,
    /// Measured steps; two more warm up.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: usize,
    /// Measure at eighths of the window or of the layers, and lay a line through the medians.
    #[arg(long, value_enum)]
    pub sweep: Option<Sweep>,
    /// With --sweep: draw the points and the line.
    #[arg(long, value_name = "FILE.svg", requires = "sweep")]
    pub plot: Option<PathBuf>,
    /// The residual stream.
    #[arg(long, value_enum, default_value = "fp32")]
    pub residual: Residual,
    /// Where the weights stand.
    #[arg(long, value_enum, default_value = "packed")]
    pub weights: WeightsForm,
    /// Where the kernels run.
    #[command(flatten)]
    pub device: DeviceArg,
    /// Write a timeline of the first 64 micro-steps, thread by thread, for chrome://tracing or
    /// Perfetto (docs/training.md).
    #[arg(long, alias = "trace-json", value_name = "FILE", conflicts_with = "sweep")]
    pub timeline: Option<PathBuf>,
    /// Also tell who held the memory (docs/training.md).
    #[arg(long, conflicts_with = "sweep")]
    pub memory: bool,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// What the factors of a product are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GemmType {
    /// fp32 times fp32, to fp32.
    Fp32,
    /// fp16 times fp16, rounded to fp16.
    Fp16,
    /// fp32 times int8, to fp32: quantized weights.
    Int8,
}

/// `ferrane bench gemm`.
#[derive(Args, Debug)]
#[command(after_help = "\
A shape is MxKxN: M x K times K x N. B*MxKxN is a batch of B products. Behind it `:tn` says that the left factor lies transposed,
`:nt` the right one, `:tt` both. Ceilings are measured in the same run: fp32 multiply-adds from registers, and reading memory of three
sizes. A product's roof is what its operations and the bytes that it must move allow. RAYON_NUM_THREADS=1 measures one thread.

Examples:
  ferrane bench gemm                                              the products of stories110m
  ferrane bench gemm --shape 256x768x2048 --type fp32,fp16
  ferrane bench gemm --shape 1x768x2048:nt --type int8 --cold     a layer of decoding, weights from memory
  ferrane bench gemm --roofline roofline.svg")]
pub struct BenchGemm {
    /// A product; once for each. The products of stories110m if not given.
    #[arg(long = "shape", value_name = "MxKxN")]
    pub shapes: Vec<Shape>,
    /// Types of the factors; all if not given.
    #[arg(long = "type", value_enum, value_delimiter = ',', value_name = "TYPE")]
    pub types: Vec<GemmType>,
    /// Take another right factor each time, from 256 MiB of them, so that it comes from memory.
    #[arg(long)]
    pub cold: bool,
    /// Measured products; as many as 0.3 seconds hold if not given, 7 to 1000.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: Option<usize>,
    /// Draw the products under the machine's roofs.
    #[arg(long, value_name = "FILE.svg")]
    pub roofline: Option<PathBuf>,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench decode`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
A token reads every weight once, so its rate is held against a plain read loop over 512 MiB in the same run.

Examples:
  ferrane bench decode
  ferrane bench decode --type int8 --prompt 512 --tokens 32 --json")]
pub struct BenchDecode {
    /// Preset.
    #[arg(long, default_value = "stories110m", value_name = "PRESET")]
    pub model: String,
    /// Element type of the matrices.
    #[arg(long = "type", value_enum, default_value = "fp16")]
    pub weights: WeightsType,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub prompt: usize,
    /// Tokens that follow it, each of its own.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole::<usize>)]
    pub tokens: usize,
    /// Where the programs run.
    #[command(flatten)]
    pub device: DeviceArg,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench program`.
#[derive(Args, Debug)]
#[command(after_help = "\
Evaluations of a prepared request are timed after a few that warm up; reading, compiling, loading and preparing are told apart. Shown
are the median, and the lowest and highest time in brackets. RAYON_NUM_THREADS=1 measures one thread.

Examples:
  ferrane bench program model.mlpackage
  ferrane bench program --steps block.mil            the emulator's steps, the longest first
  ferrane bench program --device ane --json block.mil")]
pub struct BenchProgram {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel or .mlmodelc.
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// The value of an input, as `ferrane run` takes it; random numbers between -1 and 1 if not
    /// given.
    #[arg(long = "input", short = 'i', value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,
    /// The function to run; the first one, or `main` if there is one.
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Seed of random inputs.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<u64>)]
    pub seed: u64,
    /// Measured evaluations; as many as a second holds if not given, 7 to 1000.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: Option<usize>,
    /// Also the time of each step of the emulator's plan: a product, a group of element-wise ops, a
    /// copy.
    #[arg(long)]
    pub steps: bool,
    /// Where it runs: emulator, ane, ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench dispatch`.
#[derive(Args, Debug)]
#[command(after_help = "\
A program of one op over 32 values is prepared once and evaluated many times, each time on its own clock.

Examples:
  ferrane bench dispatch
  ferrane bench dispatch --device ane?dispatch=direct --json")]
pub struct BenchDispatch {
    /// Measured evaluations of each kind; some more warm up.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: usize,
    /// Where it runs: emulator, ane, ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}
