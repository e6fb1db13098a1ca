//! Differences between two files by meaning: header, load commands, tensors, buffers, registers of
//! tasks, contents.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::HwxReport;
use crate::container::{Content, FileRange, Hwx};
use crate::registers::Register;
use crate::spelling::plain;
use crate::task::Task;

/// One difference between two files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDifference {
    /// What differs, as a path: `task 0, Common.ConvCfg.Kw`.
    pub place: String,
    /// The value in the first file; `None` if it has none.
    pub left: Option<String>,
    /// The value in the second file; `None` if it has none.
    pub right: Option<String>,
}

impl std::fmt::Display for FileDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let say = |side: &Option<String>| side.clone().unwrap_or_else(|| "nothing".to_string());
        write!(f, "{}: {} → {}", self.place, say(&self.left), say(&self.right))
    }
}

type Facts = BTreeMap<String, String>;

/// Compares two lists of facts, sorted by name.
fn compare(out: &mut Vec<FileDifference>, left: &Facts, right: &Facts) {
    let names: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for name in names {
        let (left, right) = (left.get(name).cloned(), right.get(name).cloned());
        if left != right {
            out.push(FileDifference { place: name.clone(), left, right });
        }
    }
}

pub(super) fn files(left: &Hwx, right: &Hwx) -> Vec<FileDifference> {
    let mut out = Vec::new();
    compare(&mut out, &header(left), &header(right));
    compare(&mut out, &layout(left), &layout(right));
    compare(&mut out, &buffers(left), &buffers(right));
    for i in 0..left.task_sections().len().max(right.task_sections().len()) {
        let (a, b) = (tasks(left, i), tasks(right, i));
        for n in 0..a.len().max(b.len()) {
            let none = Facts::new();
            compare(&mut out, a.get(n).unwrap_or(&none), b.get(n).unwrap_or(&none));
        }
    }
    compare(&mut out, &contents(left, right), &contents(right, left));
    out
}

fn header(hwx: &Hwx) -> Facts {
    let generation = hwx.generation().map_or_else(|| hwx.subtype.to_string(), |g| g.name.to_string());
    [
        ("magic", format!("{:#x}", hwx.magic)),
        ("subtype", generation),
        ("filetype", hwx.filetype.to_string()),
        ("flags", format!("{:#x}", hwx.flags)),
        ("size of the file", format!("{:#x}", hwx.size())),
        ("compiler", HwxReport::of(hwx).compiler.unwrap_or_else(|| "not said".to_string())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_string(), value))
    .collect()
}

fn layout(hwx: &Hwx) -> Facts {
    let mut facts = Facts::new();
    for (i, segment) in hwx.segments().iter().enumerate() {
        let name = format!("segment {i} {}", plain(&segment.name));
        facts.insert(format!("{name}, address"), format!("{:#x}", segment.vmaddr));
        facts.insert(format!("{name}, memory"), format!("{:#x}", segment.vmsize));
        for section in &segment.sections {
            let name = format!("{name}, section {}", plain(&section.name));
            let values = [
                ("address", section.addr),
                ("size", section.size),
                ("offset", section.offset.into()),
                ("flags", section.flags.into()),
                ("relocations", section.relocations.into()),
            ];
            facts.extend(values.map(|(what, value)| (format!("{name}, {what}"), format!("{value:#x}"))));
        }
    }
    facts
}

fn buffers(hwx: &Hwx) -> Facts {
    let mut facts = Facts::new();
    for program in HwxReport::of(hwx).programs {
        let name = format!("program {}", plain(&program.name));
        facts.insert(format!("{name}, tasks"), program.tasks.to_string());
        for bar in &program.bindings.bars {
            facts.insert(format!("{name}, bar {:3}", bar.index), plain(&program.bindings.label(bar.index)));
        }
        for port in program.bindings.ports {
            if let Some(t) = port.tensor {
                let text = format!(
                    "{}{:?}, strides {:#x} {:#x} {:#x}, {:#x} bytes, interleave {}",
                    t.type_name(),
                    t.nchwd,
                    t.batch_stride,
                    t.plane_stride,
                    t.row_stride,
                    t.bytes,
                    t.interleave
                );
                facts.insert(format!("{name}, tensor {}", plain(&port.name)), text);
            }
        }
    }
    facts
}

/// The register fields of each task of a section, as facts.
fn tasks(hwx: &Hwx, text: usize) -> Vec<Facts> {
    let found = hwx.task_sections().into_iter().nth(text).and_then(|(section, first)| hwx.tasks(&section, first).ok());
    found.unwrap_or_default().iter().enumerate().map(|(i, task)| fields(hwx, i, task)).collect()
}

fn fields(hwx: &Hwx, index: usize, task: &Task) -> Facts {
    let mut facts = Facts::new();
    let Some(generation) = hwx.generation() else { return facts };
    let mut say = |place: String, register: Option<&Register>, word: u32| match register {
        Some(r) if !r.fields.is_empty() => {
            for field in &r.fields {
                facts.insert(format!("{place}.{}", field.name), crate::spelling::value(field, field.get(word)));
            }
            facts.insert(format!("{place}, other bits"), format!("{:#x}", word & !r.known()));
        }
        _ => drop(facts.insert(place, format!("{word:#x}"))),
    };
    for (i, word) in task.header.iter().enumerate() {
        let register = generation.header.iter().find(|r| r.address as usize == i);
        let name = register.map_or_else(|| format!("word {i}"), |r| r.name.to_string());
        say(format!("task {index}, header {name}"), register, *word);
    }
    for (address, word) in task.registers() {
        say(format!("task {index}, {}", generation.label(address)), generation.register(address).map(|(r, _)| r), word);
    }
    facts
}

/// For each other range, how many bytes differ from the other file.
fn contents(hwx: &Hwx, other: &Hwx) -> Facts {
    let named = |hwx: &Hwx| -> BTreeMap<String, Vec<u8>> {
        let sections = hwx.sections();
        let name = |r: &FileRange| match r.content {
            // Task descriptors are compared by their fields above.
            Content::Section(c, s) => {
                let found = sections.iter().find(|x| (x.command, x.index) == (c, s))?;
                (!found.is_text()).then(|| format!("contents of {},{}", found.segment, found.name))
            }
            Content::Relocations(c, s) => {
                let found = sections.iter().find(|x| (x.command, x.index) == (c, s))?;
                Some(format!("relocations of {},{}", found.segment, found.name))
            }
            other => Some(hwx.describe(other)),
        };
        let bytes = |r: FileRange| Some((name(&r)?, hwx.bytes(r.range).unwrap_or(&[]).to_vec()));
        hwx.regions().into_iter().filter_map(bytes).collect()
    };
    let theirs = named(other);
    named(hwx)
        .into_iter()
        .map(|(name, bytes)| {
            let text = match theirs.get(&name) {
                None => format!("{:#x} bytes", bytes.len()),
                Some(b) if *b == bytes => "the same".to_string(),
                Some(b) => {
                    let differ =
                        bytes.iter().zip(b).filter(|(x, y)| x != y).count() + bytes.len().saturating_sub(b.len());
                    let first = bytes.iter().zip(b).position(|(x, y)| x != y).unwrap_or(bytes.len().min(b.len()));
                    let shown: String = bytes.iter().skip(first).take(8).map(|b| format!("{b:02x}")).collect();
                    format!("{:#x} bytes, {differ} of them different, from {first:#x} on: {shown}", bytes.len())
                }
            };
            (plain(&name), text)
        })
        .collect()
}
