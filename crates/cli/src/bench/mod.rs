//! `ferrane bench`: how long things take on this computer.
//!
//! A measurement warms up, repeats, and tells the median with the lowest and the highest time; a
//! mean hides what else the machine did. With `--json` every report names the machine, and carries
//! its numbers under the same names: `median_ms`, `lowest_ms`, `highest_ms`, `repeats`.
//!
//! The one decision: a speed by itself says little about a program on a machine that others use, so
//! what is compared is measured in turns of one run: kernels against ceilings found beside them,
//! peers by `scripts/bench-peers.sh`.

mod decode;
mod dispatch;
mod fit;
mod gemm;
mod machine;
mod measure;
mod plot;
mod program;
mod step;
mod sweep;

pub use gemm::Shape;

use crate::args::Bench;
use crate::error::Result;

/// Runs the command.
pub fn run(bench: Bench) -> Result<()> {
    match bench {
        Bench::Step(args) => step::run(args),
        Bench::Gemm(args) => gemm::run(args),
        Bench::Decode(args) => decode::run(args),
        Bench::Program(args) => program::run(args),
        Bench::Dispatch(args) => dispatch::run(args),
    }
}
