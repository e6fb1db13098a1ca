//! What this computer says of itself, for reports: nothing about whose it is.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};

/// The machine as JSON: the engine's own words where it has one that is asked for, else those of the processor.
pub fn describe(engine: bool) -> Value {
    let mut found = Map::new();
    let mut tell = |name: &str, value: Value| {
        if !value.is_null() {
            found.insert(name.to_string(), value);
        }
    };
    match ferrane::engine::facts() {
        Ok(facts) if engine => {
            tell("chip", json!(facts.chip));
            tell("os", json!(facts.os));
            tell("build", json!(facts.build));
            tell("generation", json!(facts.sub_type));
            tell("variant", json!(facts.architecture));
            tell("engines", json!(facts.engines));
            tell("cores", json!(facts.cores));
            tell("bound", json!(facts.bound));
            tell("problems", json!(facts.problems));
        }
        _ => {
            tell("os", json!(std::env::consts::OS));
            tell("processor", json!(processor()));
        }
    }
    tell("arch", json!(std::env::consts::ARCH));
    tell("threads", json!(std::thread::available_parallelism().ok().map(usize::from)));
    tell("power", json!(power()));
    Value::Object(found)
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Where the current comes from, as far as the system says so: `AC Power`, `Battery Power`.
fn power() -> Option<String> {
    if cfg!(target_os = "macos") {
        let told = Command::new("/usr/bin/pmset").args(["-g", "batt"]).output().ok()?;
        return drawn(&String::from_utf8_lossy(&told.stdout));
    }
    // Any supply that is plugged in.
    let supplies = fs::read_dir("/sys/class/power_supply").ok()?.flatten();
    let states: Vec<String> = supplies.filter_map(|s| fs::read_to_string(s.path().join("online")).ok()).collect();
    let online = states.iter().any(|s| s.trim() == "1");
    (!states.is_empty()).then(|| if online { "AC Power".into() } else { "Battery Power".into() })
}

/// `Now drawing from 'AC Power'`.
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
