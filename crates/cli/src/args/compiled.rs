//! The commands that work on compiled programs: disasm, assemble.

use std::path::PathBuf;

use clap::Args;

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

docs/hwx.md explains the words, docs/hwx-registers.md has the registers. What nobody has described is told as such and kept as bytes.

Exit status: 0 told, 1 no compiled program; with --diff as `ferrane diff`: 0 the same, 1 different, 2 trouble.")]
pub struct Disasm {
    /// A compiled program, .hwx (`-` is standard input).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Also every register that a task sets.
    #[arg(long, conflicts_with_all = ["text", "json", "dot", "svg", "diff"])]
    pub registers: bool,
    /// The whole file as text, from which `ferrane assemble` makes the same bytes.
    #[arg(long, conflicts_with_all = ["json", "dot", "svg", "diff"])]
    pub text: bool,
    /// One JSON object with all of it; with --diff the differences.
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

A text that is not right makes no file; all mistakes are told, each with its place (E0710 to E0713, `ferrane explain E0711`). Exit
status: 0 written, 1 not.")]
pub struct Assemble {
    /// The text of a compiled program; `-` is standard input.
    #[arg(value_name = "TEXT")]
    pub text: PathBuf,
    /// The file to write.
    #[arg(long, short, value_name = "OUT.hwx")]
    pub output: PathBuf,
    /// Replace what is there.
    #[arg(long)]
    pub force: bool,
}
