//! The commands that work on programs: fmt, check, inspect, run, convert, diff, grad,
//! cost, place.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ferrane::Numerics;
use ferrane::machine::InputBounds;
use ferrane::machine::placement::{AllowedUnits, Framework};

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

A file that is not MIL stays as it is. Exit status: 0 all formatted, 1 a file is not (with --check) or is not MIL, 2 wrong usage.")]
pub struct Fmt {
    /// MIL texts; `-` is standard input, written to standard output.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write nothing; print the names of files that are not formatted.
    #[arg(long)]
    pub check: bool,
    /// The spelling to write [default: that of each file].
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
    /// One SARIF 2.1.0 log, for code scanning and editors.
    Sarif,
}

/// `ferrane check`.
#[derive(Args, Debug)]
#[command(after_help = "\
With --machine the program is also checked against a machine: what its compiler refuses, what fails at evaluation, what is silently
wrong or slow, each with the claims that it rests on and the way out. `ferrane machine list` names the machines, `ferrane explain E0421` has
the long explanation of a code.

Examples:
  ferrane check model.mil
  ferrane check --machine m4-macos15-inmem model.mil
  ferrane check --machine m4 --bounds x=-1..1 --strict model.mil
  ferrane check --machine m1-macos26-inmem --fix model.mil
  ferrane check --no-weights kernel.mil    the text alone, without its blob files
  ferrane check --machine m4 --format json model.mil | jq .findings
  ferrane check --machine m4 --format sarif *.mil > results.sarif
  ferrane check --machine m4 net.mlpackage --html report.html

With --html the network is drawn with its findings, the placement by Core ML and the predicted time of each op, on a page that works
without a network.

Exit status: 0 no errors (warnings may be shown), 1 errors, 2 wrong usage.")]
pub struct Check {
    /// Programs: MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc, .onnx or
    /// .aimodel.
    #[arg(required = true, value_name = "PROGRAM")]
    pub files: Vec<PathBuf>,
    /// How to print diagnostics.
    #[arg(long, value_enum, default_value = "human")]
    pub format: Format,
    /// Do not open the blob files that a text refers to.
    #[arg(long)]
    pub no_weights: bool,
    /// The machine: CHIP-OS-PATH, m4-macos15-inmem for example; system and path may be left out. Or
    /// a report of `ferrane doctor`, a file that ends in .json.
    #[arg(long, aliases = ["target", "profile"], value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Values that were measured on the machine; they override the built-in ones (TOML).
    #[arg(long, alias = "profile-file", value_name = "FILE", requires = "machine")]
    pub machine_file: Option<PathBuf>,
    /// Count every claim, including those about other machines and those that the profile
    /// overrules.
    #[arg(long, requires = "machine")]
    pub strict: bool,
    /// Rewrite the program so that the machine accepts more of it, if it then checks better.
    /// Comments of a text are lost.
    #[arg(long, requires = "machine")]
    pub fix: bool,
    /// Check the program for this shape of an input, x=1x3x224x224, or of several, separated by
    /// commas; `default` takes those of the package's description.
    #[arg(long = "shape", value_name = "NAME=DIMS", conflicts_with = "fix")]
    pub shapes: Vec<String>,
    /// The range of an input, for the search for overflow: x=-1..1; may be repeated.
    #[arg(long, value_name = "NAME=LOW..HIGH", requires = "machine", allow_hyphen_values = true)]
    pub bounds: Vec<InputBounds>,
    /// Write the network as a page: its graph with findings, placement and predicted cost. Takes
    /// one program.
    #[arg(long, value_name = "OUT.html", requires = "machine")]
    pub html: Option<PathBuf>,
}

/// `ferrane explain`.
#[derive(Args, Debug)]
pub struct Explain {
    /// A code: E0421.
    #[arg(value_name = "CODE")]
    pub code: String,
}

/// `ferrane inspect`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane inspect model.mlpackage            functions, types, ops, weights
  ferrane inspect model.hwx                  what a compiled program is for, its inputs, outputs and constants
  ferrane inspect model.gguf                 metadata, types and tensors of a language model
  ferrane inspect H16G.bundle                the recognized files of a bundle
  ferrane inspect net.plist --json

Files are recognized by their contents, not by their names: programs; compiled programs (.hwx); files of the Linux driver (.anec);
GGUF; FlatBuffers of E5 bundles; coremldata.bin; net.plist; networks, shapes and weights of Espresso; weight.bin. Parts of a format that are
not documented are shown as unknown.")]
pub struct Inspect {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc, .onnx or .aimodel; a
    /// .gguf; a compiled program, or a file or folder of a bundle.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The open extents of an ONNX model, batch=1,seq=128, or of a Core AI model, x=1x128; may be
    /// repeated.
    #[arg(long = "shape", value_name = "NAME=NUMBER")]
    pub shapes: Vec<String>,
    /// List every weight, not only the largest of each file.
    #[arg(long)]
    pub weights: bool,
    /// Print everything as one JSON object.
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
    /// That of the profile's machine, as far as it is published.
    Hardware,
}

impl From<NumericsArg> for Numerics {
    fn from(arg: NumericsArg) -> Numerics {
        match arg {
            NumericsArg::Fast => Numerics::Fast,
            NumericsArg::Exact => Numerics::Exact,
            NumericsArg::Hardware => Numerics::Hardware,
        }
    }
}

/// How outputs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A file for each: DIR/NAME.npy.
    Npy,
    /// One file for all outputs: DIR/outputs.safetensors.
    Safetensors,
    /// DIR/NAME.png for outputs that are images, DIR/NAME.npy for the others.
    Png,
}

/// `ferrane run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Values of inputs:
  x=image.npy               a NumPy array
  x=inputs.safetensors:key  a tensor of a file; without :key the one named as the input
  x=photo.png               an image (.png, .jpg): its values from 0 to 255, in the input's order of channels
  x=random:1                uniform draws from -1 to 1 with seed 1 (integers: 0 or 1)
  x=random:1:0:10           from 0 to 10, 10 not included
  x=zeros, x=ones           every element
  x=[1, 2, 3]               literals, nested like the shape or flat; one number, x=0.5, fills the input
Values are converted to the input's element type; what does not fit is an error.

An input that may have several shapes takes that of its value, or the one that --shape chooses, or its default. `ferrane inspect` lists
the shapes that a package allows; others are refused. A classifier's labels are printed with their probabilities, the largest first.

Examples:
  ferrane run model.mil --input x=random:1
  ferrane run detector.mlpackage --input image=photo.png --resize --shape image=1x3x640x640
  ferrane run style.mlpackage --input image=photo.png --output out --output-format png
  ferrane run model.mlpackage --input image=cat.npy --output out
  ferrane run model.onnx --shape batch=1,seq=128 --input tokens=tokens.npy
  ferrane run model.mil --input x=random:1 --numerics exact --json
  ferrane run decoder.mil --input token=[3] --state cache=out/cache.npy --output out
  ferrane run model.mil --input x=random:1 --numerics hardware --machine m1
  ferrane run model.mil --input x=random:1 --audit --machine m1 --html audit.html
  ferrane run model.mil --input x=random:1 --audit --network report.html
  ferrane run model.mlpackage --input x=random:1 --proof --device ane     did the engine run it?
  ferrane run model.hwx --input image=random:1 --numerics hardware

A compiled program (.hwx) of H13 (M1), H16 (M4) or H17 (M5) runs on the emulator only, from its registers, weights and tables. Inputs
have the names of the file's tensors and are fp16 [N, C, H, W]; --function names a program of the file. A program with a register
whose meaning is not documented is refused with the task and the register; readings that rest on samples are noted (docs/hwx.md).

With --audit every op runs under exact, fast and hardware arithmetic, and each value is compared with the exact one: `alone` is the op
by itself on exact operands rounded to fp16, so it names the op that breaks the numbers; `run` is the op at its place, with the errors
of the ops before it. Both are in ulps (steps of fp16) of the value's largest exact magnitude: 0.5 is one rounding. An op deviates
from exact if it overflows, makes NaN or infinity of a number, changes an integer, or errs by more than --threshold. The exit status is 0
whatever is found.
With --json one object: `program`, `function`, `profile`, `threshold`, `numerics`, `bins` (upper ends of the histogram, in ulps),
`summary`, `joined` (outputs that a hardware run gives otherwise than its ops one by one), `first` and `worst` (by arithmetic: the first value that parts, the one that errs most), and `values`, in program order:
`place`, `op`, `value`, `dtype`, `shape`, `unit`, `output`, `note`, `exact` (`elements`, `min`, `max`, `peak`, `least`, `beyond`
fp16, `subnormal`, `not_finite`), `readings` (by arithmetic: `cause`, `local`, `accumulated`, each `elements`, `max` and `rms` error,
`relative` error, `max_ulps`, `peak_ulps`, `histogram` with a bin for more and one for not finite, `overflow`, `saturated`,
`special`, `underflow`, `vanished`, `subnormal`, `differ`, `worst`). Numbers that are not finite are strings.")]
pub struct Run {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc, .onnx, .aimodel, or a
    /// compiled program (.hwx).
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// The value of an input; may be repeated.
    #[arg(long = "input", short = 'i', value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,
    /// The shape of an input, x=1x3x224x224, or of several, separated by commas [default: that of
    /// its value, or of the package's description].
    #[arg(long = "shape", value_name = "NAME=DIMS")]
    pub shapes: Vec<String>,
    /// Scale images of other sizes to the input's size.
    #[arg(long)]
    pub resize: bool,
    /// Write the outputs into this folder, which is created if necessary.
    #[arg(long, short = 'o', value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// How outputs are written.
    #[arg(long, value_enum, default_value = "npy", requires = "output")]
    pub output_format: OutputFormat,
    /// The first value of a state [default: zeros]. States are shown and written after the
    /// outputs.
    #[arg(long = "state", value_name = "NAME=SOURCE", allow_hyphen_values = true)]
    pub states: Vec<String>,
    /// The function to run [default: `main`, or the first one].
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// The device: emulator, ane or ane-or-emulator; `ferrane devices` lists them.
    #[arg(long, default_value = "emulator", value_name = "DEVICE")]
    pub device: String,
    /// The emulator's arithmetic [default: fast]; the same as --device
    /// emulator?numerics=NUMERICS.
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsArg>,
    /// The machine that the emulator stands for: m4-macos15-inmem, or m1, m5-pro, …; the same as
    /// --device emulator?machine=NAME.
    #[arg(long, aliases = ["target", "profile"], value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Compare every value under exact, fast and hardware arithmetic, and report which op breaks
    /// the numbers, and why.
    #[arg(long, conflicts_with_all = ["output", "numerics"])]
    pub audit: bool,
    /// Collect evidence that a Neural Engine ran the program: outputs that were overwritten before,
    /// other inputs, repeated bits, the engine's arithmetic, times. Each says what it cannot show.
    #[arg(long, conflicts_with_all = ["audit", "output"])]
    pub proof: bool,
    /// Write the report of --audit as a page with plots.
    #[arg(long, value_name = "OUT.html", requires = "audit")]
    pub html: Option<PathBuf>,
    /// Write the network as a page, with the errors of --audit, findings and placement at its ops.
    #[arg(long, value_name = "OUT.html", requires = "audit")]
    pub network: Option<PathBuf>,
    /// The largest error of an op in --audit, in ulps of the value's largest magnitude.
    #[arg(long, value_name = "ULPS", default_value_t = 16.0, value_parser = super::finite, requires = "audit")]
    pub threshold: f64,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
}

/// An opset to convert to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OpsetArg {
    /// macOS 12.
    Ios15,
    /// macOS 13.
    Ios16,
    /// macOS 14.
    Ios17,
    /// macOS 15.
    Ios18,
}

/// `ferrane convert`.
#[derive(Args, Debug)]
pub struct Convert {
    /// MIL text, .mlpackage, .mlmodel, .mlmodelc, .onnx or .aimodel.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The file to write: .mil (text, with its blob files in the same folder), .mlpackage, .mlmodel
    /// or .aimodel; `-` prints the text alone.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// The open extents of an ONNX model, batch=1,seq=128, or of a Core AI model, x=1x128; may be
    /// repeated.
    #[arg(long = "shape", value_name = "NAME=NUMBER")]
    pub shapes: Vec<String>,
    /// The spelling of text [default: that of the input].
    #[arg(long, value_enum)]
    pub dialect: Option<DialectArg>,
    /// Express the program in this opset. Arguments at their defaults are left out or written; what
    /// cannot be expressed is listed.
    #[arg(long, value_enum)]
    pub opset: Option<OpsetArg>,
    /// Passes to run, in this order, before anything else.
    #[arg(long, value_name = "PASS", value_delimiter = ',', conflicts_with = "optimize")]
    pub passes: Vec<String>,
    /// Run every pass that makes a program smaller and changes no bit of its results.
    #[arg(long)]
    pub optimize: bool,
    /// Make every float of an ONNX model fp16, ports and weights included.
    #[arg(long)]
    pub fp16: bool,
    /// Replace files that exist; without it they are an error.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object about what was written.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane diff`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane diff before.mil after.mlpackage
  ferrane diff before.mil after.mil --run 1 --within 1e-3

Ops correspond by the names of their results; a program in which only names differ is the same. With --run the numbers decide, and
different ops are reported but do not count.

Exit status: 0 the same, 1 different, 2 trouble: a program cannot be read or run.")]
pub struct Diff {
    /// A program: MIL text, .mlpackage, .mlmodel, .mlmodelc, .onnx or .aimodel.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The program to compare it with.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// The open extents of an ONNX model, batch=1,seq=128, or of a Core AI model, x=1x128; may be
    /// repeated.
    #[arg(long = "shape", value_name = "NAME=NUMBER")]
    pub shapes: Vec<String>,
    /// Run both on the emulator with the same random inputs of this seed, and compare their
    /// outputs.
    #[arg(long, value_name = "SEED")]
    pub run: Option<u64>,
    /// The largest difference in --run, as a share of the output's largest magnitude.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "run")]
    pub within: f64,
    /// The emulator's arithmetic in --run.
    #[arg(long, value_enum, default_value = "exact", requires = "run")]
    pub numerics: NumericsArg,
    /// Print everything as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane grad`.
#[derive(Args, Debug)]
#[command(after_help = "\
The backward program takes the inputs of the function and, for each chosen output y, d_y: the gradient of the loss by y. It returns d_x
for each chosen input x: the gradient of the loss by x. With d_y = ones that is the gradient of the sum of y.

Examples:
  ferrane grad loss.mil -o backward.mil                           of all outputs by all inputs
  ferrane grad net.mil --output y --input x,w --keep-outputs -o step.mil
  ferrane grad net.mlpackage --lift w1,w2 -o step.mlpackage       weights become inputs and get gradients
  ferrane run backward.mil -i x=random:1 -i d_y=ones              see the gradients

A constant may be chosen as an input: it stays a constant, and d_NAME is its gradient. --lift makes it an input as well, so that a
training loop can change it without compiling again. docs/ops.md lists the ops that have gradients.

Exit status: 0 written, 1 there is no such program (an op without a gradient, or an unknown name), 2 wrong usage.")]
pub struct Grad {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc, .onnx or .aimodel.
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// The open extents of an ONNX model, batch=1,seq=128, or of a Core AI model, x=1x128; may be
    /// repeated.
    #[arg(long = "shape", value_name = "NAME=NUMBER")]
    pub shapes: Vec<String>,
    /// The values to differentiate, separated by commas [default: all floating-point outputs].
    #[arg(long = "output", value_name = "NAME", value_delimiter = ',')]
    pub outputs: Vec<String>,
    /// The values to differentiate by: inputs, constants or any other values [default: all
    /// floating-point inputs]. Lifted constants are always among them.
    #[arg(long = "input", short = 'i', value_name = "NAME", value_delimiter = ',')]
    pub inputs: Vec<String>,
    /// Constants that become inputs, after the other inputs.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub lift: Vec<String>,
    /// Values that the backward program takes as inputs instead of computing them again.
    #[arg(long = "tap", value_name = "NAME", value_delimiter = ',')]
    pub taps: Vec<String>,
    /// Return the chosen outputs as well, before the gradients.
    #[arg(long)]
    pub keep_outputs: bool,
    /// Leave out inputs of the function that the gradients do not depend on.
    #[arg(long)]
    pub prune_inputs: bool,
    /// The function [default: `main`, or the first one].
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// The file to write: .mil (text, with its blob files in the same folder), .mlpackage, .mlmodel
    /// or .aimodel; `-` prints the text alone.
    #[arg(long = "out", short = 'o', value_name = "OUT")]
    pub out: PathBuf,
    /// Replace files that exist; without it they are an error.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object about what was written.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane cost`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane cost --machine m4 net.mil                 what each op takes, and the whole
  ferrane cost --machine m5 net.mil --svg roof.svg  its ops on the chip's roofline
  ferrane cost --published numbers.json --json     published numbers next to predicted ones")]
pub struct Cost {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc, .onnx or .aimodel.
    #[arg(value_name = "PROGRAM", conflicts_with = "published")]
    pub program: Option<PathBuf>,
    /// Chip or profile: `m4`, `m4-max-macos26-inmem`.
    #[arg(long, aliases = ["target", "profile"], default_value = "m4", value_name = "MACHINE")]
    pub machine: String,
    /// The shape of an input, x=1x3x224x224, or of several, separated by commas [default: that of
    /// the package's description].
    #[arg(long = "shape", value_name = "NAME=DIMS", conflicts_with = "published")]
    pub shapes: Vec<String>,
    /// The function [default: `main`, or the first one].
    #[arg(long, value_name = "NAME", conflicts_with = "published")]
    pub function: Option<String>,
    /// Draw the program's ops on the chip's roofline.
    #[arg(long, value_name = "FILE", conflicts_with = "published")]
    pub svg: Option<PathBuf>,
    /// A file of published numbers: an array of records `{source, chip, what, config, metric,
    /// value, unit}`.
    #[arg(long, value_name = "FILE")]
    pub published: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `ferrane place`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane place net.mil --machine m4                       each op: eligible, preferred, where it probably runs
  ferrane place net.mlpackage --units all --json           as one JSON object
  ferrane place net.mlpackage --html report.html           the network as a page, what is not on the engine, and why
  ferrane place net.mlpackage --record now.json            and keep the placement in a file
  ferrane place net.mlpackage --plan --record real.json    on a Mac: what Core ML itself plans
  ferrane place --diff then.json now.json                  status 1 if an op left the engine")]
pub struct PlaceArgs {
    /// MIL text (`-` is standard input), .mlpackage, .mlmodel, .mlmodelc or .onnx.
    #[arg(value_name = "PROGRAM", conflicts_with = "diff")]
    pub program: Option<PathBuf>,
    /// Chip or profile: `m4`, `m4-max-macos26-coreml`. The path is always that of Core ML.
    #[arg(long, aliases = ["target", "profile"], default_value = "m4", value_name = "MACHINE")]
    pub machine: String,
    /// The framework that distributes the ops: `coreml` or `coreai`.
    #[arg(long, default_value = "coreml", value_name = "FRAMEWORK")]
    pub framework: Framework,
    /// The processors that it may use: `cpu-and-ne` or `all`.
    #[arg(long, default_value = "cpu-and-ne", value_name = "UNITS")]
    pub units: AllowedUnits,
    /// The function [default: `main`, or the first one].
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// The shape of an input, x=1x3x224x224, or of several, separated by commas [default: that of
    /// the package's description].
    #[arg(long = "shape", value_name = "NAME=DIMS")]
    pub shapes: Vec<String>,
    /// Ask Core ML for its plan instead of predicting it: on a Mac, for a package or a compiled
    /// model. Core ML compiles the model first, which can take minutes.
    #[arg(long, conflicts_with = "diff")]
    pub plan: bool,
    /// Write the placement to a file, which --diff reads.
    #[arg(long, value_name = "FILE", conflicts_with = "diff")]
    pub record: Option<PathBuf>,
    /// Write the network as a page: its graph with the placement, what the checker finds, and the
    /// predicted cost.
    #[arg(long, value_name = "OUT.html", conflicts_with = "diff")]
    pub html: Option<PathBuf>,
    /// Compare two recorded placements, the earlier one first.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    pub diff: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
