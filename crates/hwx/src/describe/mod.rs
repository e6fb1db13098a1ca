//! The disassembler: what a program does, in words, as data, as a picture, and as text that
//! assembles back.

mod diagram;
mod diff;
pub(crate) mod prose;
pub(crate) mod report;

pub use diff::FileDifference;
pub use prose::Detail;
pub use report::{FilterReport, HwxReport, NamedLocation, ProgramReport, TaskOperand, TaskReport, TextReport};

use crate::container::Hwx;

/// What a file does, for people.
pub fn prose(hwx: &Hwx, detail: Detail) -> String {
    prose::file(hwx, &HwxReport::of(hwx), detail)
}

/// What a file says, as JSON.
pub fn json(hwx: &Hwx) -> serde_json::Value {
    // Plain data: strings, numbers, lists and maps of strings.
    serde_json::to_value(HwxReport::of(hwx)).unwrap_or_default()
}

/// Tasks and buffers for Graphviz.
pub fn dot(hwx: &Hwx) -> String {
    diagram::dot(&HwxReport::of(hwx))
}

/// Tasks and buffers as a picture.
pub fn svg(hwx: &Hwx) -> String {
    diagram::svg(&HwxReport::of(hwx))
}

/// Where two files differ; empty where they say the same.
pub fn diff(left: &Hwx, right: &Hwx) -> Vec<FileDifference> {
    diff::files(left, right)
}
