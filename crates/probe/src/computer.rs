//! The computer that a report comes from. Nothing in the description identifies its owner.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};

/// Describes this computer as JSON. With `engine`, and where there is one, the engine's own facts
/// come first; otherwise the system and the processor. Facts that are not known are left out.
pub fn describe_computer(engine: bool) -> Value {
    let mut found = Map::new();
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            found.insert(name.to_string(), value);
        }
    };
    match ferrane_ane::facts() {
        Ok(facts) if engine => {
            add("chip", json!(facts.chip));
            add("os", json!(facts.os));
            add("build", json!(facts.build));
            add("generation", json!(facts.sub_type));
            add("variant", json!(facts.architecture));
            add("engines", json!(facts.engines));
            add("cores", json!(facts.cores));
            add("bound", json!(facts.bound));
            add("problems", json!(facts.problems));
        }
        _ => {
            add("os", json!(std::env::consts::OS));
            add("processor", json!(processor()));
        }
    }
    add("arch", json!(std::env::consts::ARCH));
    add("threads", json!(std::thread::available_parallelism().ok().map(usize::from)));
    add("power", json!(power()));
    Value::Object(found)
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// The source of power, `AC Power` or `Battery Power`, if the system reports it.
fn power() -> Option<String> {
    if cfg!(target_os = "macos") {
        let reported = Command::new("/usr/bin/pmset").args(["-g", "batt"]).output().ok()?;
        return drawn(&String::from_utf8_lossy(&reported.stdout));
    }
    // One supply that is plugged in is enough.
    let supplies = fs::read_dir("/sys/class/power_supply").ok()?.flatten();
    let states: Vec<String> = supplies.filter_map(|s| fs::read_to_string(s.path().join("online")).ok()).collect();
    let online = states.iter().any(|s| s.trim() == "1");
    (!states.is_empty()).then(|| if online { "AC Power".into() } else { "Battery Power".into() })
}

/// Reads `Now drawing from 'AC Power'`.
fn drawn(text: &str) -> Option<String> {
    let source = text.lines().next()?.split_once("drawing from '")?.1.split('\'').next()?;
    Some(source.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_power_is_read() {
        assert_eq!(drawn("Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t80%").as_deref(), Some("AC Power"));
        assert_eq!(drawn("Now drawing from 'Battery Power'").as_deref(), Some("Battery Power"));
        assert_eq!(drawn(""), None);
    }
}
