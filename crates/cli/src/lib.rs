//! The command `ferrane`: arguments, output and exit codes around the libraries.
//!
//! Each command parses its arguments, calls a library, and prints the result as text or JSON. What
//! all commands share (output, JSON, exit status) is in docs/command.md.
//!
//! The command is a library, so that a test can run it over another engine than the system's.
#![deny(missing_docs)]
#![forbid(unsafe_code)]
// A command prints; libraries do not.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod about;
mod args;
mod audit;
mod bench;
mod chat;
mod check;
mod classes;
mod compile;
mod compiled;
mod convert;
mod cost;
mod data;
mod devices;
mod diff;
mod doctor;
mod error;
mod eval;
mod explain;
mod export;
mod files;
mod flags;
mod fmt;
mod generate;
mod grad;
mod help;
mod hwx;
mod inspect;
mod logging;
mod machine;
mod model;
mod out;
mod place;
mod program;
mod quantize;
mod recording;
mod run;
mod runs;
mod scrape;
mod serve;
mod terminal;
mod timeline_file;
mod top;
mod train;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::OnceLock;

use args::{Cli, Command};
use clap::{CommandFactory as _, FromArgMatches as _};

/// The command line as `clap` has it, for tests and tools that list commands and options.
pub fn command() -> clap::Command {
    // The libraries own the defaults of `train` and the passes of `convert`.
    let command = Cli::command().mut_subcommand("train", train::describe).mut_subcommand("convert", convert::describe);
    help::grouped(command)
}

/// How another program that runs the command is started as the command, and the arguments.
struct Started {
    words: Vec<OsString>,
    arguments: Vec<OsString>,
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// Runs the command within another program, which is started as the command by these words:
/// `python -m ferrane`. The first of the arguments is the command's own name.
pub fn run_as(words: impl Into<Vec<OsString>>, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    STARTED.get_or_init(|| Started { words: words.into(), arguments: arguments.clone() });
    run(arguments)
}

/// This command again, without arguments.
fn again() -> std::io::Result<std::process::Command> {
    match STARTED.get().and_then(|started| started.words.split_first()) {
        Some((program, words)) => {
            let mut command = std::process::Command::new(program);
            command.args(words);
            Ok(command)
        }
        None => Ok(std::process::Command::new(std::env::current_exe()?)),
    }
}

/// The words by which the user started the command.
fn started_by() -> Vec<String> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    match STARTED.get() {
        Some(started) => started.words.iter().map(text).collect(),
        None => vec![std::env::args().next().unwrap_or_else(|| "ferrane".into())],
    }
}

/// The arguments that the command was given.
fn arguments() -> Vec<OsString> {
    match STARTED.get() {
        Some(started) => started.arguments.iter().skip(1).cloned().collect(),
        None => std::env::args_os().skip(1).collect(),
    }
}

/// Runs the command with these arguments, the first of which is its own name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // The command may be the child of one that opened `ane?isolate=on`.
    if let Some(code) = ferrane::isolate::serve() {
        return code;
    }
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments).unwrap_or_else(|e| e.exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut command).exit());
    let result = logging::start(cli.verbose).and_then(|()| dispatch(cli.command));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed() => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_told() {
                out::note(format_args!("error: {error}"));
            }
            ExitCode::from(error.status())
        }
    }
}

fn dispatch(command: Command) -> error::Result<()> {
    match command {
        Command::Train(args) => train::run(*args),
        Command::Watch(args) => watch::run(args),
        Command::Runs(args) => runs::run(&args),
        Command::Generate(args) => generate::run(*args),
        Command::Chat(args) => chat::run(*args),
        Command::Serve(args) => serve::run(*args),
        Command::Eval(args) => eval::run(args),
        Command::Cache(args) => data::cache(&args),
        Command::Quantize(args) => quantize::run(args),
        Command::Export(args) => export::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Classes(args) => classes::run(args),
        Command::Machine(args) => machine::run(args),
        Command::Bench(what) => bench::run(what),
        Command::Fmt(args) => fmt::run(args),
        Command::Check(args) => check::run(args),
        Command::Explain(args) => explain::run(&args),
        Command::Inspect(args) => inspect::run(args),
        Command::Run(args) => run::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Cost(args) => cost::run(args),
        Command::Place(args) => place::run(args),
        Command::Top(args) => top::run(&args),
        Command::Compile(args) => compile::run(args),
        Command::Disasm(args) => compiled::disassemble(args),
        Command::Assemble(args) => compiled::assemble(args),
        Command::Hwx(what) => hwx::run(what),
        Command::Diff(args) => diff::run(args),
        Command::Grad(args) => grad::run(args),
        Command::Recording(args) => recording::run(args),
        Command::Completions(args) => help::completions(&args),
        Command::Man(args) => help::man(&args),
    }
}
