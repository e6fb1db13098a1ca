//! Selecting probes, and running one.

use std::time::Instant;

use ferrane_diag::nearest;
use ferrane_machine::claims;

use crate::dut::DeviceUnderTest;
use crate::measurements::Measurements;
use crate::probe::{ClaimCheck, Probe, ProbeCost};
use crate::probes::all_probes;
use crate::report::{Answer, JudgedClaim, Verdict};

/// A name that is neither a probe nor an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProbe {
    /// The name as it was given.
    pub name: String,
    /// The most similar name, if one is similar enough to be a typo.
    pub nearest: Option<&'static str>,
}

impl std::fmt::Display for UnknownProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no probe `{}`", self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(f, ", did you mean `{nearest}`?"))
    }
}

impl std::error::Error for UnknownProbe {}

/// The probes that a list of names selects, in the order in which they run: risky ones last. A name
/// is that of a probe or of an experiment; `all` selects every probe, and an empty list every probe
/// that is not risky.
///
/// # Errors
/// A name that is neither a probe nor an experiment.
pub fn select_probes(names: &[String]) -> Result<Vec<&'static Probe>, UnknownProbe> {
    let mut chosen: Vec<&'static Probe> = Vec::new();
    if names.is_empty() {
        chosen.extend(all_probes().iter().filter(|p| p.cost != ProbeCost::Risky));
    }
    for name in names {
        let named = |p: &&Probe| name == "all" || p.name == name || p.experiments.contains(&name.as_str());
        let before = chosen.len();
        chosen.extend(all_probes().iter().filter(named));
        if chosen.len() == before {
            let known = all_probes().iter().flat_map(|p| std::iter::once(p.name).chain(p.experiments.iter().copied()));
            return Err(UnknownProbe { name: name.clone(), nearest: nearest(name, known) });
        }
    }
    let is_chosen = |p: &&Probe| chosen.iter().any(|c| c.name == p.name);
    let mut ordered: Vec<&'static Probe> = all_probes().iter().filter(is_chosen).collect();
    ordered.sort_by_key(|p| p.cost == ProbeCost::Risky);
    Ok(ordered)
}

/// Runs one probe. A probe that fails gives an answer whose question stays open.
pub fn examine(dut: &mut DeviceUnderTest<'_>, probe: &Probe) -> Answer {
    let (begun, compiles) = (Instant::now(), dut.compiles());
    let found = (probe.run)(dut).unwrap_or_else(|error| {
        let mut found = Measurements::new();
        found.leave_open(error.to_string());
        found
    });
    let claims = judged(dut, probe, &found);
    Answer {
        name: probe.name.into(),
        question: probe.question.into(),
        experiments: probe.experiments.iter().map(|e| (*e).to_string()).collect(),
        values: found.values,
        claims,
        raw: found.raw,
        open: found.open,
        ms: (begun.elapsed().as_secs_f64() * 1e4).round() / 10.0,
        compiles: dut.compiles() - compiles,
    }
}

/// The probe's claims about those of its values that were measured.
fn judged(dut: &DeviceUnderTest<'_>, probe: &Probe, found: &Measurements) -> Vec<JudgedClaim> {
    let subject = &dut.device().profile().subject;
    let one = |check: &ClaimCheck| {
        let value = found.values.get(check.value)?;
        let about = claims::find(check.claim).is_some_and(|c| c.applies_to(subject));
        let verdict = if check.expected.fits(value) {
            Verdict::Agrees
        } else if about {
            Verdict::Contradicts
        } else {
            Verdict::Elsewhere
        };
        Some(JudgedClaim { id: check.claim.into(), value: check.value.into(), verdict })
    };
    probe.claims.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_selected_by_name_by_experiment_and_all() {
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
            select_probes(&words).map(|all| all.iter().map(|p| p.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["tile", "concat", "O"]).unwrap(), ["port-order", "concat", "tile"]);
        assert_eq!(names(&["all"]).unwrap().len(), all_probes().len());
        assert!(names(&[]).unwrap().iter().all(|n| *n != "tile"));
        let unknown = names(&["concatt"]).unwrap_err();
        assert_eq!(unknown.to_string(), "no probe `concatt`, did you mean `concat`?");
    }
}
