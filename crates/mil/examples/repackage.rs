//! Reads a package, a model, a compiled model or MIL text and writes a package, with the
//! description it was read with.
//!
//! `cargo run -p ferrane-mil --example repackage -- IN OUT.mlpackage [IN OUT …]`; what is at OUT is
//! replaced. `scripts/interop-coremltools.sh` runs it over all test data. It is an example and no
//! chore of `xtask`, because every chore would then have to build this crate first.

use std::process::ExitCode;

use ferrane_mil::package::{WriteOptions, open, write_package};

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let (pairs, rest) = paths.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return fail("usage: repackage IN OUT [IN OUT …]".into());
    }
    for [from, to] in pairs {
        let written = open(from).and_then(|opened| {
            let options = WriteOptions {
                overwrite: true,
                description: opened.description.as_ref(),
                specification_version: opened.specification_version,
            };
            write_package(&opened.program, to, &options)
        });
        if let Err(e) = written {
            return fail(e.to_string());
        }
    }
    ExitCode::SUCCESS
}

#[allow(clippy::print_stderr)] // This is a program: standard error is where it reports.
fn fail(reason: String) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::FAILURE
}
