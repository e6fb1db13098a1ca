//! The commands that work on compiled programs: disasm, assemble, hwx.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ferrane disasm`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane disasm model.hwx                         what each task reads, does and writes
  ferrane disasm model.hwx --registers             every register that is set, too
  ferrane disasm model.hwx --text > model.txt      all of the file, for `ferrane assemble`
  ferrane disasm model.hwx --svg tasks.svg         tasks and buffers as a picture
  ferrane disasm model.hwx --dot | dot -Tpdf > tasks.pdf
  ferrane disasm before.hwx --diff after.hwx       what differs: commands, buffers, registers, contents

docs/hwx.md explains the words, docs/hwx-registers.md has the registers. Parts that are not documented are shown as unknown and kept as
bytes.

Exit status: 0 shown, 1 not a compiled program; with --diff as `ferrane diff`: 0 the same, 1 different, 2 trouble.")]
pub struct Disasm {
    /// A compiled program, .hwx or .anec (`-` is standard input).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Also every register that a task sets.
    #[arg(long, conflicts_with_all = ["text", "json", "dot", "svg", "diff"])]
    pub registers: bool,
    /// The whole file as text, from which `ferrane assemble` makes the same bytes.
    #[arg(long, conflicts_with_all = ["json", "dot", "svg", "diff"])]
    pub text: bool,
    /// Print everything as one JSON object; with --diff the differences.
    #[arg(long, conflicts_with_all = ["dot", "svg"])]
    pub json: bool,
    /// Tasks and buffers as a graph for Graphviz.
    #[arg(long, conflicts_with_all = ["svg", "diff"])]
    pub dot: bool,
    /// Write tasks and buffers as a picture.
    #[arg(long, value_name = "OUT.svg", conflicts_with = "diff")]
    pub svg: Option<PathBuf>,
    /// Compare with this file instead.
    #[arg(long, value_name = "OTHER")]
    pub diff: Option<PathBuf>,
}

/// `ferrane assemble`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane disasm model.hwx --text > model.txt
  ferrane assemble model.txt -o same.hwx             byte for byte
  sed 's/Kw = 1; Kh = 1/Kw = 3; Kh = 3/' model.txt | ferrane assemble - -o other.hwx
  ferrane disasm model.hwx --diff other.hwx

A text with mistakes makes no file; all mistakes are reported, each with its position (E0710 to E0713, `ferrane explain E0711`). Exit
status: 0 written, 1 not.")]
pub struct Assemble {
    /// The text of a compiled program; `-` is standard input.
    #[arg(value_name = "TEXT")]
    pub text: PathBuf,
    /// The file to write.
    #[arg(long, short, value_name = "OUT.hwx")]
    pub output: PathBuf,
    /// Replace files that exist; without it they are an error.
    #[arg(long)]
    pub force: bool,
}

/// `ferrane hwx`.
#[derive(Debug, Subcommand)]
pub enum HwxCommand {
    /// Write a compiled program for the Linux driver (.anec), or such a file as a container or a
    /// bare payload.
    #[command(after_help = "\
Examples:
  ferrane hwx convert model.hwx model.anec             for the Linux driver of M1; buffers are found by their names
  ferrane hwx convert model.hwx model.anec --libane    the payload at 0x800, where today's libane expects it
  ferrane hwx convert model.anec model.hwx             a container around it, with names that are made up
  ferrane hwx convert model.anec payload.bin           descriptors and constants alone

`ferrane disasm` reads .anec files as they are.")]
    Convert(HwxConvert),
    /// Write the weights of each convolution as .npy files.
    #[command(after_help = "\
Examples:
  ferrane hwx unpack model.hwx -o weights       weights/task0.npy, weights/task1.npy, …: [Cout, Cin, Kh, Kw]
  ferrane hwx pack model.hwx weights -o new.hwx")]
    Unpack(HwxUnpack),
    /// Write a compiled program with other weights, from .npy files as `unpack` names them.
    Pack(HwxPack),
}

/// `ferrane hwx convert`.
#[derive(Args, Debug)]
pub struct HwxConvert {
    /// A compiled program, .hwx or .anec, recognized by its first bytes.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The file to write: .anec or .ane; for an .anec also .hwx, or .bin for the payload.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Start the payload at 0x800, where today's libane expects it, instead of 0x1000.
    #[arg(long)]
    pub libane: bool,
    /// Replace files that exist; without it they are an error.
    #[arg(long)]
    pub force: bool,
}

/// `ferrane hwx unpack`.
#[derive(Args, Debug)]
pub struct HwxUnpack {
    /// The compiled program whose weights are meant.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder of the weights, created if necessary.
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// Replace files that exist; without it they are an error.
    #[arg(long)]
    pub force: bool,
}

/// `ferrane hwx pack`.
#[derive(Args, Debug)]
pub struct HwxPack {
    /// The compiled program whose weights are meant.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder with the weights, taskN.npy; tasks without a file keep theirs.
    #[arg(value_name = "DIR")]
    pub weights: PathBuf,
    /// The file to write.
    #[arg(long, short, value_name = "OUT.hwx")]
    pub output: PathBuf,
    /// Replace files that exist; without it they are an error.
    #[arg(long)]
    pub force: bool,
}
