//! The tables: findings, and the rows of each benchmark.

use std::collections::{BTreeSet, HashMap};

use ferrane_page::{PlotCell, PlotTable};
use serde_json::Value;

use super::of;
use crate::spread::short;
use crate::suite::compare::{compare, key, letter};
use crate::suite::report::{SuiteReport, SuiteResult, SuiteRow, configuration, range};

/// The findings, then a table for each benchmark.
pub(super) fn tables(reports: &[SuiteReport]) -> Vec<PlotTable> {
    let mut names: Vec<&str> = Vec::new();
    for result in reports.iter().flat_map(|r| &r.results) {
        if !names.contains(&result.name.as_str()) {
            names.push(&result.name);
        }
    }
    let findings = Some(findings(reports)).filter(|table| !table.rows.is_empty());
    findings.into_iter().chain(names.into_iter().map(|name| table(reports, name))).collect()
}

fn findings(reports: &[SuiteReport]) -> PlotTable {
    let mut columns = vec!["finding".to_string(), "unit".to_string()];
    columns.extend((0..reports.len()).map(|i| if reports.len() > 1 { letter(i) } else { "value".into() }));
    columns.push("how it follows".into());
    let from = |benchmark: &str, name: &str| {
        let all = reports.iter().filter_map(|r| r.result(benchmark)).flat_map(|r| &r.findings);
        all.filter(|f| f.name == name).map(|f| f.from.clone()).next().unwrap_or_default()
    };
    let found = compare(reports, None).findings;
    let row = |found: &crate::suite::ComparedFinding| {
        let mut row: Vec<PlotCell> =
            vec![format!("{}: {}", found.benchmark, found.name).into(), found.unit.clone().into()];
        row.extend(found.values.iter().map(|v| PlotCell::from(v.map_or_else(|| "-".into(), short))));
        row.push(from(&found.benchmark, &found.name).into());
        row
    };
    let rows = found.iter().map(row).collect();
    PlotTable { title: "Findings".into(), columns, numbers_from: 2, rows, ..PlotTable::default() }
}

fn table(reports: &[SuiteReport], name: &str) -> PlotTable {
    let several = reports.len() > 1;
    let results = || reports.iter().enumerate().filter_map(|(i, r)| Some((i, r.result(name)?)));
    let mut columns = vec!["configuration".to_string()];
    columns.extend(several.then(|| "of".to_string()));
    let numbers_from = columns.len();
    columns.extend(["caller ms", "lowest to highest", "device ms", "predicted ms", "published ms"].map(String::from));
    columns.push("rates and result".into());
    // The rows of one configuration stand together.
    let mut groups: Vec<Vec<(usize, &SuiteRow)>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (i, result) in results() {
        for row in &result.rows {
            let at = *places.entry(key(name, row)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push((i, row));
        }
    }
    let line = |(i, row): &(usize, &SuiteRow)| {
        let mut cells: Vec<PlotCell> = vec![format!("{} {}", row.kernel, configuration(&row.config)).into()];
        cells.extend(several.then(|| PlotCell::from(letter(*i))));
        cells.extend(numbers(row));
        cells.push(outcome(row));
        cells
    };
    let rows = groups.iter().flatten().map(line).collect();
    let question = results().map(|(_, r)| r.question.clone()).next().unwrap_or_default();
    PlotTable { title: name.into(), caption: question, columns, numbers_from, rows, notes: notes(reports, results()) }
}

/// The cells with numbers.
fn numbers(row: &SuiteRow) -> [PlotCell; 5] {
    let number = |v: Option<f64>| PlotCell::from(v.map_or_else(|| "-".into(), short));
    let spread = row.evaluation.as_ref().filter(|t| t.repeats > 1);
    let spread = spread.map_or_else(|| "-".into(), |t| format!("{} to {}", short(t.lowest_ms), short(t.highest_ms)));
    let flops = row.rates.get("gflop").and_then(Value::as_f64).unwrap_or(0.0) * 1e9;
    let sources: Vec<String> =
        row.published.iter().map(|p| format!("{} {} {}, {}", short(p.value), p.metric, p.chip, p.source)).collect();
    [
        number(row.evaluation.as_ref().map(|t| t.median_ms)),
        spread.into(),
        number(row.device.as_ref().map(|t| t.median_ms)),
        number(row.predicted_ms),
        PlotCell { text: range(row.published_ms(flops)), more: sources.join("\n"), wrong: false },
    ]
}

/// The last cell: rates, and whether the result is right.
fn outcome(row: &SuiteRow) -> PlotCell {
    let rate = |(name, value): (&String, &Value)| match value.as_f64() {
        Some(value) => format!("{name} {}", short(value)),
        None => format!("{name} {value}"),
    };
    let mut parts: Vec<String> = row.rates.iter().map(rate).collect();
    parts.extend(row.power.iter().map(|p| format!("{} {} W, {} mJ", p.domain, short(p.watts), short(p.mj))));
    let wrong = row.check.as_ref().is_some_and(|check| !check.passed());
    if let Some(check) = &row.check {
        let word = if wrong { "wrong: error" } else { "error" };
        parts.push(format!("{word} {:.1e} against {}", check.error, check.reference));
    }
    parts.extend(row.failed.as_ref().map(|why| format!("failed: {why}")));
    PlotCell { text: parts.join(", "), more: String::new(), wrong: wrong || row.failed.is_some() }
}

/// What was not measured, and where the published values come from.
fn notes<'a>(reports: &[SuiteReport], results: impl Iterator<Item = (usize, &'a SuiteResult)>) -> Vec<String> {
    let (mut notes, mut sources) = (Vec::new(), BTreeSet::new());
    for (i, result) in results {
        notes.extend(result.skipped.as_ref().map(|why| format!("{}not measured: {why}", of(i, reports))));
        let published = result.rows.iter().flat_map(|row| &row.published);
        sources.extend(published.map(|p| format!("published, {}: {}", p.chip, p.source)));
    }
    notes.extend(sources);
    notes
}
