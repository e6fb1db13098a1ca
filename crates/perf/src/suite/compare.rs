//! Reports side by side: the times of the same rows, and the findings.
//!
//! Rows are the same if their benchmark, kind and configuration are. The first report is the one
//! that others are compared with. A row's time is the median of [`SuiteRow::ms`]'s clock unless a
//! clock is named; times on different clocks stand next to each other, but their ratio says nothing
//! about a change and no rule uses it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ferrane_diag::printable;
use serde::Serialize;
use serde_json::{Map, Value};

use super::report::{SuiteReport, SuiteRow, SuiteTimes, configuration};
use crate::spread::{round, short};

/// The clock of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SuiteClock {
    /// The caller's, around an evaluation.
    Caller,
    /// The device's own; with `pace=on`, the modeled machine's.
    Device,
}

/// A report of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedReport {
    /// A name for it, such as its file; empty until the caller sets it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The device, with its options.
    pub device: String,
    /// The profile of the device; empty for a community benchmark.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// The chip of the profile: `m4-max`.
    pub chip: String,
    /// The computer that the times come from, in a few words.
    pub computer: String,
    /// When the run began, if the report says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
}

/// The time of a row in one report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedTime {
    /// The clock that measured it.
    pub clock: SuiteClock,
    /// The spread on this clock.
    #[serde(flatten)]
    pub times: SuiteTimes,
}

/// A row of several reports. Its lists have one entry for each report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRow {
    /// The name of the benchmark.
    pub benchmark: String,
    /// The kind of program.
    pub kernel: String,
    /// Its sizes and options.
    pub config: Map<String, Value>,
    /// The times; `None` if the report has no such row or nothing ran.
    pub times: Vec<Option<ComparedTime>>,
    /// The medians over the first report's; `None` without both.
    pub ratios: Vec<Option<f64>>,
    /// Why the row has no valid time although the report has it: it failed, or its result is wrong.
    pub problems: Vec<Option<String>>,
}

/// A finding of several reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedFinding {
    /// The name of the benchmark.
    pub benchmark: String,
    /// The name of the finding.
    pub name: String,
    /// Its unit; empty for ratios and counts.
    pub unit: String,
    /// Its value in each report, if the report has it.
    pub values: Vec<Option<f64>>,
}

/// A row that is worse than in the first report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorseRow {
    /// The index of the report.
    pub report: usize,
    /// The row: benchmark, kind and configuration.
    pub row: String,
    /// What is worse about it.
    pub why: String,
}

/// Reports side by side. Serializes as an object and prints as tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuiteComparison {
    /// The reports; the others are compared with the first.
    pub reports: Vec<ComparedReport>,
    /// The rows, those with the largest changes first; those of one report only are last.
    pub rows: Vec<ComparedRow>,
    /// The findings, in the order of the reports.
    pub findings: Vec<ComparedFinding>,
}

/// Compares reports with the first of them. `clock` is the only clock whose times count; without
/// it, each row has the device's if it reports one, else the caller's.
pub fn compare(reports: &[SuiteReport], clock: Option<SuiteClock>) -> SuiteComparison {
    let mut rows: Vec<ComparedRow> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let (mut findings, mut finding_places) = (Vec::<ComparedFinding>::new(), HashMap::new());
    let count = reports.len();
    for (i, report) in reports.iter().enumerate() {
        // A report may have a row twice: the second one is compared with the others' second ones.
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (result, row) in report.results.iter().flat_map(|r| r.rows.iter().map(move |row| (r, row))) {
            let key = key(&result.name, row);
            let nth = seen.entry(key.clone()).or_default();
            let key = format!("{nth} {key}");
            *nth += 1;
            let at = *places.entry(key).or_insert_with(|| {
                rows.push(ComparedRow {
                    benchmark: result.name.clone(),
                    kernel: row.kernel.clone(),
                    config: row.config.clone(),
                    times: vec![None; count],
                    ratios: vec![None; count],
                    problems: vec![None; count],
                });
                rows.len() - 1
            });
            rows[at].times[i] = time(row, clock);
            rows[at].problems[i] = problem(row);
        }
        for (result, finding) in report.results.iter().flat_map(|r| r.findings.iter().map(move |f| (r, f))) {
            let at = *finding_places.entry((result.name.clone(), finding.name.clone())).or_insert_with(|| {
                let (benchmark, name, unit) = (result.name.clone(), finding.name.clone(), finding.unit.clone());
                findings.push(ComparedFinding { benchmark, name, unit, values: vec![None; count] });
                findings.len() - 1
            });
            findings[at].values[i] = Some(finding.value);
        }
    }
    for row in &mut rows {
        let first = row.times[0].as_ref().map(|t| t.times.median_ms).filter(|ms| *ms > 0.0);
        let over =
            |t: &Option<ComparedTime>| Some(round(t.as_ref()?.times.median_ms / first?)).filter(|r| r.is_finite());
        row.ratios = row.times.iter().map(over).collect();
    }
    // The sort is stable: equal changes keep the order of the reports.
    rows.sort_by(|a, b| b.change().total_cmp(&a.change()));
    SuiteComparison { reports: reports.iter().map(described).collect(), rows, findings }
}

fn described(report: &SuiteReport) -> ComparedReport {
    ComparedReport {
        name: String::new(),
        device: report.device.clone(),
        profile: report.profile.clone(),
        chip: report.chip.clone(),
        computer: report.computer_line(),
        timestamp: report.timestamp.clone(),
    }
}

impl SuiteReport {
    /// The computer in a few words: `AMD EPYC, 2 cores, 2 threads`.
    pub fn computer_line(&self) -> String {
        let text = |name: &str| self.computer.get(name).and_then(Value::as_str).map(str::to_string);
        let number = |name: &str| self.computer.get(name).and_then(Value::as_u64);
        let model = text("chip").or_else(|| text("processor")).or_else(|| text("arch"));
        let counted = [("cores", "cores"), ("cpu_cores", "cores"), ("threads", "threads"), ("memory_gb", "GB")];
        let counted = counted.into_iter().filter_map(|(name, unit)| Some(format!("{} {unit}", number(name)?)));
        let parts = model.into_iter().chain(text("model")).chain(text("os")).chain(counted);
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// The same text for rows of the same benchmark, kind and configuration, whatever its order.
pub(super) fn key(benchmark: &str, row: &SuiteRow) -> String {
    let plain = |value: &Value| value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string());
    let config: BTreeMap<&str, String> = row.config.iter().map(|(name, value)| (name.as_str(), plain(value))).collect();
    format!("{benchmark:?} {:?} {config:?}", row.kernel)
}

fn time(row: &SuiteRow, clock: Option<SuiteClock>) -> Option<ComparedTime> {
    let of = |clock| {
        let times = match clock {
            SuiteClock::Caller => row.evaluation.as_ref(),
            SuiteClock::Device => row.device.as_ref(),
        };
        times.map(|times| ComparedTime { clock, times: times.clone() })
    };
    match clock {
        Some(clock) => of(clock),
        None => of(SuiteClock::Device).or_else(|| of(SuiteClock::Caller)),
    }
}

fn problem(row: &SuiteRow) -> Option<String> {
    let wrong = row.check.as_ref().filter(|check| !check.passed());
    let wrong =
        wrong.map(|check| format!("its result is wrong: error {:.1e} against {}", check.error, check.reference));
    row.failed.as_ref().map(|why| format!("it failed: {why}")).or(wrong)
}

impl ComparedRow {
    /// The largest change as a factor of 1 or more, infinite for a new problem, and 0 if there is
    /// nothing to compare.
    fn change(&self) -> f64 {
        if self.problems[0].is_none() && self.times[0].is_some() && self.problems.iter().any(Option::is_some) {
            return f64::INFINITY;
        }
        let others = self.ratios.iter().skip(1).flatten().filter(|r| **r > 0.0);
        others.map(|r| r.max(1.0 / r)).fold(0.0, f64::max)
    }

    /// True if the row's time in a report is on another clock than in the first.
    fn is_mixed(&self, report: usize) -> bool {
        match (&self.times[0], &self.times[report]) {
            (Some(first), Some(other)) => first.clock != other.clock,
            _ => false,
        }
    }

    /// True if a report has a time or a problem of this row.
    fn is_in(&self, report: usize) -> bool {
        self.times[report].is_some() || self.problems[report].is_some()
    }

    /// True if there is something to compare.
    fn is_shared(&self) -> bool {
        (0..self.times.len()).filter(|report| self.is_in(*report)).count() > 1
    }

    /// Benchmark, kind and configuration in one line.
    fn name(&self) -> String {
        let kernel = if self.kernel == self.benchmark { String::new() } else { format!(" {}", self.kernel) };
        printable(&format!("{}:{kernel} {}", self.benchmark, configuration(&self.config))).replace('\n', " ")
    }
}

impl SuiteComparison {
    /// The rows that are worse than in the first report by more than `percent`.
    ///
    /// A row is slower if its median and its lowest time both exceed those of the first report by
    /// more than `percent`, on the same clock. Work by other processes makes some evaluations
    /// longer and none shorter, so it moves the median and leaves the lowest time where it was; a
    /// change of the program or the device moves both. A row is also worse if it ran with a correct
    /// result in the first report, and failed or has a wrong result in the other. Rows that a
    /// report does not have are not worse.
    pub fn worse(&self, percent: f64) -> Vec<WorseRow> {
        let factor = 1.0 + percent / 100.0;
        let mut found = Vec::new();
        for row in &self.rows {
            let Some(first) = row.times[0].as_ref().filter(|_| row.problems[0].is_none()) else { continue };
            for report in 1..self.reports.len() {
                let why = row.problems[report].clone().or_else(|| {
                    let other = row.times[report].as_ref().filter(|other| other.clock == first.clock)?;
                    let (a, b) = (&first.times, &other.times);
                    let slower = b.median_ms > a.median_ms * factor && b.lowest_ms > a.lowest_ms * factor;
                    let [before, now] =
                        [a, b].map(|t| format!("{} ms (lowest {})", short(t.median_ms), short(t.lowest_ms)));
                    slower.then(|| format!("{now} instead of {before}"))
                });
                found.extend(why.map(|why| WorseRow { report, row: row.name(), why: printable(&why) }));
            }
        }
        found
    }
}

/// `A`, `B`, …, `Z`, `A1`, … for the reports of a comparison.
pub(super) fn letter(report: usize) -> String {
    let letter = char::from(b'A' + (report % 26) as u8);
    if report < 26 { letter.to_string() } else { format!("{letter}{}", report / 26) }
}

impl fmt::Display for SuiteComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, report) in self.reports.iter().enumerate() {
            let ComparedReport { name, device, profile, computer, timestamp, .. } = report;
            let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
            let parts = [profile.as_str(), computer, timestamp.as_deref().unwrap_or_default()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            // A community benchmark has its computer as device.
            let device = if computer.starts_with(device) { String::new() } else { format!("{device}; ") };
            let line = format!("{name}{device}{}", parts.join("; "));
            writeln!(f, "{}  {}", letter(i), printable(line.trim_end_matches("; ")))?;
        }
        let (compared, alone): (Vec<&ComparedRow>, Vec<&ComparedRow>) = self.rows.iter().partition(|r| r.is_shared());
        if compared.is_empty() {
            writeln!(f, "\nno row is in two reports")?;
        } else {
            self.table(f, &compared)?;
        }
        self.findings_table(f)?;
        for (i, _) in self.reports.iter().enumerate() {
            let own = alone.iter().filter(|row| row.is_in(i)).count();
            if own > 0 {
                writeln!(f, "only in {}: {own} {}", letter(i), if own == 1 { "row" } else { "rows" })?;
            }
        }
        Ok(())
    }
}

impl SuiteComparison {
    fn table(&self, f: &mut fmt::Formatter<'_>, rows: &[&ComparedRow]) -> fmt::Result {
        let names: Vec<String> = rows.iter().map(|row| row.name()).collect();
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        write!(f, "\n{:width$}", "")?;
        for i in 0..self.reports.len() {
            write!(f, "  {:>10}", format!("{} ms", letter(i)))?;
            if i > 0 {
                write!(f, " {:>7} ", format!("{}/A", letter(i)))?;
            }
        }
        writeln!(f)?;
        let mut mixed = false;
        for (row, name) in rows.iter().zip(&names) {
            write!(f, "{name:width$}")?;
            for i in 0..self.reports.len() {
                let time = row.times[i].as_ref().map_or_else(|| "-".into(), |t| short(t.times.median_ms));
                write!(f, "  {time:>10}")?;
                if i > 0 {
                    let mark = if row.is_mixed(i) { '*' } else { ' ' };
                    mixed |= row.is_mixed(i);
                    write!(f, " {:>7}{mark}", row.ratios[i].map_or_else(|| "-".into(), |r| format!("{r:.2}")))?;
                }
            }
            writeln!(f)?;
            for (i, why) in row.problems.iter().enumerate() {
                if let Some(why) = why {
                    writeln!(f, "  {}: {}", letter(i), printable(why))?;
                }
            }
        }
        if mixed {
            writeln!(f, "* one time is on the device's own clock, the other on the caller's")?;
        }
        Ok(())
    }

    fn findings_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = |found: &&ComparedFinding| found.values.iter().flatten().count() > 1;
        let named = |found: &ComparedFinding| {
            let unit = if found.unit.is_empty() { String::new() } else { format!(", {}", found.unit) };
            printable(&format!("{}: {}{unit}", found.benchmark, found.name)).replace('\n', " ")
        };
        let rows: Vec<(String, &ComparedFinding)> =
            self.findings.iter().filter(shared).map(|found| (named(found), found)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        write!(f, "\n{:width$}", "findings")?;
        (0..self.reports.len()).try_for_each(|i| write!(f, "  {:>10}", letter(i)))?;
        writeln!(f)?;
        for (name, found) in rows {
            write!(f, "{name:width$}")?;
            found.values.iter().try_for_each(|v| write!(f, "  {:>10}", v.map_or_else(|| "-".into(), short)))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::suite::{SuiteCheck, SuiteFinding, SuiteResult};

    fn times(lowest: f64, median: f64) -> SuiteTimes {
        SuiteTimes { median_ms: median, lowest_ms: lowest, highest_ms: median * 9.0, repeats: 50 }
    }

    fn row(channels: Value, evaluation: SuiteTimes) -> SuiteRow {
        let config = [("channels", channels), ("depth", json!(1))];
        SuiteRow { evaluation: Some(evaluation), ..SuiteRow::new("conv", &config) }
    }

    fn report(rows: Vec<SuiteRow>) -> SuiteReport {
        let mut report = SuiteReport::parse(r#"{"schema_version": 1}"#).unwrap();
        let floor = SuiteFinding {
            name: "floor_ms".into(),
            value: 0.1,
            predicted: None,
            constant: None,
            unit: "ms".into(),
            from: String::new(),
        };
        let result = SuiteResult { rows, findings: vec![floor], ..SuiteResult::skipped("inmem", "?", "") };
        report.results = vec![result];
        report
    }

    #[test]
    fn the_largest_changes_are_first() {
        let first = report(vec![
            row(json!(1), times(0.9, 1.0)),
            row(json!(2), times(0.9, 1.0)),
            row(json!(3), times(0.9, 1.0)),
            row(json!(9), times(0.9, 1.0)),
        ]);
        let mut second = report(vec![
            row(json!(3.0), times(0.2, 0.25)),
            row(json!(1), times(0.9, 1.01)),
            row(json!(2), times(2.0, 3.0)),
            row(json!(7), times(1.0, 1.0)),
        ]);
        // The order of a configuration's fields means nothing.
        let last = second.results[0].rows[2].config.clone();
        second.results[0].rows[2].config = last.into_iter().rev().collect();
        let found = compare(&[first, second], None);
        let of = |row: &ComparedRow| (row.config["channels"].as_f64().unwrap(), row.ratios[1]);
        let all: Vec<_> = found.rows.iter().map(of).collect();
        assert_eq!(all, [(3.0, Some(0.25)), (2.0, Some(3.0)), (1.0, Some(1.01)), (9.0, None), (7.0, None)]);
        assert_eq!(found.findings[0].values, [Some(0.1), Some(0.1)]);
        let text = found.to_string();
        assert!(
            text.contains("B/A") && text.contains("only in A: 1 row") && text.contains("inmem: floor_ms, ms"),
            "{text}"
        );
        assert!(text.find("channels 3").unwrap() < text.find("channels 2").unwrap(), "{text}");
    }

    #[test]
    fn rows_that_stand_twice_are_paired_in_order() {
        let twice = |a: f64, b: f64| report(vec![row(json!(1), times(a, a)), row(json!(1), times(b, b))]);
        let found = compare(&[twice(1.0, 2.0), twice(3.0, 2.0)], None);
        assert_eq!(found.rows.iter().map(|r| r.ratios[1]).collect::<Vec<_>>(), [Some(3.0), Some(1.0)]);
    }

    #[test]
    fn noise_is_not_slower() {
        let worse = |lowest: f64, median: f64| {
            let reports =
                [report(vec![row(json!(1), times(1.0, 1.1))]), report(vec![row(json!(1), times(lowest, median))])];
            compare(&reports, None).worse(10.0).len()
        };
        assert_eq!(worse(1.2, 1.32), 1, "all evaluations are longer");
        assert_eq!(worse(1.0, 1.8), 0, "other processes ran");
        assert_eq!(worse(1.2, 1.15), 0, "one short evaluation is missing");
        assert_eq!(worse(1.09, 1.20), 0, "within the percentage");
        assert_eq!(worse(0.5, 0.5), 0, "faster");
    }

    #[test]
    fn failures_are_worse_and_other_clocks_are_not_compared() {
        let first = report(vec![
            row(json!(1), times(1.0, 1.0)),
            row(json!(2), times(1.0, 1.0)),
            row(json!(3), times(1.0, 1.0)),
        ]);
        let mut second = first.clone();
        let rows = &mut second.results[0].rows;
        rows[0] = SuiteRow { evaluation: None, failed: Some("no \u{1b}[2J".into()), ..rows[0].clone() };
        rows[1].check = Some(SuiteCheck { reference: "loops".into(), error: 0.5, tolerance: 1e-3 });
        rows[2].device = Some(times(5.0, 5.0));
        let found = compare(&[first.clone(), second.clone()], None);
        let worse = found.worse(5.0);
        let why: Vec<&str> = worse.iter().map(|w| w.why.as_str()).collect();
        assert_eq!(worse.len(), 2, "{why:?}");
        assert!(
            why.iter().any(|w| w.starts_with("it failed: no")) && why.iter().all(|w| !w.contains('\u{1b}')),
            "{why:?}"
        );
        assert!(why.iter().any(|w| w.contains("wrong: error 5.0e-1 against loops")), "{why:?}");
        let text = found.to_string();
        assert!(text.contains("5.00*") && text.contains("* one time is on the device's own clock"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        // The caller's clock is the same in both.
        let same = compare(&[first.clone(), second.clone()], Some(SuiteClock::Caller));
        assert!(same.rows.iter().all(|row| !row.is_mixed(1)) && !same.to_string().contains('*'));
        let device = compare(&[first.clone(), second.clone()], Some(SuiteClock::Device));
        assert!(device.rows.iter().all(|row| row.ratios[1].is_none()));
        // What was wrong before is not worse now.
        assert_eq!(compare(&[second, first], None).worse(5.0), []);
    }

    #[test]
    fn reports_have_letters() {
        assert_eq!([letter(0), letter(25), letter(26), letter(53)], ["A", "Z", "A1", "B2"]);
        let none = compare(&[], None);
        assert_eq!((none.worse(1.0), none.to_string()), (Vec::new(), "\nno row is in two reports\n".into()));
    }
}
