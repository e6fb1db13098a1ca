//! What a probe is: a question, the claims it decides, and the function that answers it.

use ferrane_device::Result;
use serde_json::Value;

use crate::dut::DeviceUnderTest;
use crate::measurements::Measurements;

/// How expensive or dangerous a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeCost {
    /// The probe takes a few compiles and less than a second.
    Cheap,
    /// The probe takes many compiles, waits for compiles that fail, or takes minutes.
    Slow,
    /// The probe may poison its process, or does. Such probes run last, and only on request.
    Risky,
}

/// What a claim says about a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expectation {
    /// The value is this, as text: `refused`, `true`, `119`.
    Is(&'static str),
    /// The value is anything but this.
    Not(&'static str),
    /// The value is this number or more, or no limit at all.
    AtLeast(u64),
    /// The value is this number or less.
    AtMost(u64),
    /// The value is a list that contains this word.
    Has(&'static str),
    /// The value is a list without this word.
    Lacks(&'static str),
}

impl Expectation {
    /// True if a value, in a profile's JSON form, is as expected.
    pub fn fits(self, value: &Value) -> bool {
        let listed = |word: &str| value.as_array().is_some_and(|all| all.iter().any(|v| v.as_str() == Some(word)));
        match self {
            Expectation::Is(word) => plain(value) == word,
            Expectation::Not(word) => plain(value) != word,
            Expectation::AtLeast(least) => value.as_u64().map_or(plain(value) == "none", |n| n >= least),
            Expectation::AtMost(most) => value.as_u64().is_some_and(|n| n <= most),
            Expectation::Has(word) => listed(word),
            Expectation::Lacks(word) => value.is_array() && !listed(word),
        }
    }
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// A claim, and what it says about a value that the probe measures.
#[derive(Clone, Copy, Debug)]
pub struct ClaimCheck {
    /// The claim's id, `C041`.
    pub claim: &'static str,
    /// Name of the value in a profile; `op.NAME` for an op.
    pub value: &'static str,
    /// What the claim says that the value is.
    pub expected: Expectation,
}

/// A row of a probe's list of claims.
pub(crate) const fn claim(claim: &'static str, value: &'static str, expected: Expectation) -> ClaimCheck {
    ClaimCheck { claim, value, expected }
}

/// A question to a machine: what is measured, and which claims that decides.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The name by which `ferrane doctor --probes` selects it; unique among probes.
    pub name: &'static str,
    /// The question, ending in a question mark.
    pub question: &'static str,
    /// Letters of the experiments of pull request 40 of the reference work that it repeats.
    pub experiments: &'static [&'static str],
    /// How expensive or dangerous it is.
    pub cost: ProbeCost,
    /// Names of the profile values that it measures. No value is measured by two probes.
    pub values: &'static [&'static str],
    /// The claims that the values decide.
    pub claims: &'static [ClaimCheck],
    pub(crate) run: fn(&mut DeviceUnderTest<'_>) -> Result<Measurements>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Expectation::{AtLeast, AtMost, Has, Is, Lacks, Not};

    #[test]
    fn expectations_are_compared_with_values() {
        for (expected, value, fits) in [
            (Is("refused"), json!("refused"), true),
            (Is("true"), json!(true), true),
            (Is("119"), json!(120), false),
            (Not("refused"), json!("native"), true),
            (AtLeast(128), json!("none"), true),
            (AtLeast(128), json!(127), false),
            (AtMost(119), json!(119), true),
            (AtMost(119), json!("none"), false),
            (Has("fp32"), json!(["fp16", "fp32"]), true),
            (Lacks("fp32"), json!(["fp16"]), true),
            (Lacks("fp32"), json!("fp16"), false),
        ] {
            assert_eq!(expected.fits(&value), fits, "{expected:?} {value}");
        }
    }
}
