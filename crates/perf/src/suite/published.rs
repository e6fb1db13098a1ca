//! Published values of the suite's kernels, each with its chip and its source.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A value that someone published, with its chip and source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedValue {
    /// The chip that it was measured on.
    pub chip: String,
    /// What was measured: `ms`, `tflops`, `compile_ms`, ….
    pub metric: String,
    /// The value, in the unit that the metric names.
    pub value: f64,
    /// Where it is published: a repository with a path, or a pull request.
    pub source: String,
}

/// A record of the file.
#[derive(Deserialize)]
struct PublishedRow {
    kernel: String,
    config: Map<String, Value>,
    #[serde(flatten)]
    value: PublishedValue,
}

static ROWS: LazyLock<Vec<PublishedRow>> = LazyLock::new(|| {
    // A unit test reads the embedded file.
    serde_json::from_str(include_str!("../../data/published.json")).unwrap_or_default()
});

/// The published values of a kernel in this configuration from the machine nearest to `chip`: the
/// chip itself, else chips of its generation, else of the nearest generation. Fields of `config`
/// that no record has are ignored.
pub fn published(kernel: &str, config: &Map<String, Value>, chip: &str) -> Vec<PublishedValue> {
    let fits = |row: &&PublishedRow| {
        row.kernel == kernel && row.config.iter().all(|(name, value)| config.get(name) == Some(value))
    };
    let found: Vec<&PublishedRow> = ROWS.iter().filter(fits).collect();
    let Some(nearest) = found.iter().map(|row| distance(&row.value.chip, chip)).min() else { return Vec::new() };
    let near = found.into_iter().filter(|row| distance(&row.value.chip, chip) == nearest);
    near.map(|row| row.value.clone()).collect()
}

/// 0 for the chip itself, 1 for others of its generation, then by generations.
fn distance(a: &str, b: &str) -> u32 {
    let generation = |chip: &str| chip.trim_start_matches('m').split('-').next().and_then(|n| n.parse::<u32>().ok());
    match (generation(a), generation(b)) {
        _ if a == b => 0,
        (Some(a), Some(b)) => 1 + a.abs_diff(b),
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn the_file_is_read_and_the_nearest_machine_is_chosen() {
        assert!(ROWS.len() > 200, "{}", ROWS.len());
        let peak = config(json!({"channels": 512, "positions": 64, "depth": 128, "ports": "fp32"}));
        let chips = |chip| published("conv", &peak, chip).into_iter().map(|p| p.chip).collect::<Vec<_>>();
        assert!(chips("m4-max").iter().all(|c| c == "m4-max") && !chips("m4-max").is_empty());
        // No M2 is published; the M1 and the M3 are equally near.
        assert!(chips("m2").iter().all(|c| c.starts_with("m1") || c.starts_with("m3")), "{:?}", chips("m2"));
        assert_eq!(published("conv", &config(json!({"channels": 3})), "m4"), []);
    }
}
