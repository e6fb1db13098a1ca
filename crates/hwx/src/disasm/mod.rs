//! The disassembler: what a program does, in words, as data, as a picture, and as text that assembles back.

mod diagram;
mod diff;
mod report;
pub(crate) mod text;
mod words;

pub use diff::Difference;
pub use report::{KernelReport, Operand, Place, ProgramReport, Report, TaskReport, TextReport};
pub use words::Detail;

use crate::container::Hwx;

/// What a file does, for people.
pub fn words(hwx: &Hwx, detail: Detail) -> String {
    words::file(hwx, &Report::of(hwx), detail)
}

/// The text of a file, from which [`assemble`](crate::asm::assemble) makes the same bytes. Its grammar stands in [`crate::asm`].
pub fn text(hwx: &Hwx) -> String {
    text::file(hwx)
}

/// What a file says, as JSON.
pub fn json(hwx: &Hwx) -> serde_json::Value {
    // Plain data: strings, numbers, lists and maps of strings.
    serde_json::to_value(Report::of(hwx)).unwrap_or_default()
}

/// Tasks and buffers for Graphviz.
pub fn dot(hwx: &Hwx) -> String {
    diagram::dot(&Report::of(hwx))
}

/// Tasks and buffers as a picture.
pub fn svg(hwx: &Hwx) -> String {
    diagram::svg(&Report::of(hwx))
}

/// Where two files differ; empty where they say the same.
pub fn diff(left: &Hwx, right: &Hwx) -> Vec<Difference> {
    diff::files(left, right)
}
