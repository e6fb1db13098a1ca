//! The command line.

mod bench;
mod chat;
mod compile;
mod compiled;
mod doctor;
mod export;
mod finetune;
mod help;
mod machine;
mod programs;
mod quantize;
mod recording;
mod serve;
mod top;
mod watch;

use std::path::PathBuf;

pub use bench::{
    Bench, BenchCompare, BenchConvert, BenchDispatch, BenchFormat, BenchGemm, BenchLlm, BenchProgram, BenchReport,
    BenchStep, BenchSuite, SweepArg,
};
pub use chat::{Chat, CompanionArgs, Generate, GrammarArgs, LoraArg};
pub use compile::Compile;
pub use compiled::{Assemble, Disasm, HwxCommand, HwxConvert, HwxPack, HwxUnpack};
pub use doctor::{Classes, Doctor};
pub use export::{Export, ExportFormat, ExportWeights};
pub use finetune::{TrainChat, TrainLora};
pub use help::{Completions, Man, PageFormat};
pub use machine::{Machine, MachineClaims, MachineList, MachineShow};
pub use programs::{
    Check, Convert, Cost, DialectArg, Diff, Explain, Fmt, Format, Grad, Inspect, OpsetArg, OutputFormat, PlaceArgs, Run,
};
pub use quantize::Quantize;
pub use recording::{Recording, RecordingExtract, RecordingMake, RecordingReplay, RecordingShow};
pub use serve::Serve;
pub use top::Top;
pub use watch::{Runs, Showing, Watch};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use ferrane::train::data::DataSet;
use ferrane::train::ranks::Link;

const START: &str = "\
Try one of these first; MODEL is an .mlpackage, .onnx, .mil or .aimodel:
  ferrane train                                   train a small story model here, in about three minutes
  ferrane run MODEL -i x=random:1                 run a network on a software engine, with random numbers
  ferrane check --machine m4-macos15-inmem MODEL  what an M4's engine refuses, computes wrongly or runs slowly";

/// Program the Apple Neural Engine: read, check, convert and run MIL programs, train and run
/// transformers, on the engine or on its emulator.
#[derive(Debug, Parser)]
#[command(name = "ferrane", version, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = START)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Write log lines to standard error; -vv and -vvv write more. RUST_LOG=FILTER selects targets.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a transformer whose forward and backward kernels run on a device.
    Train(Box<Train>),
    /// Show the curves, times and log of a run, while it trains or afterwards.
    Watch(Watch),
    /// List runs, compare their settings, and draw their losses.
    Runs(Runs),
    /// Continue a text with a trained model.
    Generate(Box<Generate>),
    /// Talk to a model, turn by turn.
    Chat(Box<Chat>),
    /// Serve a model over OpenAI's API, with a page to chat.
    Serve(Box<Serve>),
    /// Compute the mean loss per token of a model on a text.
    Eval(Eval),
    /// Show or clear the cache of token ids.
    Cache(CacheArgs),
    /// Write a model with weights of 4, 6 or 8 bits.
    Quantize(Quantize),
    /// Write a model as a Core ML package, a Hugging Face folder or a GGUF file.
    Export(Export),
    /// List the devices that this build knows.
    Devices(Devices),
    /// Describe this computer, and measure what its engine allows.
    Doctor(Doctor),
    /// Dump a framework's classes, or compare them with those that Ferrane calls.
    Classes(Classes),
    /// List machines, their values, and the claims that these rest on.
    #[command(subcommand, alias = "target")]
    Machine(Machine),
    /// Measure how fast training, products, decoding and programs are.
    #[command(subcommand)]
    Bench(Bench),
    /// Format MIL text in place.
    Fmt(Fmt),
    /// Report everything that is wrong with programs, by themselves or on a machine.
    Check(Check),
    /// Explain a code of `check`.
    Explain(Explain),
    /// Show what is in a program or a compiled file: functions, types, ops, weights, tasks.
    Inspect(Inspect),
    /// Run a program on given or random inputs.
    Run(Run),
    /// Write a program as text or package, in another spelling or opset, or optimized.
    Convert(Convert),
    /// Compile a program to the engine's own container, on a Mac.
    Compile(Compile),
    /// Show what a compiled program (.hwx) does, task by task, or compare two.
    Disasm(Disasm),
    /// Assemble a compiled program from its text.
    Assemble(Assemble),
    /// Convert compiled programs for the Linux driver, and replace their weights.
    #[command(subcommand)]
    Hwx(HwxCommand),
    /// Compare two programs: functions, ops, weights, and what they compute.
    Diff(Diff),
    /// Write the backward program of a function.
    Grad(Grad),
    /// Predict how long a program takes on a chip and what bounds it.
    Cost(Cost),
    /// Predict on which processor a framework runs each op of a program.
    Place(PlaceArgs),
    /// Show what this computer and its engine draw and do, live or while a command runs.
    Top(Top),
    /// Record what a machine computes for a program, and replay it here.
    #[command(subcommand, alias = "trace")]
    Recording(Recording),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print or write manual pages.
    Man(Man),
}

/// Parses a whole number; the command that uses it checks its smallest value.
fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "not a whole number, 0 or more".to_string())
}

/// Parses a finite number.
fn finite(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| "not a finite number".to_string())
}

/// Parses a finite number in single precision.
fn finite32(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|value: &f32| value.is_finite()).ok_or_else(|| "not a finite number".to_string())
}

/// Parses an address to listen on: `9100` and `:9100` are ports of the loopback address.
fn address(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let alone = text.strip_prefix(':').unwrap_or(text);
    match text.rsplit_once(':') {
        _ if is_port(alone) => Ok(format!("127.0.0.1:{alone}")),
        // An address of IPv6 has colons of its own, so it stands in brackets.
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.starts_with('[')) => Ok(text.to_string()),
        _ => Err("give a port, or HOST:PORT such as 0.0.0.0:9100 or [::1]:9100".to_string()),
    }
}

/// The device that runs programs.
#[derive(Args, Debug, Clone)]
pub struct DeviceArg {
    /// `emulator`, `emulator?numerics=exact`, `ane`, `ane-or-emulator`, or `reference` (plain fp32
    /// without a device).
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
}

/// How the residual stream is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Residual {
    /// On the CPU in fp32.
    Fp32,
    /// Rounded to fp16 once per layer inside `ffnFused`, as the reference trainer does.
    Fp16,
}

/// How weights reach the linear kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsForm {
    /// In the same input as the activations, after them.
    Packed,
    /// As function inputs of their own.
    Inputs,
}

/// The kernels of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PipelineArg {
    /// Ten kernels that are compiled once; weights are inputs.
    Dynamic,
    /// Six kernels; five have the weights of a layer as constants and are compiled again after each
    /// update.
    Static,
    /// As static, with norms' gradients, classifier and softmax on the device, too.
    StaticExtras,
    /// Six kernels that are compiled once; weights are inputs.
    Fused,
}

/// Element type of the matrices of a model that generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsType {
    /// Rounded to fp16.
    Fp16,
    /// int8, symmetric, with a scale for each output channel.
    Int8,
    /// int4, symmetric, with a scale for each block of 32 weights; embedding and classifier int8.
    Int4,
}

/// What happens to a text that is longer than the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContextPolicy {
    /// The last half of the context is computed again, as a text of its own.
    Shift,
    /// The first four tokens stay, and the oldest of the others are dropped.
    Sinks,
    /// Nothing is dropped: the command ends with an error.
    Error,
}

/// What the classifier and the loss run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Vocabulary {
    /// The ids that occur in the data.
    Compact,
    /// Every id of the model.
    Full,
}

/// How data of `train` and `eval` are read.
#[derive(Args, Clone, Debug)]
pub struct Reading {
    /// Field of JSON Lines, or column of Parquet files, that holds the text [default: text].
    #[arg(long, value_name = "NAME")]
    pub data_field: Option<String>,
    /// Largest number of broken rows of a set that are left out [default: 100].
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub bad_rows: Option<u64>,
    /// Folder of the cache of token ids; by default $FERRANE_CACHE_DIR or the system's folder for
    /// caches.
    #[arg(long, value_name = "DIR")]
    pub data_cache: Option<PathBuf>,
}

/// `ferrane cache`.
#[derive(Args, Debug)]
pub struct CacheArgs {
    /// Remove the cached files; data are tokenized again when they are next used.
    #[arg(long)]
    pub clear: bool,
    /// Folder of the cache, as for `train`.
    #[arg(long, value_name = "DIR")]
    pub data_cache: Option<PathBuf>,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane train`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Examples:
  ferrane train                                   the embedded default, about three minutes
  ferrane train --data stories.txt --steps 2000   your own text
  ferrane train --data web.jsonl=3 --data books=1 three windows of a file for one of a folder
  ferrane train --model stories15m --tokenizer tokenizer.bin --data data00.bin --accum 16
  ferrane train --data web.jsonl --dry-run        sizes, memory and time, without training
  ferrane train --out runs/a --resume             continue a stopped run, bit for bit

Data: UTF-8 text, JSON Lines (.jsonl), Parquet (.parquet), llama2.c uint16 ids (.bin, .u16) or uint32 ids (.u32); or a folder of
such files, in the order of their names. Text is tokenized once; `ferrane cache` shows where the ids are kept (docs/data.md).
Ctrl-C stops after the micro-step, saves, and prints how to resume; a second one stops at once.")]
pub struct Train {
    /// Preset (stories260k, which is the default, stories15m, stories42m, stories110m,
    /// qwen2.5-0.5b, qwen3-0.6b) or a folder with a Hugging Face config.json.
    #[arg(long, value_name = "PRESET|DIR")]
    pub model: Option<String>,
    /// Initial weights: llama2.c .bin, .safetensors, .gguf, a Hugging Face folder, or the folder of
    /// a run.
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Training data: a file, or a folder of them; several with a sampling weight each or with
    /// none. Without it, the embedded corpus of simple stories.
    #[arg(long, value_name = "PATH[=WEIGHT]", value_parser = str::parse::<DataSet>)]
    pub data: Vec<DataSet>,
    /// How the data are read.
    #[command(flatten)]
    pub reading: Reading,
    /// Tokenizer: llama2.c tokenizer.bin, SentencePiece .model, tokenizer.json, or a folder with
    /// vocab.json and merges.txt. Without one, a small vocabulary is trained on the text.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Where the kernels run: emulator, emulator?numerics=exact, ane, ane-or-emulator, or reference
    /// (plain fp32).
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Number of optimizer updates.
    #[arg(long, value_name = "UPDATES", value_parser = whole::<u64>)]
    pub steps: Option<u64>,
    /// Gradient accumulation: micro-steps per update.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub accum: Option<usize>,
    /// Tokens per window, which is the length of a sequence.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub seq: Option<usize>,
    /// Windows per micro-step, computed one after the other.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub batch: Option<usize>,
    /// Sum the windows of an update in this many groups, which decides the last bits of the
    /// results. With several ranks there is at least one for each (docs/many-machines.md).
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub groups: Option<usize>,
    /// With several ranks, keep the optimizer's moments of a part of the weights on each, which is
    /// called ZeRO stage 1: their memory is divided by the number of ranks, and results have the
    /// same bits (docs/many-machines.md).
    #[arg(long)]
    pub shard_optimizer: bool,
    /// Learning rate after the warm-up.
    #[arg(long, value_name = "F", value_parser = finite)]
    pub lr: Option<f64>,
    /// Learning rate at the end of the cosine; by default a tenth of --lr.
    #[arg(long, value_name = "F", value_parser = finite)]
    pub min_lr: Option<f64>,
    /// Updates of linear warm-up; at most a tenth of a new run's updates.
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub warmup: Option<u64>,
    /// Clip the global gradient norm to this; 0 turns clipping off.
    #[arg(long, value_name = "F", value_parser = finite)]
    pub clip: Option<f64>,
    /// Decoupled weight decay of matrices and the embedding.
    #[arg(long, value_name = "F", value_parser = finite)]
    pub weight_decay: Option<f64>,
    /// Where the residual stream is kept.
    #[arg(long, value_enum)]
    pub residual: Option<Residual>,
    /// The kernels of a step (docs/training.md); `--resume` may change it.
    #[arg(long, value_enum)]
    pub pipeline: Option<PipelineArg>,
    /// Keep the activations of this many layers only, and compute the others again in the backward
    /// pass: less memory for long windows, the same results; 0 keeps all, which is the default.
    #[arg(long, value_name = "LAYERS", value_parser = whole::<usize>)]
    pub recompute: Option<usize>,
    /// How the kernels of the dynamic pipeline receive weights.
    #[arg(long, value_enum)]
    pub weights: Option<WeightsForm>,
    /// Ids that the classifier and the loss run over [default: compact].
    #[arg(long, value_enum)]
    pub vocabulary: Option<Vocabulary>,
    /// Seed of the initial weights and of the sampler.
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Do not train tensors with such names: `embed`, `layers.[0-3].*`, `*.w2`
    /// (docs/finetuning.md).
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',', conflicts_with = "lora")]
    pub freeze: Vec<String>,
    /// Adapters that are trained instead of the weights.
    #[command(flatten)]
    pub adapters: TrainLora,
    /// Conversations as training data.
    #[command(flatten)]
    pub conversations: TrainChat,
    /// Folder of the run, with checkpoints, metrics.jsonl, loss.svg and report.html.
    #[arg(long, value_name = "DIR", default_value = "runs/default")]
    pub out: PathBuf,
    /// Continue from the latest checkpoint in --out; options that are not given are the run's.
    #[arg(long)]
    pub resume: bool,
    /// Only measure what the run would take: sizes, memory, time of a micro-step and of the whole
    /// run. Writes nothing into --out.
    #[arg(long, conflicts_with_all = ["resume", "timeline", "dashboard", "tensorboard", "prometheus"])]
    pub dry_run: bool,
    /// With --dry-run, also predict an update on these numbers of ranks: `2,4,8`
    /// (docs/many-machines.md).
    #[arg(long, value_name = "N,N", value_delimiter = ',', requires = "dry_run", value_parser = whole::<usize>)]
    pub ranks: Vec<usize>,
    /// The link between the machines of --ranks: `1gbe`, `10gbe`, `40gbe`, `thunderbolt5`.
    #[arg(long, value_name = "LINK", default_value = "10gbe", requires = "ranks")]
    pub link: Link,
    /// Updates between validations; 0 validates only at the end.
    #[arg(long, value_name = "UPDATES", value_parser = whole::<u64>)]
    pub eval_every: Option<u64>,
    /// Number of validation windows, evenly spaced; 0 turns validation off.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub eval_windows: Option<usize>,
    /// Updates between checkpoints; one is also written every ten minutes and at the end.
    #[arg(long, value_name = "UPDATES", value_parser = whole::<u64>)]
    pub save_every: Option<u64>,
    /// One JSON object per event on standard output, nothing else.
    #[arg(long)]
    pub json: bool,
    /// Also predict the time of a window on this chip or profile: `m4`, `m4-max-macos26-inmem`.
    #[arg(long, aliases = ["target", "profile"], value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Write a timeline of the first 64 micro-steps, thread by thread, for chrome://tracing or
    /// Perfetto (docs/training.md).
    #[arg(long, alias = "trace-json", value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// At the end, also print the memory by owner (docs/training.md).
    #[arg(long)]
    pub memory: bool,
    /// What is shown of the run, and where.
    #[command(flatten)]
    pub showing: Showing,
}

/// `ferrane eval`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct Eval {
    /// Model: the folder of a run, llama2.c .bin, .safetensors, .gguf, or a Hugging Face folder.
    #[arg(long, value_name = "FILE|DIR")]
    pub checkpoint: PathBuf,
    /// Data as `train` takes them: a file or folder of text, JSON Lines, Parquet or token ids;
    /// several share the windows by weight or, without weights, by size.
    #[arg(long, value_name = "PATH[=WEIGHT]", required = true, value_parser = str::parse::<DataSet>)]
    pub data: Vec<DataSet>,
    /// How the data are read.
    #[command(flatten)]
    pub reading: Reading,
    /// Tokenizer, if the data are text.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Tokens per window, which is the length of a sequence.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub seq: usize,
    /// Number of windows, evenly spaced over the data; 0 takes all that fit without overlap.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole::<usize>)]
    pub windows: usize,
    /// An adapter of the model.
    #[command(flatten)]
    pub adapter: LoraArg,
    /// Where the kernels run.
    #[command(flatten)]
    pub device: DeviceArg,
    /// One JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane devices`.
#[derive(Args, Debug)]
#[command(after_long_help = crate::devices::options())]
pub struct Devices {
    /// One JSON object a device, one on a line.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
