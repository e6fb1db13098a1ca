//! Describes a file for readers who do not know the format.

use std::fmt::Write as _;

use super::report::{HwxReport, TaskOperand, TaskReport};
use crate::container::{BarUse, Direction, Hwx};
use crate::registers::{Generation, Register};
use crate::spelling::{plain, value};

/// How much detail the description has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Includes every register that a task sets, with its fields.
    pub registers: bool,
}

/// A shape as prose: `64 channels of 1×1`, width and height.
fn shape(shape: &[Option<u32>; 4]) -> String {
    let n = |v: Option<u32>| v.map_or_else(|| "?".to_string(), |v| v.to_string());
    let depth = shape[3].filter(|d| *d > 1).map_or(String::new(), |d| format!("×{d}"));
    let channels = if shape[2] == Some(1) { "channel" } else { "channels" };
    format!("{} {channels} of {}×{}{depth}", n(shape[2]), n(shape[0]), n(shape[1]))
}

fn strides(operand: &TaskOperand) -> String {
    let names = ["row", "plane", "depth", "group"];
    let said =
        names.iter().zip(operand.strides).filter_map(|(n, s)| Some(format!("{n} {:#x}", s.filter(|s| *s != 0)?)));
    let said: Vec<String> = said.collect();
    if said.is_empty() { String::new() } else { format!(", strides {}", said.join(", ")) }
}

/// What comes before the tasks: the generation, the compiler, and the programs with their ports.
pub(super) fn header(report: &HwxReport) -> String {
    let mut out = String::new();
    let generation = match (report.generation, report.chips) {
        (Some(name), "") => name.to_uppercase(),
        (Some(name), chips) => format!("{} ({chips})", name.to_uppercase()),
        (None, _) => format!("an unknown generation, subtype {}", report.subtype),
    };
    let _ = writeln!(out, "compiled program for {generation}");
    match report.evidence {
        Some(crate::registers::Evidence::Verified) | None => {}
        Some(e) => {
            let _ = writeln!(out, "  the descriptors of this generation are {}, not verified on samples", e.name());
        }
    }
    if let Some(compiler) = &report.compiler {
        let _ = writeln!(out, "  by {compiler}");
    }
    for program in &report.programs {
        let _ = writeln!(out, "\nprogram {}, {} task{}", plain(&program.name), program.tasks, plural(program.tasks));
        for port in &program.bindings.ports {
            let way = match port.direction {
                Some(Direction::Input) => "input ",
                Some(Direction::Output) => "output",
                None => "tensor",
            };
            let _ = write!(out, "  {way} {}", plain(&port.name));
            if let Some(t) = &port.tensor {
                let [n, c, h, w, d] = t.nchwd;
                let depth = if d > 1 { format!(", depth {d}") } else { String::new() };
                let _ = write!(out, ": {}[{n}, {c}, {h}, {w}]{depth}, {:#x} bytes", t.type_name(), t.bytes);
                let _ = write!(out, ", row {:#x}, plane {:#x}", t.row_stride, t.plane_stride);
                if t.interleave > 1 {
                    let _ = write!(out, ", interleave {}", t.interleave);
                }
            }
            match port.bars.as_slice() {
                [] => out.push_str(", bound to nothing\n"),
                bars => {
                    let bars: Vec<String> = bars.iter().map(u32::to_string).collect();
                    let _ = writeln!(out, ", bar {}", bars.join(" and "));
                }
            }
        }
        for bar in &program.bindings.bars {
            if let BarUse::Constants(name) | BarUse::Scratch(name) = &bar.holds {
                let what = if matches!(bar.holds, BarUse::Scratch(_)) { "scratch " } else { "constants" };
                let _ = writeln!(out, "  {what} {}, bar {}", plain(name), bar.index);
            }
        }
    }
    out
}

pub(super) fn file(hwx: &Hwx, report: &HwxReport, detail: Detail) -> String {
    let mut out = header(report);
    for text in &report.texts {
        let _ = writeln!(out, "\ntasks of {}", plain(&text.section));
        if let Some(error) = &text.error {
            let _ = writeln!(out, "  not decoded: {error}");
        }
        let said: usize = report.programs.iter().map(|p| p.tasks as usize).sum();
        if text.error.is_none() && report.texts.len() == 1 && said != text.tasks.len() {
            let _ = writeln!(out, "  the program announces {said} tasks, the section has {}", text.tasks.len());
        }
        for (i, task) in text.tasks.iter().enumerate() {
            one(&mut out, i, task);
            if let (true, Some(generation)) = (detail.registers, hwx.generation()) {
                registers(&mut out, generation, task);
            }
        }
    }
    if !report.unknown_commands.is_empty() {
        let list: Vec<String> = report.unknown_commands.iter().map(|c| format!("{c:#x}")).collect();
        let _ = writeln!(out, "\nunknown load commands, kept as bytes: {}", list.join(", "));
    }
    out
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// The description of a task, line by line.
pub(crate) fn lines(task: &TaskReport) -> Vec<String> {
    let mut out = Vec::new();
    let form = |i: usize| task.formats[i].as_deref().map(|f| format!(" {f}")).unwrap_or_default();
    for (i, source) in task.sources.iter().enumerate() {
        let what = if i == 0 { format!(": {}{}", shape(&task.shapes[0]), form(0)) } else { form(1) };
        out.push(format!("reads {}{what}{}", source.place, strides(source)));
    }
    if let Some(kernel) = &task.kernel {
        let place = kernel.place.as_ref().map_or("no buffer".to_string(), |p| p.to_string());
        let bytes: u64 = kernel.lanes.iter().map(|(_, _, n)| u64::from(*n)).sum();
        let n = kernel.lanes.len();
        out.push(format!("weights {place}: {n} lane{}, {bytes:#x} bytes, {}", plural(n as u32), kernel.format));
    }
    if let Some(table) = &task.table {
        out.push(format!("table {table}"));
    }
    out.extend(task.post.iter().map(|p| format!("then {p}")));
    if let Some(to) = &task.destination {
        out.push(format!("writes {}: {}{}{}", to.place, shape(&task.shapes[1]), form(2), strides(to)));
    }
    out
}

fn one(out: &mut String, index: usize, task: &TaskReport) {
    let _ = writeln!(out, "\n  task {index} at {:#x}, {} words, {} engine", task.offset, task.words, task.engine);
    let _ = writeln!(out, "    {}", task.summary);
    for line in lines(task) {
        let _ = writeln!(out, "    {line}");
    }
}

fn registers(out: &mut String, generation: &Generation, task: &TaskReport) {
    let find = |label: &str| -> Option<&Register> {
        let (block, name) = label.split_once('.')?;
        generation.named(block, name).map(|(r, _)| r)
    };
    // In the order of their addresses, grouped by block.
    for block in &generation.blocks {
        let prefix = format!("{}.", block.name);
        for (label, word) in task.registers.iter().filter(|(l, w)| l.starts_with(&prefix) && **w != 0) {
            let _ = write!(out, "      {label} = {word:#x}");
            if let Some(register) = find(label) {
                let fields = register.fields.iter().filter(|f| f.get(*word) != 0);
                let fields: Vec<String> = fields.map(|f| format!("{} {}", f.name, value(f, f.get(*word)))).collect();
                if !fields.is_empty() {
                    let _ = write!(out, " ({})", fields.join(", "));
                }
            }
            out.push('\n');
        }
    }
}
