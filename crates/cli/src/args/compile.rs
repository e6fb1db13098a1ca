//! `ferrane compile`.

use std::path::PathBuf;

use clap::Args;

/// `ferrane compile`.
#[derive(Args, Debug)]
#[command(after_help = "\
The compiler is a framework of macOS; on other systems the command fails and writes nothing. It writes the engine's own container,
model.hwx, for any engine that it knows; the Mac itself need not have one. `ferrane disasm` shows what is in it.

Examples:
  ferrane compile --aot model.mlpackage --out built                             for this Mac's engine
  ferrane compile --aot model.mil --out built --target-architecture h16g        for an M4's
  ferrane compile --aot net.plist --out built --debug-mask 2147483647 --keep    all intermediate files, in built/intermediate

The command has not been tried on a Mac: docs/ane-bindings.md lists what it calls. `run --device ane` and `check --machine` do not need
it.")]
pub struct Compile {
    /// MIL text, .mlpackage, .mlmodel, .mlmodelc, .onnx, .aimodel, or the compiler's own
    /// description of a network, .plist.
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// The open extents of an ONNX model, batch=1,seq=128, or of a Core AI model, x=1x128; may be
    /// repeated.
    #[arg(long = "shape", value_name = "NAME=NUMBER")]
    pub shapes: Vec<String>,
    /// Compile ahead of time, to a file; required.
    #[arg(long)]
    pub aot: bool,
    /// Folder of the result, created if necessary.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// The engine to compile for, `h16g` for example [default: this Mac's].
    #[arg(long, value_name = "NAME")]
    pub target_architecture: Option<String>,
    /// Which intermediate files the compiler writes, as bits; 2147483647 is all of them.
    #[arg(long, value_name = "N", value_parser = super::whole::<u32>)]
    pub debug_mask: Option<u32>,
    /// Keep the input and everything that the compiler wrote, also after a failure, in
    /// FOLDER/intermediate.
    #[arg(long)]
    pub keep: bool,
}
