//! The machine that a number is from.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// What a report says of the machine: system, processor, cores, threads that are used, caches.
pub fn describe() -> Value {
    let Value::Object(mut found) = ferrane::probe::describe_computer(false) else { return Value::Null };
    found.insert("threads".into(), json!(ferrane_host::pool::threads()));
    if let Some(cores) = cores(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        found.insert("cores".into(), json!(cores));
    }
    let caches = caches(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    if !caches.is_empty() {
        found.insert("caches".into(), Value::Object(caches));
    }
    Value::Object(found)
}

/// The same on one line.
pub fn line() -> String {
    let found = describe();
    let text = |name: &str| found[name].as_str().map(str::to_string);
    let mut parts = vec![text("processor").or(text("arch")).unwrap_or_else(|| "unknown processor".into())];
    parts.extend(found["cores"].as_u64().map(|n| format!("{n} cores")));
    parts.extend(found["threads"].as_u64().map(|n| format!("{n} threads")));
    let caches = found["caches"].as_object().into_iter().flatten();
    parts.extend(caches.map(|(name, kib)| format!("{name} {kib} KiB")));
    parts.join(", ")
}

/// Cores of all sockets, out of `/proc/cpuinfo`, where each thread names its socket and core.
fn cores(info: &str) -> Option<usize> {
    let field = |line: &str, name: &str| -> Option<u32> {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().parse().ok())?
    };
    let of = |block: &str, name: &str| block.lines().find_map(|line| field(line, name));
    let ids: BTreeSet<(u32, u32)> =
        info.split("\n\n").filter_map(|b| Some((of(b, "physical id")?, of(b, "core id")?))).collect();
    (!ids.is_empty()).then_some(ids.len())
}

/// Sizes in KiB of the caches that a core's data pass, by level: `L1d`, `L2`, `L3`.
fn caches(folder: &Path) -> Map<String, Value> {
    let mut found = Map::new();
    for index in 0..8 {
        let read = |name: &str| fs::read_to_string(folder.join(format!("index{index}")).join(name)).ok();
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else { continue };
        let size = size.trim();
        let kib: Option<u64> = match size.strip_suffix('M') {
            Some(mib) => mib.parse().ok().and_then(|n: u64| n.checked_mul(1024)),
            None => size.trim_end_matches('K').parse().ok(),
        };
        let suffix = match kind.trim() {
            "Data" => "d",
            "Unified" => "",
            _ => continue,
        };
        if let Some(kib) = kib {
            found.insert(format!("L{}{suffix}", level.trim()), json!(kib));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_once() {
        let thread = |socket: u32, core: u32| format!("processor\t: 0\nphysical id\t: {socket}\ncore id\t\t: {core}\n");
        let info = [thread(0, 0), thread(0, 1), thread(0, 0), thread(1, 0)].join("\n");
        assert_eq!(cores(&info), Some(3));
        assert_eq!(cores("processor : 0\nmodel name : x\n"), None);
        assert_eq!(cores(""), None);
    }

    #[test]
    fn caches_of_data_are_told_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        for (i, (level, kind, size)) in [
            ("1", "Data", "48K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "1024K"),
            ("3", "Unified", "32M"),
            ("4", "Unified", "?"),
        ]
        .iter()
        .enumerate()
        {
            let index = folder.path().join(format!("index{i}"));
            fs::create_dir(&index).unwrap();
            for (name, value) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(index.join(name), format!("{value}\n")).unwrap();
            }
        }
        let found = Value::Object(caches(folder.path()));
        assert_eq!(found, json!({"L1d": 48, "L2": 1024, "L3": 32768}));
        assert!(caches(Path::new("/nonexistent")).is_empty());
    }
}
