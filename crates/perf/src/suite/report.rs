//! What a run of the suite returns, as data that serializes, and its text.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::published::PublishedValue;
use crate::spread::{Spread, round, short};

/// The value of [`SuiteReport::format`].
pub const SUITE_FORMAT: &str = "ferrane-bench-suite";
/// The newest version of the format.
pub const SUITE_VERSION: u64 = 1;

/// Repeated times in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteTimes {
    /// The median, in milliseconds.
    pub median_ms: f64,
    /// The lowest time, in milliseconds.
    pub lowest_ms: f64,
    /// The highest time, in milliseconds.
    pub highest_ms: f64,
    /// How many evaluations were timed.
    pub repeats: usize,
}

impl SuiteTimes {
    /// The spread of these durations.
    pub fn new(times: impl IntoIterator<Item = Duration>) -> SuiteTimes {
        SuiteTimes::of(&Spread::ms(times))
    }

    /// Those of a spread of milliseconds.
    pub fn of(times: &Spread) -> SuiteTimes {
        SuiteTimes {
            median_ms: round(times.median()),
            lowest_ms: round(times.lowest()),
            highest_ms: round(times.highest()),
            repeats: times.count(),
        }
    }
}

/// What a part of the computer drew while evaluations were timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuitePower {
    /// The part: `ane`, `cpu`, `gpu`, `dram`, `package` or `system`.
    pub domain: String,
    /// The counters' source, such as `RAPL`.
    pub source: String,
    /// The mean in watts, what the part draws when idle included.
    pub watts: f64,
    /// The energy of one evaluation in millijoules, likewise.
    pub mj: f64,
}

/// A comparison of results with a reference that does not use the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteCheck {
    /// What the results were compared with.
    pub reference: String,
    /// The error: the L2 norm of the difference over that of the reference.
    pub error: f64,
    /// The largest error that counts as correct.
    pub tolerance: f64,
}

impl SuiteCheck {
    /// The error of `found` against `reference`. A NaN among them makes it infinite, so it never
    /// passes.
    pub fn new(name: &str, found: &[f32], reference: &[f32], tolerance: f64) -> SuiteCheck {
        let square = |v: f64| v * v;
        let difference: f64 = found.iter().zip(reference).map(|(f, r)| square(f64::from(*f) - f64::from(*r))).sum();
        let norm: f64 = reference.iter().map(|r| square(f64::from(*r))).sum();
        let error = (difference / norm).sqrt();
        let comparable = found.len() == reference.len() && error.is_finite();
        SuiteCheck { reference: name.into(), error: if comparable { error } else { f64::MAX }, tolerance }
    }

    /// True if the error is within the tolerance.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// One configuration of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteRow {
    /// The kind of program, such as `conv`: rows of several benchmarks can have one kind.
    pub kernel: String,
    /// Its sizes and options.
    pub config: Map<String, Value>,
    /// The time of an evaluation on the caller's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<SuiteTimes>,
    /// The time of an evaluation that the device reports; with `pace=on`, the modeled machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<SuiteTimes>,
    /// The time to compile, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_ms: Option<f64>,
    /// The time to load, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ms: Option<f64>,
    /// The time that the cost model predicts for an evaluation on the device's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_ms: Option<f64>,
    /// What the parts of the computer drew; empty if no sensor meters any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<SuitePower>,
    /// The energy of an evaluation that the cost model predicts, in millijoules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_mj: Option<f64>,
    /// Rates and ratios of this row, by name and unit: `tflops`, `weights_gb_s`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rates: Map<String, Value>,
    /// The comparison of its results; absent if it has none or nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<SuiteCheck>,
    /// Published values of the nearest machine that has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedValue>,
    /// Why nothing ran, as the device says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl SuiteRow {
    /// A row of this kind and configuration without measurements.
    pub fn new(kernel: &str, config: &[(&str, Value)]) -> SuiteRow {
        let config = config.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        SuiteRow { kernel: kernel.into(), config, ..SuiteRow::default() }
    }

    /// The time of an evaluation in milliseconds: the median of the device's own clock if it has
    /// one, else of the caller's.
    pub fn ms(&self) -> Option<f64> {
        self.device.as_ref().or(self.evaluation.as_ref()).map(|times| times.median_ms)
    }

    /// Sets a rate, to five digits; one that is not finite is left out.
    pub fn rate(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.rates.insert(name.into(), round(value).into());
        }
    }

    /// Published times in milliseconds, also those that were published as rates of `flops`.
    pub fn published_ms(&self, flops: f64) -> impl Iterator<Item = f64> {
        self.published.iter().filter_map(move |p| match p.metric.as_str() {
            "ms" => Some(p.value),
            "tflops" => Some(flops / p.value / 1e9),
            _ => None,
        })
    }
}

/// A number that a benchmark draws from its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteFinding {
    /// Its name, unique within the benchmark.
    pub name: String,
    /// The number, in `unit`.
    pub value: f64,
    /// The same number drawn from the predicted times; absent if they do not predict it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<f64>,
    /// The constant of the cost model that it depends on most (docs/cost-model.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant: Option<String>,
    /// Its unit; empty for ratios and counts.
    pub unit: String,
    /// How it follows from the rows.
    pub from: String,
}

impl SuiteFinding {
    /// The measured number relative to the predicted one, less 1.
    pub fn deviation(&self) -> Option<f64> {
        self.predicted.map(|predicted| self.value / predicted - 1.0).filter(|d| d.is_finite())
    }
}

/// What one benchmark measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteResult {
    /// The name of the benchmark.
    pub name: String,
    /// The question that it answers.
    pub question: String,
    /// Its rows, in the order of their measurement.
    pub rows: Vec<SuiteRow>,
    /// What follows from them.
    pub findings: Vec<SuiteFinding>,
    /// Why some or all of it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The time that it took, in milliseconds.
    pub ms: f64,
}

impl SuiteResult {
    /// A result without measurements, and the reason.
    pub fn skipped(name: &str, question: &str, why: impl Into<String>) -> SuiteResult {
        SuiteResult {
            name: name.into(),
            question: question.into(),
            rows: Vec::new(),
            findings: Vec::new(),
            skipped: Some(why.into()),
            ms: 0.0,
        }
    }

    /// The finding of this name.
    pub fn finding(&self, name: &str) -> Option<f64> {
        self.findings.iter().find(|f| f.name == name).map(|f| f.value)
    }
}

/// Results of the suite on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Always [`SUITE_FORMAT`].
    pub format: String,
    /// The version of the format.
    pub version: u64,
    /// The version of Ferrane that wrote the report.
    pub ferrane: String,
    /// The device, with its options.
    pub device: String,
    /// The profile that the device was opened with: chip, system and path.
    pub profile: String,
    /// The chip of the profile.
    pub chip: String,
    /// The computer that the times come from.
    pub computer: Value,
    /// Why the power of parts of the computer is unknown; empty if all its sensors work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// When the run began, in UTC: `2026-03-03T11:46:08Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// True if the run was stopped before all benchmarks had run.
    pub stopped: bool,
    /// The results, in the order in which the benchmarks ran.
    pub results: Vec<SuiteResult>,
}

impl SuiteReport {
    /// The result of a benchmark.
    pub fn result(&self, name: &str) -> Option<&SuiteResult> {
        self.results.iter().find(|r| r.name == name)
    }

    /// Rows whose results differ from the reference by more than the tolerance, with the names of
    /// their benchmarks.
    pub fn wrong(&self) -> impl Iterator<Item = (&str, &SuiteRow)> {
        let rows = self.results.iter().flat_map(|r| r.rows.iter().map(move |row| (r.name.as_str(), row)));
        rows.filter(|(_, row)| row.check.as_ref().is_some_and(|c| !c.passed()))
    }

    /// Findings that differ from the model's by more than this share, with the constant of the
    /// model that each depends on most. Those without a constant are left out.
    pub fn contradicted(&self, share: f64) -> impl Iterator<Item = (&str, &SuiteFinding)> {
        let findings = self.results.iter().flat_map(|r| &r.findings);
        findings.filter_map(move |f| {
            let far = f.deviation().is_some_and(|d| d.abs() > share);
            Some((f.constant.as_deref().filter(|_| far)?, f))
        })
    }

    /// The report as indented JSON.
    pub fn json(&self) -> String {
        // Texts, finite numbers and maps with text keys always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// A configuration in one line: `channels 512, positions 64`.
pub(super) fn configuration(config: &Map<String, Value>) -> String {
    let one = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        Value::Bool(yes) => format!("{name} {}", if *yes { "yes" } else { "no" }),
        _ => format!("{name} {value}"),
    };
    config.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for SuiteResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.question)?;
        let named: Vec<String> =
            self.rows.iter().map(|row| format!("{} {}", row.kernel, configuration(&row.config))).collect();
        let width = named.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        if !self.rows.is_empty() {
            let blank = "";
            writeln!(f, "  {blank:width$}  {:>9} {:>9} {:>9} {:>10}", "ms", "device", "predicted", "published")?;
        }
        for (row, name) in self.rows.iter().zip(&named) {
            let number = |v: Option<f64>| v.map_or_else(|| "-".to_string(), short);
            let wall = number(row.evaluation.as_ref().map(|t| t.median_ms));
            let device = number(row.device.as_ref().map(|t| t.median_ms));
            let flops = row.rates.get("gflop").and_then(Value::as_f64).unwrap_or(0.0) * 1e9;
            let published = range(row.published_ms(flops));
            write!(f, "  {name:width$}  {wall:>9} {device:>9} {:>9} {published:>10}", number(row.predicted_ms))?;
            for power in &row.power {
                write!(f, "  {} {} mJ", power.domain, short(power.mj))?;
            }
            if let Some(mj) = row.predicted_mj.filter(|_| !row.power.is_empty()) {
                write!(f, " (ane predicted {} mJ)", short(mj))?;
            }
            for (name, value) in row.rates.iter().filter(|(name, _)| *name != "gflop") {
                write!(f, "  {name} {value}")?;
            }
            match &row.check {
                Some(check) if !check.passed() => {
                    write!(f, "  WRONG: error {:.1e} against {}", check.error, check.reference)?;
                }
                _ => {}
            }
            writeln!(f)?;
            if let Some(why) = &row.failed {
                writeln!(f, "    failed: {why}")?;
            }
        }
        for SuiteFinding { name, value, predicted, constant, unit, from } in &self.findings {
            write!(f, "  {name}: {} {unit}{}({from}", short(*value), if unit.is_empty() { "" } else { " " })?;
            match (predicted, constant) {
                (Some(p), Some(constant)) => writeln!(f, "; predicted {}, by `{constant}`)", short(*p))?,
                (Some(p), None) => writeln!(f, "; predicted {})", short(*p))?,
                _ => writeln!(f, ")")?,
            }
        }
        if let Some(why) = &self.skipped {
            writeln!(f, "  not measured: {why}")?;
        }
        Ok(())
    }
}

/// The lowest and the highest of some values.
pub(super) fn range(values: impl Iterator<Item = f64>) -> String {
    let (low, high) = values.fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    match (low, high) {
        _ if low > high => "-".into(),
        _ if high <= low * 1.001 => short(low),
        _ => format!("{}-{}", short(low), short(high)),
    }
}
