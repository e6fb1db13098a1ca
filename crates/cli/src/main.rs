//! The command `ferrane`; all of it is in the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    ferrane_cli::run(std::env::args_os())
}
