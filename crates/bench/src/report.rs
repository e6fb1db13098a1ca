//! What an examination came to, and its JSON (docs/doctor.md).

use ferrane_target::profile::{REPORT_FORMAT, REPORT_VERSION};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a claim fares beside what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The machine does what it says.
    Agrees,
    /// The machine does otherwise, and the claim is about machines like it.
    Contradicts,
    /// The machine does otherwise; the claim is about other machines.
    Elsewhere,
}

/// A claim beside a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The claim's id.
    pub id: String,
    /// The value that it is about.
    pub value: String,
    /// How it fares.
    pub verdict: Verdict,
}

/// What a probe answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The probe.
    pub name: String,
    /// Its question.
    #[serde(default)]
    pub question: String,
    /// The experiments that it repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<String>,
    /// What was measured, by the names that profiles have.
    #[serde(default)]
    pub values: Map<String, Value>,
    /// What that says about claims.
    #[serde(default)]
    pub claims: Vec<Judged>,
    /// The numbers behind it.
    #[serde(default)]
    pub raw: Map<String, Value>,
    /// Why something stayed open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// What it took; milliseconds.
    #[serde(default)]
    pub ms: f64,
    /// Successful compiles that it took.
    #[serde(default)]
    pub compiles: usize,
}

/// An examination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always `ferrane-doctor`.
    pub format: String,
    /// The version of the form.
    pub version: u64,
    /// The version of Ferrane.
    pub ferrane: String,
    /// The device's name.
    pub device: String,
    /// The profile that it was opened with: what the values stand above.
    pub profile: String,
    /// What the computer says of itself.
    pub machine: Value,
    /// Successful compiles of all probes.
    pub compiles: usize,
    /// True if it was stopped before all probes were asked.
    pub stopped: bool,
    /// The answers.
    pub probes: Vec<Answer>,
}

impl Report {
    /// One without answers.
    pub fn new(device: String, profile: String, machine: Value) -> Report {
        Report {
            format: REPORT_FORMAT.into(),
            version: REPORT_VERSION,
            ferrane: env!("CARGO_PKG_VERSION").into(),
            device,
            profile,
            machine,
            compiles: 0,
            stopped: false,
            probes: Vec::new(),
        }
    }

    /// Adds an answer.
    pub fn add(&mut self, answer: Answer) {
        self.compiles += answer.compiles;
        self.probes.push(answer);
    }

    /// As JSON, one value on a line.
    pub fn json(&self) -> String {
        // A tree of texts and numbers: nothing in it fails.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
