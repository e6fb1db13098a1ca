//! The command `ferrane`: train, generate, eval, devices, bench.
//!
//! Results go to standard output; progress and messages to standard error. With `--json` standard output holds JSON and nothing
//! else. An error ends the process with status 1 and says what to do about it.
#![forbid(unsafe_code)]
// A command prints; libraries do not.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bench;
mod devices;
mod error;
mod eval;
mod generate;
mod model;
mod train;

use std::process::ExitCode;

use args::{Bench, Cli, Command};
use clap::Parser as _;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(*args),
        Command::Generate(args) => generate::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Bench(Bench::Step(args)) => bench::step(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
