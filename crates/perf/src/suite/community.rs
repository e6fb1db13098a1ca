//! The community format of the reference work, read and written.
//!
//! `scripts/run_community_benchmark.sh` of <https://github.com/dev-erik/ANE> writes it, and
//! `scripts/aggregate_benchmarks.py` reads it (benchmarks §11). Its `sram_probe` and `inmem_peak`
//! are the benchmarks `sram-probe` and `peak` of the suite. A time there is a mean on the caller's
//! clock, one number without a spread.

use std::collections::HashSet;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fits::{MIB, findings, number, peak, streaming};
use super::report::{SUITE_FORMAT, SUITE_VERSION, SuiteReport, SuiteResult, SuiteRow, SuiteTimes};
use super::select_benchmarks;
use crate::computer::Computer;

/// The version that is read and written.
pub(super) const SCHEMA: u64 = 1;
/// The longest user name that the script keeps.
const LONGEST_NAME: usize = 39;
/// The name of the result that holds the training steps of a community benchmark.
const TRAINING: &str = "training";
/// The classifiers of those steps, as fields and as values of the configuration.
const CLASSIFIERS: [(&str, &str); 2] = [("training_cpu_classifier", "cpu"), ("training_ane_classifier", "ane")];

/// Why a report cannot be written as a community benchmark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommunityError {
    /// The user name is none that GitHub has.
    #[error("user name `{0}`: give 1 to {LONGEST_NAME} letters, digits, `-` and `_`")]
    Username(String),
    /// The report has no row that the format has.
    #[error("the report has no times of `sram-probe` or `peak`; measure `ferrane bench suite sram-probe peak`")]
    Empty,
}

/// A file of the format. A field that is absent or `null` is not known.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CommunityFile {
    username: Option<String>,
    timestamp: Option<String>,
    system: Option<CommunitySystem>,
    benchmarks: Option<CommunityBenchmarks>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CommunitySystem {
    chip: Option<String>,
    machine: Option<String>,
    macos_version: Option<String>,
    macos_build: Option<String>,
    cpu_cores: Value,
    memory_gb: Value,
    neural_engine_cores: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CommunityBenchmarks {
    sram_probe: Option<Vec<SramRow>>,
    inmem_peak: Option<Vec<PeakRow>>,
    training_cpu_classifier: Option<Map<String, Value>>,
    training_ane_classifier: Option<Map<String, Value>>,
}

/// A row of `sram_probe`. Weights, rates and efficiency follow from these fields.
#[derive(Deserialize)]
struct SramRow {
    channels: u32,
    ms_per_eval: f64,
}

/// A row of `inmem_peak`.
#[derive(Deserialize)]
struct PeakRow {
    depth: u32,
    channels: u32,
    spatial: u32,
    ms_per_eval: f64,
}

/// Positions of a convolution of `sram_probe`, which the format does not name: the program has 64,
/// and 32 at 8192 channels (benchmarks §4).
fn positions(channels: u32) -> u32 {
    if channels == 8192 { 32 } else { 64 }
}

/// A chain of convolutions with one number as its time.
fn conv(channels: u32, positions: u32, depth: u32, ms: f64) -> SuiteRow {
    // The programs of the script have fp32 ports with casts, as the rows of the suite say.
    let config = [
        ("channels", json!(channels)),
        ("positions", json!(positions)),
        ("depth", json!(depth)),
        ("ports", json!("fp32")),
    ];
    let mut row = SuiteRow::new("conv", &config);
    row.evaluation = Some(one(ms));
    let taps = f64::from(channels) * f64::from(channels) * f64::from(depth);
    let flops = 2.0 * taps * f64::from(positions);
    row.rate("gflop", flops / 1e9);
    row.rate("tflops", flops / ms / 1e9);
    if depth == 1 {
        row.rate("weights_gb_s", 2.0 * taps / ms / 1e6);
    }
    row
}

fn one(ms: f64) -> SuiteTimes {
    SuiteTimes { median_ms: ms, lowest_ms: ms, highest_ms: ms, repeats: 1 }
}

/// A result of the suite's own name, without rows.
fn result(name: &str) -> SuiteResult {
    let question = select_benchmarks(&[name.to_string()]).ok().and_then(|b| b.first().map(|b| b.question));
    SuiteResult { skipped: None, ..SuiteResult::skipped(name, question.unwrap_or_default(), "") }
}

/// The chip as profiles name it: `m4-max` for `Apple M4 Max`.
fn chip_name(brand: &str) -> String {
    brand.trim().trim_start_matches("Apple ").to_lowercase().replace(' ', "-")
}

/// The chip as the system names it: `Apple M4 Max` for `m4-max`.
fn brand(chip: &str) -> String {
    let word = |w: &str| w[..1].to_uppercase() + &w[1..];
    let words = chip.split('-').filter(|w| w.is_ascii() && !w.is_empty()).map(word);
    format!("Apple {}", words.collect::<Vec<_>>().join(" "))
}

/// The file as a report.
pub(super) fn read(file: &CommunityFile) -> SuiteReport {
    let none = CommunitySystem::default();
    let system = file.system.as_ref().unwrap_or(&none);
    let chip = system.chip.clone().unwrap_or_else(|| "unknown chip".into());
    let macos = system.macos_version.as_ref().map(|v| format!("macOS {v}"));
    let facts = [
        ("os", json!(macos)),
        ("build", json!(system.macos_build)),
        ("chip", json!(system.chip)),
        ("model", json!(system.machine)),
        ("cpu_cores", system.cpu_cores.clone()),
        ("memory_gb", system.memory_gb.clone()),
        ("neural_engine_cores", system.neural_engine_cores.clone()),
        ("username", json!(file.username)),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_string(), value));
    let device = [Some(&chip), system.machine.as_ref(), macos.as_ref()];
    SuiteReport {
        format: SUITE_FORMAT.into(),
        version: SUITE_VERSION,
        ferrane: String::new(),
        device: device.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", "),
        profile: String::new(),
        chip: chip_name(&chip),
        computer: Value::Object(facts.collect()),
        timestamp: file.timestamp.clone(),
        unread: Vec::new(),
        stopped: false,
        results: file.benchmarks.as_ref().map(results).unwrap_or_default(),
    }
}

fn results(benchmarks: &CommunityBenchmarks) -> Vec<SuiteResult> {
    let mut found = Vec::new();
    let mut add = |mut result: SuiteResult, rows: Vec<SuiteRow>| {
        // A published file repeats some of its rows.
        let mut known = HashSet::new();
        let key = |row: &SuiteRow| (format!("{:?}", row.config), row.ms().map(f64::to_bits));
        result.rows.extend(rows.into_iter().filter(|row| known.insert(key(row))));
        found.push(result);
    };
    if let Some(rows) = benchmarks.sram_probe.as_ref().filter(|rows| !rows.is_empty()) {
        let row = |r: &SramRow| conv(r.channels, positions(r.channels), 1, r.ms_per_eval);
        let rows: Vec<SuiteRow> = rows.iter().map(row).collect();
        let findings = findings(&rows, streaming);
        add(SuiteResult { findings, ..result("sram-probe") }, rows);
    }
    if let Some(rows) = benchmarks.inmem_peak.as_ref().filter(|rows| !rows.is_empty()) {
        let rows: Vec<SuiteRow> = rows.iter().map(|r| conv(r.channels, r.spatial, r.depth, r.ms_per_eval)).collect();
        let findings = findings(&rows, peak);
        add(SuiteResult { findings, ..result("peak") }, rows);
    }
    let steps = [&benchmarks.training_cpu_classifier, &benchmarks.training_ane_classifier];
    let rows: Vec<SuiteRow> =
        CLASSIFIERS.iter().zip(steps).filter_map(|((_, of), step)| training(of, step.as_ref()?)).collect();
    if !rows.is_empty() {
        let question = "What does a training step cost, with the classifier on the CPU or on the engine?";
        add(SuiteResult { question: question.into(), ..result(TRAINING) }, rows);
    }
    found
}

/// The training step with a classifier; `None` if the file has no time of it.
fn training(classifier: &str, step: &Map<String, Value>) -> Option<SuiteRow> {
    let ms = step.get("ms_per_step").and_then(Value::as_f64)?;
    let mut row = SuiteRow::new("training-step", &[("classifier", json!(classifier))]);
    row.evaluation = Some(one(ms));
    let others = step.iter().filter(|(name, _)| *name != "ms_per_step");
    others.filter_map(|(name, value)| Some((name, value.as_f64()?))).for_each(|(name, value)| row.rate(name, value));
    Some(row)
}

/// A number with some decimals, as the script prints it.
fn decimals(value: f64, count: i32) -> Value {
    let scale = 10f64.powi(count);
    json!((value * scale).round() / scale)
}

impl SuiteReport {
    /// The report as a community benchmark of the reference work, schema version 1: the rows of
    /// `sram-probe` and `peak` by the caller's clock, and training steps if the report was read
    /// from such a file. Rows with wrong results are left out. A report of an emulator names it as
    /// its chip, so that nothing that reads the file treats its times as a machine's. There is no
    /// user name unless one is given.
    ///
    /// # Errors
    /// The name is none that GitHub has, or there is nothing to write.
    pub fn community(&self, username: Option<&str>) -> Result<Value, CommunityError> {
        let allowed = |name: &&str| {
            let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(letter)
        };
        if let Some(name) = username.filter(|name| !allowed(name)) {
            return Err(CommunityError::Username(name.into()));
        }
        let sram: Vec<Value> = self.usable("sram-probe").filter_map(|(row, ms)| sram_row(row, ms)).collect();
        let peak: Vec<Value> = self.usable("peak").filter_map(|(row, ms)| peak_row(row, ms)).collect();
        if sram.is_empty() && peak.is_empty() {
            return Err(CommunityError::Empty);
        }
        let steps = CLASSIFIERS.map(|(_, classifier)| self.step(classifier));
        let summary = summary(&sram, &peak, &steps);
        let mut file = Map::new();
        file.insert("schema_version".into(), SCHEMA.into());
        if let Some(name) = username {
            file.insert("username".into(), name.into());
        }
        file.insert("timestamp".into(), self.timestamp.as_deref().unwrap_or("unknown").into());
        file.insert("system".into(), self.system());
        let [cpu, ane] = steps;
        let benchmarks = json!({
            "sram_probe": sram,
            "inmem_peak": peak,
            CLASSIFIERS[0].0: cpu,
            CLASSIFIERS[1].0: ane,
        });
        file.insert("benchmarks".into(), benchmarks);
        file.insert("summary".into(), summary);
        Ok(Value::Object(file))
    }

    /// Rows of a benchmark that ran with correct results, with their times on the caller's clock.
    fn usable<'a>(&'a self, benchmark: &'a str) -> impl Iterator<Item = (&'a SuiteRow, f64)> {
        let rows = self.results.iter().filter(move |r| r.name == benchmark).flat_map(|r| &r.rows);
        let right = |row: &&SuiteRow| row.failed.is_none() && row.check.as_ref().is_none_or(|c| c.passed());
        rows.filter(right).filter_map(|row| Some((row, row.evaluation.as_ref()?.median_ms))).filter(|(_, ms)| *ms > 0.0)
    }

    /// The training step with a classifier, or an empty object.
    fn step(&self, classifier: &str) -> Map<String, Value> {
        let of = |(row, _): &(&SuiteRow, f64)| row.config.get("classifier").is_some_and(|c| c == classifier);
        let Some((row, ms)) = self.usable(TRAINING).find(of) else { return Map::new() };
        let mut step = Map::from_iter([("ms_per_step".to_string(), json!(ms))]);
        step.extend(row.rates.clone());
        step
    }

    /// The fields of `system`. What the report does not hold is `unknown`, or 0 where the script
    /// has a number.
    fn system(&self) -> Value {
        let text = |name: &str| self.computer.get(name).and_then(Value::as_str);
        let count = |name: &str| self.computer.get(name).and_then(Value::as_u64).unwrap_or(0);
        let unknown = || "unknown".to_string();
        let emulated = self.device.starts_with("emulator");
        let (chip, machine) = match emulated {
            true => {
                let host = text("processor").or_else(|| text("chip")).map_or_else(unknown, str::to_string);
                (format!("emulated {}", self.chip), format!("Ferrane's emulator on {host}"))
            }
            false => (
                text("chip").map_or_else(|| brand(&self.chip), str::to_string),
                text("model").map_or_else(unknown, str::to_string),
            ),
        };
        let version = text("os").and_then(|os| os.strip_prefix("macOS ")).map_or_else(unknown, str::to_string);
        let cores =
            self.computer.get("neural_engine_cores").map(|v| v.as_str().map_or_else(|| v.to_string(), String::from));
        let cpu = count("cpu_cores").max(count("cores"));
        json!({
            "chip": chip,
            "machine": machine,
            "macos_version": version,
            "macos_build": text("build").map_or_else(unknown, str::to_string),
            "cpu_cores": cpu,
            "memory_gb": count("memory_gb"),
            "neural_engine_cores": cores.filter(|_| !emulated).unwrap_or_else(unknown),
        })
    }
}

/// Operations in billions and MiB of weights of a chain, with its channels, positions and depth.
fn sizes(row: &SuiteRow) -> Option<(f64, f64, [u64; 3])> {
    let [channels, positions, depth] = ["channels", "positions", "depth"].map(|name| number(row, name));
    let (channels, positions, depth) = (channels?, positions?, depth?);
    let taps = channels * channels * depth;
    Some((2.0 * taps * positions / 1e9, 2.0 * taps / MIB, [channels as u64, positions as u64, depth as u64]))
}

fn sram_row(row: &SuiteRow, ms: f64) -> Option<Value> {
    let (gflop, weights, [channels, ..]) = sizes(row)?;
    Some(json!({
        "channels": channels,
        "weight_mb": decimals(weights, 1),
        "ms_per_eval": decimals(ms, 3),
        "tflops": decimals(gflop / ms, 2),
        "gflops_per_mb": decimals(gflop / ms * 1e3 / weights, 1),
    }))
}

fn peak_row(row: &SuiteRow, ms: f64) -> Option<Value> {
    let (gflop, weights, [channels, positions, depth]) = sizes(row)?;
    Some(json!({
        "depth": depth,
        "channels": channels,
        "spatial": positions,
        "weight_mb": decimals(weights, 1),
        "gflops": decimals(gflop, 2),
        "ms_per_eval": decimals(ms, 3),
        "tflops": decimals(gflop / ms, 2),
    }))
}

/// The summary, by the rules of the script: the first width whose rate is below 0.6 times the
/// highest of the narrower ones is where weights spill.
fn summary(sram: &[Value], peak: &[Value], steps: &[Map<String, Value>; 2]) -> Value {
    let of = |row: &Value, name: &str| row.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let most = |rows: &[Value], name: &str| rows.iter().map(|row| of(row, name)).fold(0.0, f64::max);
    let mut widths: Vec<(f64, f64)> = sram.iter().map(|row| (of(row, "channels"), of(row, "tflops"))).collect();
    widths.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut spill, mut before) = (0, 0.0f64);
    for (channels, rate) in widths {
        if rate < 0.6 * before {
            spill = channels as u64;
            break;
        }
        before = before.max(rate);
    }
    let [cpu, ane] = steps;
    let either = |name: &str| ane.get(name).or_else(|| cpu.get(name));
    json!({
        "peak_tflops": decimals(most(peak, "tflops"), 2),
        "sram_peak_efficiency_gflops_per_mb": decimals(most(sram, "gflops_per_mb"), 1),
        "sram_spill_start_channels": spill,
        "training_ms_per_step_cpu": cpu.get("ms_per_step"),
        "training_ms_per_step_ane": ane.get("ms_per_step"),
        "training_ane_tflops": either("ane_tflops_sustained"),
        "training_ane_util_pct": either("ane_util_pct"),
    })
}

/// This computer, with what the community format asks about a Mac.
pub(super) fn this_computer() -> Value {
    let mut all = serde_json::to_value(Computer::detect()).unwrap_or_default();
    let Value::Object(facts) = &mut all else { return all };
    if cfg!(target_os = "macos") {
        let asked = |name: &str| {
            let reported = Command::new("/usr/sbin/sysctl").args(["-n", name]).output().ok()?;
            let text = String::from_utf8_lossy(&reported.stdout).trim().to_string();
            (reported.status.success() && !text.is_empty()).then_some(text)
        };
        let count = |name: &str| asked(name)?.parse::<u64>().ok();
        let engine = ferrane_probe::describe_computer(true);
        for name in ["os", "build", "chip"] {
            facts.extend(engine.get(name).map(|value| (name.to_string(), value.clone())));
        }
        let others = [
            ("model", asked("hw.model").map(Value::from)),
            ("cpu_cores", count("hw.ncpu").map(Value::from)),
            ("memory_gb", count("hw.memsize").map(|bytes| (bytes >> 30).into())),
            ("neural_engine_cores", engine.get("cores").cloned()),
        ];
        facts.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))));
    }
    all
}

/// A time in UTC: `2026-03-03T11:46:08Z`.
pub(super) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years (Howard Hinnant, chrono-Compatible
    // Low-Level Date Algorithms).
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let [hours, minutes, seconds] = [rest / 3600, rest / 60 % 60, rest % 60];
    format!("{year:04}-{month:02}-{date:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suite::SuiteCheck;

    /// Rows of dev-erik/ANE 8193596, community_benchmarks/apple_m4_pro_20260309.json; one of its
    /// chains stands there twice.
    const FILE: &str = r#"{
        "schema_version": 1, "username": "someone", "timestamp": "2026-03-09T12:00:00Z",
        "system": {"chip": "Apple M4 Pro", "machine": "Mac16,8", "macos_version": "26.4", "macos_build": "25E5207k",
                   "cpu_cores": 14, "memory_gb": 48, "neural_engine_cores": "16"},
        "benchmarks": {
            "sram_probe": [
                {"channels": 256, "weight_mb": 0.1, "ms_per_eval": 0.115, "tflops": 0.07, "gflops_per_mb": 583.6},
                {"channels": 512, "weight_mb": 0.5, "ms_per_eval": 0.101, "tflops": 0.33, "gflops_per_mb": 664.4},
                {"channels": 1024, "weight_mb": 2.0, "ms_per_eval": 0.129, "tflops": 1.04, "gflops_per_mb": 520.2},
                {"channels": 2048, "weight_mb": 8.0, "ms_per_eval": 0.197, "tflops": 2.73, "gflops_per_mb": 340.7},
                {"channels": 3072, "weight_mb": 18.0, "ms_per_eval": 0.308, "tflops": 3.92, "gflops_per_mb": 217.9},
                {"channels": 4096, "weight_mb": 32.0, "ms_per_eval": 1.046, "tflops": 2.05, "gflops_per_mb": 64.2}],
            "inmem_peak": [
                {"depth": 32, "channels": 512, "spatial": 64, "weight_mb": 16.0,
                 "gflops": 1.07, "ms_per_eval": 0.165, "tflops": 6.51},
                {"depth": 128, "channels": 512, "spatial": 64, "weight_mb": 64.0,
                 "gflops": 4.29, "ms_per_eval": 0.349, "tflops": 12.31},
                {"depth": 128, "channels": 512, "spatial": 64, "weight_mb": 64.0,
                 "gflops": 4.29, "ms_per_eval": 0.349, "tflops": 12.31}],
            "training_cpu_classifier": {"ms_per_step": 111.0, "ane_tflops_sustained": 0.84, "ane_util_pct": 5.3},
            "training_ane_classifier": {}
        },
        "summary": {
            "peak_tflops": 12.31, "sram_peak_efficiency_gflops_per_mb": 664.4, "sram_spill_start_channels": 4096,
            "training_ms_per_step_cpu": 111.0, "training_ms_per_step_ane": null,
            "training_ane_tflops": 0.84, "training_ane_util_pct": 5.3
        }
    }"#;

    fn report() -> SuiteReport {
        SuiteReport::parse(FILE).unwrap()
    }

    #[test]
    fn a_file_is_read_as_rows_of_the_suite() {
        let report = report();
        assert_eq!((report.chip.as_str(), report.device.as_str()), ("m4-pro", "Apple M4 Pro, Mac16,8, macOS 26.4"));
        assert_eq!(report.timestamp.as_deref(), Some("2026-03-09T12:00:00Z"));
        let names: Vec<&str> = report.results.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["sram-probe", "peak", "training"]);
        let sram = report.result("sram-probe").unwrap();
        assert!(sram.question.ends_with('?') && sram.rows.len() == 6);
        assert_eq!(sram.rows[5].evaluation.as_ref().map(|t| (t.median_ms, t.repeats)), Some((1.046, 1)));
        assert_eq!(json!(sram.rows[5].config), json!({"channels": 4096, "positions": 64, "depth": 1, "ports": "fp32"}));
        assert!(sram.finding("dip_4096").unwrap() > 1.5, "{:?}", sram.findings);
        let peak = report.result("peak").unwrap();
        assert_eq!((peak.rows.len(), peak.finding("peak_tflops")), (2, Some(12.306)));
        assert_eq!(report.result("training").unwrap().rows[0].rates["ane_util_pct"], 5.3);
        // What is written is a report of its own.
        assert_eq!(SuiteReport::parse(&report.json()), Ok(report));
    }

    #[test]
    fn the_widest_convolution_has_half_of_the_positions() {
        let text = r#"{"schema_version": 1, "benchmarks": {"sram_probe": [{"channels": 8192, "ms_per_eval": 4.0}]}}"#;
        let report = SuiteReport::parse(text).unwrap();
        assert_eq!(report.results[0].rows[0].config["positions"], 32);
        assert_eq!(SuiteReport::parse(r#"{"schema_version": 1}"#).unwrap().results, []);
        let odd = r#"{"schema_version": 1, "benchmarks": {"sram_probe": [{"channels": "wide"}]}}"#;
        let error = SuiteReport::parse(odd).unwrap_err().to_string();
        assert!(error.contains("invalid type: string \"wide\"") && error.contains("line 1 column"), "{error}");
        let odd = text.replace("4.0", "-4.0");
        assert!(SuiteReport::parse(&odd).unwrap_err().to_string().contains("-4 ms is no time"));
    }

    #[test]
    fn what_was_read_is_written_again() {
        let wanted: Value = serde_json::from_str(FILE).unwrap();
        let written = report().community(Some("someone")).unwrap();
        let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&written), keys(&wanted));
        assert_eq!(written["system"], wanted["system"]);
        assert_eq!(written["summary"], wanted["summary"]);
        assert_eq!(written["benchmarks"]["sram_probe"], wanted["benchmarks"]["sram_probe"]);
        let mut rows = wanted["benchmarks"]["inmem_peak"].as_array().unwrap().clone();
        rows.dedup();
        assert_eq!(written["benchmarks"]["inmem_peak"], json!(rows));
        assert_eq!(written["benchmarks"][CLASSIFIERS[0].0], wanted["benchmarks"][CLASSIFIERS[0].0]);
        assert!(report().community(None).unwrap().get("username").is_none());
    }

    #[test]
    fn an_emulator_is_no_machine_and_wrong_rows_are_left_out() {
        let mut report = report();
        report.device = "emulator (fast, limits of m4-max-macos15-inmem)".into();
        let wrong = SuiteCheck { reference: "loops".into(), error: 1.0, tolerance: 1e-3 };
        report.results[0].rows[0].check = Some(wrong);
        report.results[0].rows[1].failed = Some("no".into());
        let written = report.community(None).unwrap();
        assert_eq!(written["system"]["chip"], "emulated m4-pro");
        assert_eq!(written["system"]["neural_engine_cores"], "unknown");
        assert_eq!(written["benchmarks"]["sram_probe"][0]["channels"], 1024);
        for name in ["", "a b", &"x".repeat(40)] {
            assert_eq!(report.community(Some(name)), Err(CommunityError::Username(name.into())));
        }
        report.results.truncate(0);
        assert_eq!(report.community(None), Err(CommunityError::Empty));
        assert_eq!([brand("m4-max"), chip_name("Apple M4 Max")], ["Apple M4 Max", "m4-max"]);
    }

    #[test]
    fn a_time_is_written_in_utc() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_772_538_368), "2026-03-03T11:46:08Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
