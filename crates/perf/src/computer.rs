//! The computer that a number comes from.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The computer that a report's numbers come from: system, processor, cores, threads, caches.
///
/// Serializes as an object (`os`, `processor`, `arch`, `threads`, `power`, `cores`, `caches`),
/// without what the system does not report, and prints as one line.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Computer {
    facts: Map<String, Value>,
}

impl Computer {
    /// Looks at this computer. `threads` are those that Ferrane computes with.
    pub fn detect() -> Computer {
        let mut facts = match ferrane_probe::describe_computer(false) {
            Value::Object(facts) => facts,
            _ => Map::new(),
        };
        facts.insert("threads".into(), json!(ferrane_host::pool::threads()));
        if let Some(cores) = cores(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
            facts.insert("cores".into(), json!(cores));
        }
        let caches = caches(Path::new("/sys/devices/system/cpu/cpu0/cache"));
        if !caches.is_empty() {
            facts.insert("caches".into(), Value::Object(caches));
        }
        Computer { facts }
    }
}

impl fmt::Display for Computer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name: &str| self.facts.get(name).and_then(Value::as_str);
        let number = |name: &str| self.facts.get(name).and_then(Value::as_u64);
        f.write_str(text("processor").or(text("arch")).unwrap_or("unknown processor"))?;
        for name in ["cores", "threads"] {
            if let Some(n) = number(name) {
                write!(f, ", {n} {name}")?;
            }
        }
        let caches = self.facts.get("caches").and_then(Value::as_object).into_iter().flatten();
        caches.into_iter().try_for_each(|(name, kib)| write!(f, ", {name} {kib} KiB"))
    }
}

/// The cores of all sockets, from the text of `/proc/cpuinfo`, where each thread names its socket
/// and its core.
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

/// The sizes in KiB of the caches that hold a core's data, by level: `L1d`, `L2`, `L3`.
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
    fn caches_of_data_are_listed_and_others_are_not() {
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
