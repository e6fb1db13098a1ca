//! Whether a report of `ferrane doctor` is fit to be sent: complete, without private data, and what
//! it says about the claims and about the cost model.
//!
//! ```
//! use ferrane_perf::submission::check_submission;
//!
//! let report = r#"{"format": "ferrane-doctor", "version": 1, "ferrane": "0.1.0", "device": "ane",
//!     "profile": "m4-macos26-inmem", "machine": {}, "compiles": 0, "stopped": true, "probes": []}"#;
//! let submission = check_submission(report)?;
//! assert!(!submission.is_complete() && submission.private.is_empty());
//! println!("{submission}");
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeSet;
use std::fmt;

use ferrane_probe::{DoctorReport, Probe, ProbeCost, Verdict, all_probes, private_parts};
use serde::Serialize;
use serde_json::Value;

use crate::suite::{SuiteReport, all_benchmarks};

/// How far a finding may be from the model before it contradicts it: the model's own error on
/// published rows is half of this (docs/cost-model.md).
const DEVIATION: f64 = 0.15;

/// A constant of the cost model that a measurement contradicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContradictedConstant {
    /// The constant, as docs/cost-model.md names it.
    pub constant: String,
    /// The finding that depends on it.
    pub finding: String,
    /// The finding's number, in its unit.
    pub measured: f64,
    /// The same number as the model has it.
    pub predicted: f64,
}

/// What [`check_submission`] found. Prints as a list with a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Submission {
    /// The machine: chip, system and path.
    pub machine: String,
    /// True if a Neural Engine was measured, and not an emulator.
    pub on_engine: bool,
    /// What is missing, with what to run.
    pub missing: Vec<String>,
    /// Parts that look private.
    pub private: Vec<String>,
    /// Results that are wrong, so that their times mean nothing.
    pub wrong: Vec<String>,
    /// Claims that the machine confirms.
    pub confirmed: Vec<String>,
    /// Claims about such machines that it contradicts.
    pub contradicted: Vec<String>,
    /// Constants of the cost model that it contradicts.
    pub constants: Vec<ContradictedConstant>,
}

impl Submission {
    /// True if nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// True if the report is complete, has no private parts, and comes from an engine.
    pub fn is_fit(&self) -> bool {
        self.is_complete() && self.private.is_empty() && self.on_engine
    }
}

/// Examines the text of a report.
///
/// # Errors
/// The text is no report of the doctor.
pub fn check_submission(text: &str) -> Result<Submission, serde_json::Error> {
    let report: DoctorReport = serde_json::from_str(text)?;
    let suite: Option<SuiteReport> =
        report.benchmarks.as_ref().and_then(|suite| serde_json::from_value(suite.clone()).ok());
    let mut private = BTreeSet::new();
    collect_private(&serde_json::to_value(&report)?, &mut private);
    let judged = |verdict| -> Vec<String> {
        let claims = report.probes.iter().flat_map(|p| &p.claims).filter(|c| c.verdict == verdict);
        claims.map(|c| c.id.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let wrong =
        suite.iter().flat_map(SuiteReport::wrong).map(|(name, row)| format!("{name}: {} {:?}", row.kernel, row.config));
    let constants =
        suite.iter().flat_map(|s| s.contradicted(DEVIATION)).map(|(constant, finding)| ContradictedConstant {
            constant: constant.into(),
            finding: finding.name.clone(),
            measured: finding.value,
            predicted: finding.predicted.unwrap_or(f64::NAN),
        });
    Ok(Submission {
        machine: report.profile.clone(),
        on_engine: report.device.starts_with("ane"),
        missing: missing(&report, suite.as_ref()),
        private: private.into_iter().collect(),
        wrong: wrong.collect(),
        confirmed: judged(Verdict::Agrees),
        contradicted: judged(Verdict::Contradicts),
        constants: constants.collect(),
    })
}

/// What a complete report has and this one lacks.
fn missing(report: &DoctorReport, suite: Option<&SuiteReport>) -> Vec<String> {
    let mut missing = Vec::new();
    if report.stopped {
        missing.push("the examination was stopped before its end".to_string());
    }
    for key in ["chip", "os", "build"] {
        if report.machine.get(key).is_none_or(Value::is_null) {
            missing.push(format!("the machine's `{key}`"));
        }
    }
    let ran = |probe: &&Probe| report.probes.iter().any(|a| a.name == probe.name);
    let absent: Vec<&str> =
        all_probes().iter().filter(|p| p.cost != ProbeCost::Risky && !ran(p)).map(|p| p.name).collect();
    if !absent.is_empty() {
        missing.push(format!("probes: `ferrane doctor --probes {}`", absent.join(",")));
    }
    for answer in report.probes.iter().filter(|a| a.open.is_some() && a.values.is_empty() && a.raw.is_empty()) {
        missing.push(format!("the answer of probe `{}`: {}", answer.name, answer.open.as_deref().unwrap_or_default()));
    }
    let Some(suite) = suite else {
        missing.push("the benchmarks: `ferrane doctor --bench all`".to_string());
        return missing;
    };
    let absent: Vec<&str> =
        all_benchmarks().iter().map(|b| b.name).filter(|name| suite.result(name).is_none()).collect();
    if !absent.is_empty() {
        missing.push(format!("benchmarks: `ferrane doctor --bench {}`", absent.join(",")));
    }
    missing
}

fn collect_private(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => found.extend(private_parts(text)),
        Value::Array(all) => all.iter().for_each(|v| collect_private(v, found)),
        Value::Object(all) => all.values().for_each(|v| collect_private(v, found)),
        _ => {}
    }
}

impl fmt::Display for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let list = |f: &mut fmt::Formatter<'_>, title: &str, all: &[String]| -> fmt::Result {
            if all.is_empty() {
                return writeln!(f, "  {title}: none");
            }
            writeln!(f, "  {title}:")?;
            all.iter().try_for_each(|one| writeln!(f, "    {one}"))
        };
        list(f, "missing", &self.missing)?;
        list(f, "looks private", &self.private)?;
        list(f, "wrong results", &self.wrong)?;
        writeln!(f, "  confirms {} claims: {}", self.confirmed.len(), self.confirmed.join(" "))?;
        writeln!(f, "  contradicts {} claims: {}", self.contradicted.len(), self.contradicted.join(" "))?;
        let constants: Vec<String> = self
            .constants
            .iter()
            .map(|c| format!("{}: {} is {}, the model has {}", c.constant, c.finding, c.measured, c.predicted))
            .collect();
        list(f, "constants of the cost model that it contradicts", &constants)?;
        match (self.is_fit(), self.on_engine) {
            (true, _) => writeln!(f, "  fit to be sent"),
            (false, false) => writeln!(f, "  not fit to be sent: it does not come from a Neural Engine"),
            (false, true) => writeln!(f, "  not fit to be sent yet: see above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::suite::{SuiteFinding, SuiteResult};

    fn report() -> DoctorReport {
        let machine = json!({"chip": "Apple M4", "os": "26.0", "build": "25A354"});
        DoctorReport::new("ane".into(), "m4-macos26-inmem".into(), machine)
    }

    fn answered(mut report: DoctorReport) -> DoctorReport {
        for probe in all_probes().iter().filter(|p| p.cost != ProbeCost::Risky) {
            let mut answer = ferrane_probe::Answer::unanswered(probe, String::new(), 1.0);
            answer.open = None;
            report.add(answer);
        }
        report
    }

    fn suite() -> SuiteReport {
        let results = all_benchmarks().iter().map(|b| {
            let mut result = SuiteResult::skipped(b.name, b.question, "not here");
            if b.name == "inmem" {
                result.findings.push(SuiteFinding {
                    name: "floor_ms".into(),
                    value: 0.2,
                    predicted: Some(0.1),
                    constant: Some("dispatch_us".into()),
                    unit: "ms".into(),
                    from: "the shortest median".into(),
                });
            }
            result
        });
        let device = ferrane_device::Device::new(ferrane_emulator::Emulator::new(Default::default()));
        SuiteReport { results: results.collect(), ..SuiteReport::new(&device) }
    }

    #[test]
    fn a_complete_report_is_fit_and_says_what_it_contradicts() {
        let mut report = answered(report());
        report.benchmarks = serde_json::to_value(suite()).ok();
        let found = check_submission(&report.json()).unwrap();
        assert!(found.is_fit(), "{found}");
        let names: Vec<&str> = found.constants.iter().map(|c| c.constant.as_str()).collect();
        assert_eq!(names, ["dispatch_us"]);
        report.device = "emulator".into();
        assert!(!check_submission(&report.json()).unwrap().is_fit());
    }

    #[test]
    fn what_is_missing_or_private_is_listed() {
        let mut report = report();
        report.machine = json!({"chip": "Apple M4", "os": "26.0", "note": "on adas-mac.local"});
        report.stopped = true;
        let found = check_submission(&report.json()).unwrap();
        let all = found.missing.join("\n");
        for word in ["stopped", "`build`", "--probes dialect,", "--bench all"] {
            assert!(all.contains(word), "{word}: {all}");
        }
        assert_eq!(found.private, ["adas-mac.local"]);
        assert!(check_submission("{}").is_err() && check_submission("").is_err());
    }
}
