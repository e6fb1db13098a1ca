//! Reports read from text.
//!
//! A report can come from anywhere: whatever the text holds, [`SuiteReport::parse`] returns a
//! report or an error. The numbers of a report that it returns are finite, and its times are not
//! negative.

use serde_json::Value;

use super::community;
use super::report::{SUITE_FORMAT, SUITE_VERSION, SuiteReport, SuiteRow, SuiteTimes};

/// Larger texts are refused before they are read. All benchmarks together write less than 1 MiB.
pub const SUITE_MOST_BYTES: u64 = 64 << 20;

/// Limits on the parts of a report, with a margin of more than ten to what the suite writes. What
/// is done with reports may take time in the square of these numbers.
const MOST: [(&str, usize); 3] = [("benchmarks", 1000), ("rows", 10_000), ("findings", 10_000)];

/// Why a text is not a report of the suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteParseError {
    /// The text has more bytes than [`SUITE_MOST_BYTES`].
    #[error("{bytes} bytes are more than a report has, {SUITE_MOST_BYTES} at most")]
    TooLarge {
        /// The length of the text in bytes.
        bytes: u64,
    },
    /// The report has more parts of a kind than one that the suite writes.
    #[error("{count} {what} are more than a report has, {most} at most")]
    TooMany {
        /// `benchmarks`, `rows` or `findings`.
        what: &'static str,
        /// How many it has.
        count: usize,
        /// How many it may have.
        most: usize,
    },
    /// The text is not JSON, or a field is missing or has another type. The reason ends in the line
    /// and the column where JSON has them.
    #[error("{0}")]
    Json(String),
    /// The text is JSON of another kind.
    #[error(
        "it is neither a report of `ferrane bench suite`, which has \"format\": \"{SUITE_FORMAT}\", nor a community \
         benchmark, which has a \"schema_version\"{}",
        .found.as_ref().map_or(String::new(), |f| format!("; its format is `{f}`"))
    )]
    Format {
        /// The format that it names, if any.
        found: Option<String>,
    },
    /// The report is of a version that this one does not read.
    #[error("{what} {found} is not known; this Ferrane reads {known}")]
    Version {
        /// What has the version: `version` or `schema_version`.
        what: &'static str,
        /// The version as it is written.
        found: String,
        /// The newest version that is read.
        known: u64,
    },
    /// A number cannot be what it stands for.
    #[error("{place}: {why}")]
    Number {
        /// The benchmark, the row and the field.
        place: String,
        /// The number, and what it must be.
        why: String,
    },
}

impl SuiteReport {
    /// Reads a report, or a community benchmark of the reference work as a report
    /// ([`SuiteReport::community`] has its format).
    ///
    /// # Errors
    /// The text is too large, is no JSON, has another format or a version that is not known, or a
    /// number in it is impossible, such as a negative time.
    pub fn parse(text: &str) -> Result<SuiteReport, SuiteParseError> {
        if text.len() as u64 > SUITE_MOST_BYTES {
            return Err(SuiteParseError::TooLarge { bytes: text.len() as u64 });
        }
        let json = |error: serde_json::Error| SuiteParseError::Json(error.to_string());
        // The head first: the rest of a newer version may have another form.
        let head: Value = serde_json::from_str(text).map_err(json)?;
        let format = head.get("format").and_then(Value::as_str);
        if format.is_none() && head.get("schema_version").is_some() {
            check_version("schema_version", &head, community::SCHEMA)?;
            let report = community::read(&serde_json::from_str(text).map_err(json)?);
            return checked(report);
        }
        if format != Some(SUITE_FORMAT) {
            let found = format.map(|f| f.chars().take(40).collect());
            return Err(SuiteParseError::Format { found });
        }
        check_version("version", &head, SUITE_VERSION)?;
        checked(serde_json::from_str(text).map_err(json)?)
    }
}

fn check_version(what: &'static str, head: &Value, known: u64) -> Result<(), SuiteParseError> {
    match head.get(what) {
        Some(version) if version.as_u64() == Some(known) => Ok(()),
        version => {
            let found = version.map_or_else(|| "(none)".to_string(), |v| v.to_string().chars().take(40).collect());
            Err(SuiteParseError::Version { what, found, known })
        }
    }
}

/// The report, if its numbers can be.
fn checked(report: SuiteReport) -> Result<SuiteReport, SuiteParseError> {
    let rows = report.results.iter().map(|r| r.rows.len()).sum();
    let findings = report.results.iter().map(|r| r.findings.len()).sum();
    for ((what, most), count) in MOST.into_iter().zip([report.results.len(), rows, findings]) {
        if count > most {
            return Err(SuiteParseError::TooMany { what, count, most });
        }
    }
    for result in &report.results {
        for (i, row) in result.rows.iter().enumerate() {
            if let Some((field, why)) = impossible(row) {
                let place = format!("row {} of `{}`, `{field}`", i + 1, result.name);
                return Err(SuiteParseError::Number { place, why });
            }
        }
        if let Some(finding) = result.findings.iter().find(|f| !f.value.is_finite()) {
            let place = format!("finding `{}` of `{}`", finding.name, result.name);
            return Err(SuiteParseError::Number { place, why: "it is not finite".into() });
        }
    }
    Ok(report)
}

/// The field of a row whose number cannot be, and why.
fn impossible(row: &SuiteRow) -> Option<(&'static str, String)> {
    let time = |ms: f64| (!ms.is_finite() || ms < 0.0).then(|| format!("{ms} ms is no time"));
    let spread = |times: &SuiteTimes| {
        let SuiteTimes { median_ms, lowest_ms, highest_ms, .. } = *times;
        let order = lowest_ms <= median_ms && median_ms <= highest_ms;
        [median_ms, lowest_ms, highest_ms]
            .into_iter()
            .find_map(time)
            .or_else(|| (!order).then(|| format!("the median {median_ms} is not from {lowest_ms} to {highest_ms}")))
    };
    let spreads = [("evaluation", &row.evaluation), ("device", &row.device)];
    let times = [("compile_ms", row.compile_ms), ("load_ms", row.load_ms), ("predicted_ms", row.predicted_ms)];
    let wrong = spreads.into_iter().find_map(|(name, times)| Some((name, times.as_ref().and_then(spread)?)));
    let drawn = row.power.iter().flat_map(|p| [p.watts, p.mj]).find(|v| !v.is_finite() || *v < 0.0);
    let wrong = wrong.or_else(|| Some(("power", format!("{} is no power and no energy", drawn?))));
    wrong.or_else(|| times.into_iter().find_map(|(name, ms)| Some((name, ms.and_then(time)?)))).or_else(|| {
        let odd = row.published.iter().map(|p| p.value).find(|v| !v.is_finite())?;
        Some(("published", format!("{odd} is not finite")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::suite::{SuiteCheck, SuiteFinding, SuiteResult};

    pub(crate) fn report() -> SuiteReport {
        let times = |ms: f64| SuiteTimes { median_ms: ms, lowest_ms: ms * 0.9, highest_ms: ms * 2.0, repeats: 7 };
        let mut row = SuiteRow::new("conv", &[("channels", json!(256)), ("depth", json!(1))]);
        row.evaluation = Some(times(0.3));
        row.predicted_ms = Some(0.1);
        row.check = Some(SuiteCheck { reference: "loops".into(), error: 0.0, tolerance: 1e-3 });
        row.rate("gflop", 0.008);
        let mut result = SuiteResult::skipped("inmem", "How?", "a part");
        result.rows.push(row);
        let finding = SuiteFinding {
            name: "floor_ms".into(),
            value: 0.3,
            predicted: None,
            constant: None,
            unit: "ms".into(),
            from: "rows".into(),
        };
        result.findings.push(finding);
        let mut report = community::read(&serde_json::from_str("{}").unwrap());
        report.format = SUITE_FORMAT.into();
        report.results = vec![result];
        report
    }

    #[test]
    fn what_is_written_is_read() {
        let report = report();
        assert_eq!(SuiteReport::parse(&report.json()), Ok(report));
    }

    #[track_caller]
    fn refused(text: &str, words: &[&str]) {
        let error = SuiteReport::parse(text).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "no `{word}` in {error}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_place() {
        let with = |path: &str, value: Value| {
            let mut json: Value = serde_json::from_str(&report().json()).unwrap();
            *json.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
            json.to_string()
        };
        let row = "/results/0/rows/0";
        refused("", &["line 1 column 0"]);
        refused("{\"format\": \"ferrane-bench-suite\", ", &["line 1"]);
        refused("[1]", &["neither", "schema_version"]);
        refused(&with("/format", json!("ferrane-doctor")), &["its format is `ferrane-doctor`"]);
        refused(&with("/version", json!(2)), &["version 2 is not known", "reads 1"]);
        refused(&with("/version", json!("x".repeat(1 << 20))), &["not known"]);
        refused("{\"schema_version\": 7}", &["schema_version 7 is not known"]);
        refused(&with("/results/0/rows", json!(3)), &["expected a sequence", "line 1"]);
        refused(&with(&format!("{row}/evaluation/median_ms"), json!(-1)), &["row 1 of `inmem`, `evaluation`", "-1 ms"]);
        refused(&with(&format!("{row}/evaluation/lowest_ms"), json!(0.31)), &["the median 0.3 is not from 0.31"]);
        refused(&with(&format!("{row}/evaluation/repeats"), json!(-1)), &["-1"]);
        refused(&with(&format!("{row}/predicted_ms"), json!(-0.5)), &["`predicted_ms`: -0.5 ms is no time"]);
        refused(&with("/results/0/findings/0/value", Value::Null), &["null"]);
        refused(&report().json().replace("0.008", "1e999"), &["out of range"]);
        refused(&"[".repeat(100_000), &["recursion limit"]);
    }

    #[test]
    fn large_reports_are_refused() {
        let text = " ".repeat(SUITE_MOST_BYTES as usize + 1);
        assert_eq!(SuiteReport::parse(&text), Err(SuiteParseError::TooLarge { bytes: SUITE_MOST_BYTES + 1 }));
        let many = |grow: fn(&mut SuiteReport)| {
            let mut report = report();
            grow(&mut report);
            checked(report).map_err(|e| e.to_string()).unwrap_err()
        };
        let rows = many(|r| r.results[0].rows = vec![SuiteRow::default(); 10_001]);
        assert_eq!(rows, "10001 rows are more than a report has, 10000 at most");
        let results = many(|r| r.results = vec![r.results[0].clone(); 1001]);
        assert!(results.starts_with("1001 benchmarks"), "{results}");
        let findings = many(|r| r.results[0].findings = vec![r.results[0].findings[0].clone(); 10_001]);
        assert!(findings.starts_with("10001 findings"), "{findings}");
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        let mut odd = report();
        odd.results[0].findings[0].value = f64::NAN;
        assert!(matches!(checked(odd), Err(SuiteParseError::Number { place, .. }) if place.contains("floor_ms")));
        let mut odd = report();
        odd.results[0].rows[0].compile_ms = Some(f64::INFINITY);
        assert!(matches!(checked(odd), Err(SuiteParseError::Number { place, .. }) if place.contains("compile_ms")));
    }
}
