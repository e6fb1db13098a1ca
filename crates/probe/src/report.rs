//! The report of an examination, and its JSON (docs/doctor.md).

use ferrane_machine::profile::{REPORT_FORMAT, REPORT_VERSION};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::private::{redact, redact_value};
use crate::probe::Probe;

/// How a claim compares with a measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The machine does what the claim says.
    Agrees,
    /// The machine does otherwise, and the claim is about machines like it.
    Contradicts,
    /// The machine does otherwise; the claim is about other machines.
    Elsewhere,
}

/// A claim compared with a measured value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedClaim {
    /// The claim's id, `C041`.
    pub id: String,
    /// Name of the profile value that it is about.
    pub value: String,
    /// How the two compare.
    pub verdict: Verdict,
}

/// The answer of one probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the probe.
    pub name: String,
    /// The question that the probe answers.
    #[serde(default)]
    pub question: String,
    /// Letters of the experiments that the probe repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<String>,
    /// Measured values, by their names in a profile.
    #[serde(default)]
    pub values: Map<String, Value>,
    /// The claims that the values decide.
    #[serde(default)]
    pub claims: Vec<JudgedClaim>,
    /// Numbers and messages that the values rest on.
    #[serde(default)]
    pub raw: Map<String, Value>,
    /// Why a question stays open; `None` if all were answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// Time the probe took, in milliseconds.
    #[serde(default)]
    pub ms: f64,
    /// Number of programs that the probe compiled successfully.
    #[serde(default)]
    pub compiles: usize,
}

impl Answer {
    /// The answer of a probe that measured nothing, with the reason. `ms` is the time it took.
    pub fn unanswered(probe: &Probe, why: String, ms: f64) -> Answer {
        Answer {
            name: probe.name.into(),
            question: probe.question.into(),
            experiments: probe.experiments.iter().map(|e| (*e).to_string()).collect(),
            values: Map::new(),
            claims: Vec::new(),
            raw: Map::new(),
            open: Some(why),
            ms,
            compiles: 0,
        }
    }

    /// Ids of the claims about one value that have this verdict.
    pub fn judged(&self, value: &str, verdict: Verdict) -> Vec<&str> {
        let about = self.claims.iter().filter(|c| c.value == value && c.verdict == verdict);
        about.map(|c| c.id.as_str()).collect()
    }
}

/// The report of an examination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// Always `ferrane-doctor`.
    pub format: String,
    /// Version of the format.
    pub version: u64,
    /// Version of Ferrane that wrote the report.
    pub ferrane: String,
    /// Name of the device.
    pub device: String,
    /// Name of the profile that the device was opened with; the measured values override it.
    pub profile: String,
    /// Description of the computer, see [`describe_computer`](crate::describe_computer).
    pub machine: Value,
    /// Successful compiles of all probes.
    pub compiles: usize,
    /// True if the examination was stopped before all probes had run.
    pub stopped: bool,
    /// The answers, in the order in which the probes ran.
    pub probes: Vec<Answer>,
    /// The report of the benchmark suite (docs/benchmarks.md), if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub benchmarks: Option<Value>,
}

/// Totals over the answers of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportCounts {
    /// Number of probes that ran.
    pub probes: usize,
    /// Number of profile values that were measured.
    pub values: usize,
    /// Number of claims that the machine agrees with.
    pub agree: usize,
    /// Number of claims about such machines that the machine contradicts.
    pub contradict: usize,
    /// Number of probes that left a question open.
    pub open: usize,
}

impl DoctorReport {
    /// A report without answers. `machine` describes the computer.
    pub fn new(device: String, profile: String, machine: Value) -> DoctorReport {
        DoctorReport {
            format: REPORT_FORMAT.into(),
            version: REPORT_VERSION,
            ferrane: env!("CARGO_PKG_VERSION").into(),
            device,
            profile,
            machine,
            compiles: 0,
            stopped: false,
            probes: Vec::new(),
            benchmarks: None,
        }
    }

    /// Appends the answer of a probe, without the user names that paths in its messages may hold.
    pub fn add(&mut self, mut answer: Answer) {
        answer.raw.values_mut().for_each(redact_value);
        answer.open = answer.open.map(|text| redact(&text));
        self.compiles += answer.compiles;
        self.probes.push(answer);
    }

    /// Totals over all answers.
    pub fn counts(&self) -> ReportCounts {
        let judged = |verdict| self.probes.iter().flat_map(|p| &p.claims).filter(|c| c.verdict == verdict).count();
        ReportCounts {
            probes: self.probes.len(),
            values: self.probes.iter().map(|p| p.values.len()).sum(),
            agree: judged(Verdict::Agrees),
            contradict: judged(Verdict::Contradicts),
            open: self.probes.iter().filter(|p| p.open.is_some()).count(),
        }
    }

    /// The report as indented JSON.
    pub fn json(&self) -> String {
        // Texts, numbers and maps with text keys always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
