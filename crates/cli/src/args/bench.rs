//! `ferrane bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use ferrane_perf::gemm::{GemmShape, GemmType};
use ferrane_perf::step::Axis;
use ferrane_perf::suite::SuiteClock;

use super::{DeviceArg, PipelineArg, Residual, WeightsForm, WeightsType, whole};

/// `ferrane bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time one training step of a preset with random weights and tokens.
    Step(BenchStep),
    /// Time matrix products next to the peak rates of the processor and its memory.
    Gemm(BenchGemm),
    /// Time prompt and continuation of a language model.
    Llm(BenchLlm),
    /// Time any program on random inputs, and show where the time goes.
    Program(BenchProgram),
    /// Time the fixed cost of an evaluation: median, 99th percentile, extremes.
    Dispatch(BenchDispatch),
    /// Repeat the measurements of the reference work, next to published and predicted values.
    Suite(BenchSuite),
    /// Compare reports of `bench suite` row by row, and fail if rows are slower.
    Compare(BenchCompare),
    /// Write reports of `bench suite` as an HTML page with plots.
    Report(BenchReport),
    /// Write a report of `bench suite` as a community benchmark of the reference work, or back.
    Convert(BenchConvert),
}

/// What grows in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepArg {
    /// The window: eighths of --seq.
    Tokens,
    /// The model: eighths of its layers.
    Layers,
}

impl From<SweepArg> for Axis {
    fn from(sweep: SweepArg) -> Axis {
        match sweep {
            SweepArg::Tokens => Axis::Tokens,
            SweepArg::Layers => Axis::Layers,
        }
    }
}

/// `ferrane bench step`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Prints the median times of a forward and backward pass over one window, and of an update (gradient norm, AdamW, transfer of the
weights), with the lowest and the highest time in parentheses. Weights and tokens are random.

Examples:
  ferrane bench step --vocab 9216
  ferrane bench step --vocab 9216 --pipeline fused
  ferrane bench step --model stories15m --vocab 9216 --sweep layers --plot layers.svg")]
pub struct BenchStep {
    /// The preset whose shapes the measured model has.
    #[arg(long, default_value = "stories110m", value_name = "PRESET")]
    pub model: String,
    /// Entries of the vocabulary that are in use [default: all].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub vocab: Option<usize>,
    /// Tokens in the window.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub seq: usize,
    /// Measured steps; two more warm up.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: usize,
    /// Measure at eighths of the window or of the layers, and fit a line to the medians.
    #[arg(long, value_enum)]
    pub sweep: Option<SweepArg>,
    /// Draw the points and the line of --sweep.
    #[arg(long, value_name = "FILE.svg", requires = "sweep")]
    pub plot: Option<PathBuf>,
    /// How the residual stream is stored.
    #[arg(long, value_enum, default_value = "fp32")]
    pub residual: Residual,
    /// The kernels of a step (docs/training.md). With `static` every measured micro-step compiles.
    #[arg(long, value_enum, default_value = "dynamic")]
    pub pipeline: PipelineArg,
    /// Keep the activations of this many layers only, and compute the others again in the backward
    /// pass; 0 keeps all.
    #[arg(long, default_value_t = 0, value_name = "LAYERS", value_parser = whole::<usize>)]
    pub recompute: usize,
    /// How weights reach the linear kernels of the dynamic pipeline.
    #[arg(long, value_enum, default_value = "packed")]
    pub weights: WeightsForm,
    /// The device that runs the kernels.
    #[command(flatten)]
    pub device: DeviceArg,
    /// Write a timeline of the first 64 micro-steps, thread by thread, for chrome://tracing or
    /// Perfetto (docs/training.md).
    #[arg(long, alias = "trace-json", value_name = "FILE", conflicts_with = "sweep")]
    pub timeline: Option<PathBuf>,
    /// Also report the memory by owner (docs/training.md).
    #[arg(long, conflicts_with = "sweep")]
    pub memory: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The element types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GemmTypeArg {
    /// fp32 times fp32, to fp32.
    Fp32,
    /// fp16 times fp16, rounded to fp16.
    Fp16,
    /// fp32 times int8, to fp32: quantized weights.
    Int8,
}

impl From<GemmTypeArg> for GemmType {
    fn from(types: GemmTypeArg) -> GemmType {
        match types {
            GemmTypeArg::Fp32 => GemmType::Fp32,
            GemmTypeArg::Fp16 => GemmType::Fp16,
            GemmTypeArg::Int8 => GemmType::Int8,
        }
    }
}

/// `ferrane bench gemm`.
#[derive(Args, Debug)]
#[command(after_help = "\
A shape is MxKxN: M x K times K x N. B*MxKxN is a batch of B products. The suffix `:tn` says that the left factor is stored transposed,
`:nt` the right one, `:tt` both. The ceilings are measured in the same run: fp32 multiply-adds from registers, and reading memory of
three sizes. A product's roof is what its operations and the bytes that it must move allow. RAYON_NUM_THREADS=1 measures one thread.

Examples:
  ferrane bench gemm                                              the products of stories110m
  ferrane bench gemm --shape 256x768x2048 --type fp32,fp16
  ferrane bench gemm --shape 1x768x2048:nt --type int8 --cold     a layer of decoding, weights from memory
  ferrane bench gemm --roofline roofline.svg")]
pub struct BenchGemm {
    /// A product; may be repeated [default: the products of stories110m].
    #[arg(long = "shape", value_name = "MxKxN")]
    pub shapes: Vec<GemmShape>,
    /// Types of the factors [default: all].
    #[arg(long = "type", value_enum, value_delimiter = ',', value_name = "TYPE")]
    pub types: Vec<GemmTypeArg>,
    /// Use another right factor each time, from 256 MiB of them, so that it comes from memory.
    #[arg(long)]
    pub cold: bool,
    /// Measured products [default: as many as 0.3 seconds hold, 7 to 1000].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: Option<usize>,
    /// Draw the products under the roofs of this computer.
    #[arg(long, value_name = "FILE.svg")]
    pub roofline: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench llm`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Prefill is the rate at which a prompt is read, decode the rate of the tokens after it. A token reads every weight once, so its rate is
compared with a plain read loop over 512 MiB in the same run. --machine also predicts the rates on a chip, with weights as inputs (int4
as constants) on the in-memory path and the classifier on the CPU.

Examples:
  ferrane bench llm
  ferrane bench llm qwen2.5-0.5b --type fp16,int8,int4 --prompt 512 --batch 4,8
  ferrane bench llm models/llama --type int8 --json
  ferrane bench llm qwen2.5-0.5b --machine m1 --machine m4-max")]
pub struct BenchLlm {
    /// A preset, measured with random weights, or a model: the folder of a run, llama2.c .bin,
    /// .safetensors, .gguf, or a Hugging Face folder.
    #[arg(default_value = "stories110m", value_name = "PRESET|MODEL")]
    pub model: String,
    /// Element types of the matrices, measured one after the other.
    #[arg(long = "type", value_enum, default_value = "fp16", value_delimiter = ',')]
    pub types: Vec<WeightsType>,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub prompt: usize,
    /// Tokens that are decoded one by one after the prompt.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole::<usize>)]
    pub tokens: usize,
    /// Numbers of sequences that are then decoded together, 2 to 16.
    #[arg(long = "batch", value_name = "N", value_delimiter = ',', value_parser = whole::<usize>)]
    pub batches: Vec<usize>,
    /// Also predict the rates on a chip or profile: `m4`, `m4-max-macos26-inmem`. May be given
    /// several times.
    #[arg(long = "machine", aliases = ["target", "profile"], value_name = "MACHINE")]
    pub machines: Vec<String>,
    /// The device that runs the programs.
    #[command(flatten)]
    pub device: DeviceArg,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench program`.
#[derive(Args, Debug)]
#[command(after_help = "\
Reading, compiling, loading and preparing are timed once; evaluations of the prepared request are repeated after a few that warm up.
Prints their median, with the lowest and the highest time in parentheses. RAYON_NUM_THREADS=1 measures one thread.

Examples:
  ferrane bench program model.mlpackage
  ferrane bench program --steps block.mil            the emulator's steps, the longest first
  ferrane bench program --device ane --json block.mil")]
pub struct BenchProgram {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel or .mlmodelc.
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// The value of an input, as in `ferrane run` [default: random numbers from -1 to 1].
    #[arg(long = "input", short = 'i', value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,
    /// The shape of an input, x=1x3x224x224, or of several, separated by commas [default: that of
    /// its value, or of the package's description].
    #[arg(long = "shape", value_name = "NAME=DIMS")]
    pub shapes: Vec<String>,
    /// The function to run [default: `main`, or the first one].
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Seed of random inputs.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<u64>)]
    pub seed: u64,
    /// Measured evaluations [default: as many as a second holds, 7 to 1000].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: Option<usize>,
    /// Also time each step of the emulator's plan: a product, a group of element-wise ops, a copy.
    #[arg(long)]
    pub steps: bool,
    /// The device: emulator, ane or ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// Print one JSON object.
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
    /// Measured evaluations of each kind, after some that warm up.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: usize,
    /// The device: emulator, ane or ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench suite`.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
Each row shows the median on this command's clock (`ms`), on the device's own clock if it has one (`device`), the prediction of the
cost model for the device's machine, and published times of the nearest machine. Data is random and dense; results are compared with
plain loops. With pace=on an emulated machine takes the predicted time, and reports it where computing here takes longer.

Each benchmark runs in its own process. Ctrl-C keeps the results so far. docs/benchmarks.md describes the benchmarks.

Examples:
  ferrane bench suite --list
  ferrane bench suite inmem sram-probe --device 'emulator?machine=m4-max&pace=on'
  ferrane bench suite --device ane --out m4.json                 all of them, for minutes
  ferrane bench suite --most-gflop 1 --json                      small configurations only")]
pub struct BenchSuite {
    /// Names of benchmarks, as --list shows them [default: all].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// List the benchmarks with their questions.
    #[arg(long, conflicts_with_all = ["names", "out"])]
    pub list: bool,
    /// The device: emulator, ane or ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// Timed evaluations of a row [default: as many as 0.3 seconds hold, 7 to 1000].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub repeat: Option<usize>,
    /// Leave out configurations of more than this many billions of operations.
    #[arg(long, value_name = "N")]
    pub most_gflop: Option<f64>,
    /// Seed of random weights and inputs.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<u64>)]
    pub seed: u64,
    /// Seconds that one benchmark may take.
    #[arg(long, default_value_t = 600, value_name = "N", value_parser = whole::<u64>)]
    pub timeout: u64,
    /// Also write the report here, after each benchmark.
    #[arg(long, short, value_name = "FILE.json")]
    pub out: Option<PathBuf>,
    /// Measure in this process.
    #[arg(long, hide = true)]
    pub here: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A clock of `ferrane bench compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockArg {
    /// The command's clock, around an evaluation.
    Caller,
    /// The device's own clock; with pace=on, that of the modeled machine.
    Device,
}

impl From<ClockArg> for SuiteClock {
    fn from(clock: ClockArg) -> SuiteClock {
        match clock {
            ClockArg::Caller => SuiteClock::Caller,
            ClockArg::Device => SuiteClock::Device,
        }
    }
}

/// `ferrane bench compare`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Prints the median of each row next to those of the other reports, with ratios to the first (A), the largest changes first, and then the
findings. Rows are the same if benchmark, kind and configuration are. Community benchmarks of the reference work are read too.

With --worse-than 10, the status is 1 if a row is slower than in the first report by more than 10 percent: both its median and its
lowest time must be, on the same clock. Work by other processes makes evaluations longer and none shorter, so it leaves the lowest time
where it was. A row that now fails or has a wrong result counts too. Files that cannot be read end with status 2.

Examples:
  ferrane bench compare before.json after.json
  ferrane bench compare before.json after.json --worse-than 10
  ferrane bench compare apple_m4_max_20260304.json emulated.json --json")]
pub struct BenchCompare {
    /// Reports that `bench suite --out` wrote, or community benchmarks; `-` is standard input.
    #[arg(value_name = "FILE.json", required = true, num_args = 2..)]
    pub files: Vec<PathBuf>,
    /// End with status 1 if a row is slower than in the first report by more than this.
    #[arg(long, value_name = "PERCENT")]
    pub worse_than: Option<f64>,
    /// Compare times on this clock only [default: the device's where a row has it, else the
    /// caller's].
    #[arg(long, value_enum)]
    pub clock: Option<ClockArg>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane bench report`.
#[derive(Args, Debug)]
#[command(after_help = "\
The page is one file that loads nothing. It shows the device, the computer and the options of each report, a roofline, the curves over
weights, width, depth and positions, bars of dispatch paths, and all rows, with what was measured, predicted and published. Several
reports share the plots. Community benchmarks of the reference work are read too.

Examples:
  ferrane bench report m4.json -o report.html
  ferrane bench report m4.json emulated.json apple_m4_max_20260304.json -o report.html")]
pub struct BenchReport {
    /// Reports that `bench suite --out` wrote, or community benchmarks; `-` is standard input.
    #[arg(value_name = "FILE.json", required = true)]
    pub files: Vec<PathBuf>,
    /// Where the page is written.
    #[arg(long, short, value_name = "FILE.html")]
    pub out: PathBuf,
}

/// A format of `ferrane bench convert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// The community format of the reference work, schema version 1.
    Community,
    /// The format of `bench suite`.
    Suite,
}

/// `ferrane bench convert`.
#[derive(Args, Debug)]
#[command(after_help = "\
A community benchmark holds the rows of `sram-probe` and `peak`, by the caller's clock. Rows with wrong results are left out. What the
report does not say about the computer is `unknown`. A report of the emulator names the emulator as its chip.

Examples:
  ferrane bench convert m4.json -o apple_m4_20260304.json
  ferrane bench convert apple_m4_max_20260304.json --to suite -o m4-max.json")]
pub struct BenchConvert {
    /// A report that `bench suite --out` wrote, or a community benchmark; `-` is standard input.
    #[arg(value_name = "FILE.json")]
    pub file: PathBuf,
    /// The format that is written.
    #[arg(long, value_enum, default_value = "community")]
    pub to: BenchFormat,
    /// The GitHub name to submit it under [default: none].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Where it is written [default: standard output].
    #[arg(long, short, value_name = "FILE.json")]
    pub out: Option<PathBuf>,
}
