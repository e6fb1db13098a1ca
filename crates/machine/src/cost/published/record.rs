//! Parses records of published numbers.

use serde_json::{Map, Value};

use super::super::Constants;
use super::PublishedError;

/// A record of a published number.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRecord<'a> {
    /// The publication of the number.
    pub source: &'a str,
    /// The machine, in the words of the source.
    pub chip: &'a str,
    /// The name of the benchmark.
    pub what: &'a str,
    /// The configuration, if the record has one.
    pub config: Option<&'a Map<String, Value>>,
    /// The name of the metric.
    pub metric: &'a str,
    /// The number; `None` if the record's value is not a number.
    pub value: Option<f64>,
    /// The unit of the number.
    pub unit: &'a str,
}

impl<'a> PublishedRecord<'a> {
    /// Parses a record; missing fields are empty.
    pub fn new(value: &'a Value) -> PublishedRecord<'a> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("");
        PublishedRecord {
            source: text("source"),
            chip: text("chip"),
            what: text("what"),
            config: value.get("config").and_then(Value::as_object),
            metric: text("metric"),
            value: value.get("value").and_then(Value::as_f64),
            unit: text("unit"),
        }
    }

    /// A field of the configuration, if it exists.
    pub fn config(&self, key: &str) -> Option<&'a Value> {
        self.config?.get(key)
    }

    /// A text field of the configuration, if it exists.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.config(key)?.as_str()
    }

    /// A count in the configuration, if it exists.
    pub fn count(&self, key: &str) -> Option<u64> {
        self.config(key)?.as_u64().filter(|n| *n > 0)
    }

    /// A key for the measurement: everything except the metric, its value, and parts of the
    /// configuration that repeat it.
    pub fn measurement(&self) -> String {
        let mut fields: Vec<_> = self
            .config
            .into_iter()
            .flatten()
            .filter(|(k, _)| !matches!(k.as_str(), "weight_mb" | "gflop"))
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        fields.sort();
        format!("{}\n{}\n{}\n{}", self.source, self.chip, self.what, fields.join("\n"))
    }
}

/// The records of a file.
///
/// # Errors
/// The text is not JSON, or not an array.
pub fn records(json: &str) -> Result<Vec<Value>, PublishedError> {
    match serde_json::from_str(json)? {
        Value::Array(records) => Ok(records),
        Value::Object(_) => Err(PublishedError::Form("an object")),
        _ => Err(PublishedError::Form("a plain value")),
    }
}

/// The chip that a source means: `M4 (mini, 10-core, 16 GB)` is `m4`, `M4 Max` is `m4-max`. `None`
/// if it names several, none, or one without constants.
pub fn chip_name(text: &str) -> Option<String> {
    let own = text.split('(').next().unwrap_or("").trim().to_lowercase();
    let own = own.strip_prefix("apple ").unwrap_or(&own);
    let name = own.split_whitespace().collect::<Vec<_>>().join("-");
    Constants::chips().iter().find(|chip| **chip == name).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_told_from_their_descriptions() {
        for (text, chip) in [
            ("M4 (mini, 10-core, 16 GB)", Some("m4")),
            ("M4 Max", Some("m4-max")),
            ("Apple M3 Ultra", Some("m3-ultra")),
            ("M4/M4 Pro/M4 Max", None),
            ("M-series (unspecified)", None),
            ("all", None),
        ] {
            assert_eq!(chip_name(text).as_deref(), chip, "{text}");
        }
    }

    #[test]
    fn metrics_of_one_measurement_share_its_name() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let ms = read(
            r#"{"source":"s","chip":"M4","what":"w","config":{"channels":512,"gflop":1.0},"metric":"ms","value":1,"unit":"ms"}"#,
        );
        let rate = read(
            r#"{"source":"s","chip":"M4","what":"w","config":{"channels":512},"metric":"tflops","value":1,"unit":"TFLOPS"}"#,
        );
        let other = read(
            r#"{"source":"s","chip":"M4","what":"w","config":{"channels":256},"metric":"ms","value":1,"unit":"ms"}"#,
        );
        let name = |v| PublishedRecord::new(v).measurement();
        assert_eq!(name(&ms), name(&rate));
        assert_ne!(name(&ms), name(&other));
    }
}
