//! The disassembler: describes a program in prose, as JSON, as a picture, and compares two
//! programs.

mod diagram;
mod diff;
pub(crate) mod prose;
pub(crate) mod report;

pub use diff::FileDifference;
pub use prose::Detail;
pub use report::{FilterReport, HwxReport, NamedLocation, ProgramReport, TaskOperand, TaskReport, TextReport};

use crate::container::Hwx;

/// Describes a file in prose.
pub fn prose(hwx: &Hwx, detail: Detail) -> String {
    prose::file(hwx, &HwxReport::of(hwx), detail)
}

/// The beginning of [`prose`]: the generation, the compiler, and the programs with their ports.
pub fn header(hwx: &Hwx) -> String {
    prose::header(&HwxReport::of(hwx))
}

/// The report about a file as JSON.
pub fn json(hwx: &Hwx) -> serde_json::Value {
    // The report is plain data (strings, numbers, lists, maps of strings), so this cannot fail.
    serde_json::to_value(HwxReport::of(hwx)).unwrap_or_default()
}

/// Tasks and buffers as a Graphviz graph.
pub fn dot(hwx: &Hwx) -> String {
    diagram::dot(&HwxReport::of(hwx))
}

/// Tasks and buffers as an SVG picture.
pub fn svg(hwx: &Hwx) -> String {
    diagram::svg(&HwxReport::of(hwx))
}

/// The differences between two files; empty if they mean the same.
pub fn diff(left: &Hwx, right: &Hwx) -> Vec<FileDifference> {
    diff::files(left, right)
}
