//! Every sample of the test data: its description equals that of an independent decoder, and
//! writing reproduces the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ferrane_hwx::container::{Bindings, CommandKind, Direction, Hwx};
use ferrane_hwx::registers::{self, RecordFormat};
use ferrane_hwx::task::{self, Task};
use ferrane_testdata::Suite;
use serde_json::Value;

/// All files under a folder, sorted.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|e| e.path()) {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The compiled programs of a folder, recognized by their first bytes.
pub fn programs(suite: &Suite) -> Vec<(String, Vec<u8>)> {
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("test data can be read");
        let name = path.strip_prefix(suite.folder()).expect("under the folder").to_string_lossy().into_owned();
        let magic = [[0xce, 0xfa, 0xef, 0xbe], [0xcf, 0xfa, 0xed, 0xfe]];
        magic.iter().any(|m| bytes.starts_with(m)).then_some((name, bytes))
    };
    files(suite.folder()).into_iter().filter_map(read).collect()
}

/// The container of a sample, or a failed case if it cannot be read.
pub fn read(suite: &mut Suite, name: &str, bytes: &[u8]) -> Option<Hwx> {
    Hwx::read(bytes).map_err(|e| suite.case(name, Err(e.to_string()))).ok()
}

/// The expectations for payloads without a container, by name.
pub fn payloads(suite: &Suite) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(suite.folder().join("../EXPECTED_kernels.json")).expect("EXPECTED_kernels.json");
    serde_json::from_str(&text).expect("JSON")
}

/// Descriptors and constants of a payload; `None` if it is absent. An error if the chain of
/// descriptors is broken.
pub fn payload(suite: &Suite, name: &str, wanted: &Value) -> Option<(ferrane_hwx::Result<Vec<Task>>, Vec<u8>)> {
    let bytes = std::fs::read(suite.folder().join(name)).ok()?;
    let number = |key: &str| wanted[key].as_u64().expect("a number") as usize;
    // The constants begin at the next multiple of 16.
    let (text, constants) = bytes.split_at(number("tsk_size").next_multiple_of(16));
    let h13 = registers::by_name("h13").expect("a generation");
    Some((task::decode(h13, text, Some(number("td_size") / 4)), constants.to_vec()))
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number"),
        other => other.as_u64().expect("a number"),
    }
}

/// An error if two values differ.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:#x?} and not {wanted:#x?}")) }
}

fn header(hwx: &Hwx, bytes: &[u8], wanted: &Value) -> Result<(), String> {
    same("magic", hwx.magic.into(), number(&wanted["magic"]))?;
    same("cputype", hwx.cputype.into(), number(&wanted["cputype"]))?;
    same("subtype", hwx.subtype.into(), number(&wanted["subtype"]))?;
    same("commands", hwx.commands.len() as u64, number(&wanted["ncmds"]))?;
    same("their size", hwx.commands_size.into(), number(&wanted["sizeofcmds"]))?;
    same("size", bytes.len() as u64, number(&wanted["size"]))?;
    let offset = |i| hwx.command_offset(i) as u64;
    let found: Vec<[u64; 3]> =
        hwx.commands.iter().enumerate().map(|(i, c)| [c.cmd().into(), offset(i), c.bytes().len() as u64]).collect();
    let commands = wanted["lcs"].as_array().expect("commands").iter();
    same("commands", found, commands.map(|c| [number(&c[0]), number(&c[1]), number(&c[2])]).collect())
}

fn segments(hwx: &Hwx, wanted: &Value) -> Result<(), String> {
    let wanted = wanted["segments"].as_array().expect("segments");
    let found = hwx.segments();
    same("segments", found.len(), wanted.len())?;
    for (found, wanted) in found.iter().zip(wanted) {
        same("segment", found.name.as_str(), wanted["name"].as_str().expect("a name"))?;
        for (name, value) in [
            ("vm", found.vmaddr),
            ("vmsize", found.vmsize),
            ("fileoff", found.fileoff),
            ("filesize", found.filesize),
            ("prot", found.protection.into()),
            ("flags", found.flags.into()),
        ] {
            same(&format!("{} {name}", found.name), value, number(&wanted[name]))?;
        }
        let sections = wanted["sections"].as_array().expect("sections");
        same("sections", found.sections.len(), sections.len())?;
        for (found, wanted) in found.sections.iter().zip(sections) {
            same("section", found.name.as_str(), wanted["name"].as_str().expect("a name"))?;
            for (name, value) in [
                ("addr", found.addr),
                ("size", found.size),
                ("off", found.offset.into()),
                ("align", found.align.into()),
                ("reloff", found.relocation_offset.into()),
                ("nreloc", found.relocations.into()),
                ("flags", found.flags.into()),
            ] {
                same(&format!("{} {name}", found.name), value, number(&wanted[name]))?;
            }
        }
    }
    Ok(())
}

fn threads(hwx: &Hwx, wanted: &Value) -> Result<(), String> {
    let wanted = wanted["threads"].as_array().expect("threads");
    let of = |flavors: &[u64]| wanted.iter().filter(|t| flavors.contains(&number(&t["flavor"]))).collect::<Vec<_>>();
    let (programs, tensors) = (of(&[1, 4]), of(&[3]));
    same("programs", hwx.programs().len(), programs.len())?;
    for (found, wanted) in hwx.programs().iter().zip(programs) {
        same("flavor", found.flavor.into(), number(&wanted["flavor"]))?;
        same("text_addr", found.text_addr, number(&wanted["text_addr"]))?;
        same("td_count", found.tasks.into(), number(&wanted["td_count"]))?;
        // Slots of newer files are given as bytes.
        let (bars, unit) = if found.flavor == 1 { (&wanted["bar"], 1) } else { (&wanted["bar_slots"], 4) };
        let bars: BTreeMap<u64, u64> = bars
            .as_object()
            .expect("bars")
            .iter()
            .map(|(k, v)| {
                (
                    k.strip_prefix("0x").map_or_else(|| k.parse().unwrap(), |k| u64::from_str_radix(k, 16).unwrap()),
                    number(v),
                )
            })
            .collect();
        same("bars", found.bars.iter().map(|(i, a)| (u64::from(*i) * unit, *a)).collect(), bars)?;
        let words = (found.first_task_words.map(|n| n - 1), "first_td_words_minus1");
        let words = if found.flavor == 1 { words } else { (found.text_words, "text_words") };
        same(words.1, words.0.map(u64::from), Some(number(&wanted[words.1])))?;
    }
    same("tensors", hwx.tensors().len(), tensors.len())?;
    for (found, wanted) in hwx.tensors().iter().zip(tensors) {
        let direction = if wanted["dir"] == "in" { Direction::Input } else { Direction::Output };
        same("dir", found.direction, Some(direction))?;
        let nchwd: Vec<u64> = wanted["NCHWD"].as_array().expect("extents").iter().map(number).collect();
        same("NCHWD", found.nchwd.map(u64::from).to_vec(), nchwd)?;
        for (name, value) in [
            ("elem_type", found.element_type.into()),
            ("batch_stride", found.batch_stride),
            ("plane_stride", found.plane_stride),
            ("row_stride", found.row_stride),
            ("elem_size", found.element_size),
            ("total_bytes", found.bytes),
        ] {
            same(name, value, number(&wanted[name]))?;
        }
        for (name, value) in [("procedure", &found.procedure), ("symbol", &found.symbol), ("bare_name", &found.name)] {
            same(name, value.as_str(), wanted[name].as_str().expect("a name"))?;
        }
    }
    Ok(())
}

fn tasks(hwx: &Hwx, wanted: &Value) -> Result<(), String> {
    let generation = hwx.generation().ok_or("no generation")?;
    let mut all = Vec::new();
    for (section, first) in hwx.task_sections() {
        let tasks = hwx.tasks(&section, first).map_err(|e| e.to_string())?;
        let text = hwx.content(&section);
        for task in &tasks {
            let bytes: Vec<u8> = task.encode(generation.record_format).iter().flat_map(|w| w.to_le_bytes()).collect();
            same("length", bytes.len(), 4 * task.len())?;
            same("a task's bytes", text.get(task.offset..task.offset + bytes.len()), Some(&bytes[..]))?;
        }
        all.extend(tasks);
    }
    let count = hwx.programs().iter().map(|p| p.tasks as usize).sum::<usize>();
    same("tasks", all.len(), count)?;
    // Eight tasks of each file were decoded.
    let wanted = wanted["tds"].as_array().expect("tasks");
    same("tasks that were decoded", all.len().min(8), wanted.len())?;
    for (found, wanted) in all.iter().zip(wanted) {
        same("offset", found.offset as u64, number(&wanted["off"]))?;
        same("words", found.len() as u64, number(&wanted["words"]))?;
        let header: Vec<u64> = wanted["header"].as_array().expect("a header").iter().map(number).collect();
        same("header", found.header.iter().map(|w| u64::from(*w)).collect(), header)?;
        let registers = wanted["regs"].as_object().expect("registers").iter();
        let registers: BTreeMap<u32, u32> = registers
            .map(|(k, v)| (u32::from_str_radix(k.trim_start_matches("0x"), 16).unwrap(), number(v) as u32))
            .collect();
        let mut set = found.registers();
        // Records at byte addresses cover whole blocks; the expectation omits zeros.
        if generation.record_format == RecordFormat::ByteAddressed {
            set.retain(|_, value| *value != 0);
        }
        same(&format!("registers at {:#x}", found.offset), set, registers)?;
    }
    Ok(())
}

#[test]
fn samples_say_what_was_decoded() {
    let Some(mut suite) = Suite::open("hwx", "hwx") else { return };
    let text = std::fs::read_to_string(suite.folder().join("EXPECTED_hwx.json")).expect("EXPECTED_hwx.json");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    let programs = programs(&suite);
    assert!(!programs.is_empty());
    for (name, bytes) in programs {
        let Some(hwx) = read(&mut suite, &name, &bytes) else { continue };
        let back = if hwx.write() == bytes { Ok(()) } else { Err("written back it differs".to_string()) };
        suite.case(&format!("{name}: read and write"), back);
        let Some(wanted) = expected.get(&name) else {
            suite.skip(&name, "nothing is expected of it");
            continue;
        };
        suite.case(&format!("{name}: header"), header(&hwx, &bytes, wanted));
        suite.case(&format!("{name}: segments"), segments(&hwx, wanted));
        suite.case(&format!("{name}: threads"), threads(&hwx, wanted));
        suite.case(&format!("{name}: tasks"), tasks(&hwx, wanted));
    }
    suite.finish();
}

/// Every tensor is found by name, at an index that tasks use.
#[test]
fn names_lead_to_the_indices_that_tasks_use() {
    let Some(mut suite) = Suite::open("hwx-bindings", "hwx") else { return };
    for (name, bytes) in programs(&suite) {
        suite.case(&name, Hwx::read(&bytes).map_err(|e| e.to_string()).and_then(|hwx| bindings(&hwx)));
    }
    suite.finish();
}

fn bindings(hwx: &Hwx) -> Result<(), String> {
    let generation = hwx.generation().ok_or("no generation")?;
    for program in hwx.programs() {
        let bindings = Bindings::of(hwx, &program);
        let mut used = std::collections::BTreeSet::new();
        for (section, first) in hwx.task_sections() {
            for task in hwx.tasks(&section, first).map_err(|e| e.to_string())? {
                for record in &task.records {
                    if let task::RegisterRecord::Address { slot, .. } = record {
                        used.insert(u32::from(*slot));
                    }
                }
                for (base, enable) in [("RBase0", "RBE0"), ("RBase1", "RBE1"), ("WBase", "WBE")] {
                    let head = |field| task.head(generation, "TileBars", field);
                    if head(enable) == Some(1) {
                        used.extend(head(base));
                    }
                }
            }
        }
        for port in &bindings.ports {
            let tensor = port.tensor.as_ref().ok_or_else(|| format!("{} has no tensor", port.name))?;
            same("the bound name", port.name == tensor.symbol || port.name == tensor.name, true)?;
            let found = port.bars.iter().any(|b| used.contains(b));
            same(&format!("{} at {:?} in {used:?}", port.name, port.bars), found, true)?;
            let flags = if port.direction == Some(Direction::Input) { 0x21 } else { 0x23 };
            let section = hwx.sections().into_iter().find(|s| Some(s.addr) == port.address);
            same("its section", section.map(|s| s.flags), Some(flags))?;
        }
        same("tensors", bindings.ports.len(), hwx.of_kind(CommandKind::Tensor).count())?;
    }
    Ok(())
}

/// Descriptors without a container, as drivers load them.
#[test]
fn payloads_have_the_tasks_that_were_counted() {
    let Some(mut suite) = Suite::open("hwx-payloads", "hwx/eiln") else { return };
    let expected = payloads(&suite);
    let h13 = registers::by_name("h13").unwrap();
    for path in files(suite.folder()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(wanted) = expected.get(&name) else {
            suite.skip(&name, "nothing is expected of it");
            continue;
        };
        let bytes = std::fs::read(&path).expect("test data can be read");
        let check = || {
            same("size", bytes.len() as u64, number(&wanted["size"]))?;
            let text = &bytes[..number(&wanted["tsk_size"]) as usize];
            let tasks =
                task::decode(h13, text, Some(number(&wanted["td_size"]) as usize / 4)).map_err(|e| e.to_string())?;
            same("tasks", tasks.len() as u64, number(&wanted["td_count"]))?;
            let head = |t: &task::Task, field| t.head(h13, "Identity", field);
            same("the last task", tasks.last().and_then(|t| head(t, "EON")), Some(1))?;
            for (i, task) in tasks.iter().enumerate() {
                same("TID", head(task, "TID"), Some(i as u32))?;
                let bytes: Vec<u8> =
                    task.encode(RecordFormat::ByteAddressed).iter().flat_map(|w| w.to_le_bytes()).collect();
                same("a task's bytes", &text[task.offset..task.offset + bytes.len()], &bytes[..])?;
            }
            Ok(())
        };
        suite.case(&name, check());
    }
    suite.finish();
}
