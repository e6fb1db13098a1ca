//! Asking the questions.

use std::time::Instant;

use ferrane_target::claims;

use crate::{Answer, Cost, Found, Judged, Place, Probe, Verdict, all};

/// The probes that a list of names asks for, in the order in which they are asked: those that are risky last. Names are those of
/// probes or of experiments; `all` is all of them, no list at all those that are not risky.
///
/// # Errors
/// A name that none has, with the nearest one.
pub fn selected(names: &[String]) -> Result<Vec<&'static Probe>, String> {
    let mut chosen: Vec<&'static Probe> = Vec::new();
    if names.is_empty() {
        chosen.extend(all().iter().filter(|p| p.cost != Cost::Risky));
    }
    for name in names {
        let found: Vec<_> = all()
            .iter()
            .filter(|p| name == "all" || p.name == name || p.experiments.contains(&name.as_str()))
            .collect();
        if found.is_empty() {
            return Err(name.clone());
        }
        chosen.extend(found);
    }
    let mut ordered: Vec<&'static Probe> = all().iter().filter(|p| chosen.iter().any(|c| c.name == p.name)).collect();
    ordered.sort_by_key(|p| p.cost == Cost::Risky);
    Ok(ordered)
}

/// Asks one question.
pub fn examine(place: &mut Place<'_>, probe: &Probe) -> Answer {
    let (begun, compiles) = (Instant::now(), place.compiles());
    let found = (probe.run)(place).unwrap_or_else(|error| {
        let mut found = Found::new();
        found.open(error.to_string());
        found
    });
    let claims = judged(place, probe, &found);
    Answer {
        name: probe.name.into(),
        question: probe.question.into(),
        experiments: probe.experiments.iter().map(|e| (*e).to_string()).collect(),
        values: found.values,
        claims,
        raw: found.raw,
        open: found.why,
        ms: (begun.elapsed().as_secs_f64() * 1e4).round() / 10.0,
        compiles: place.compiles() - compiles,
    }
}

/// The claims beside the values that were measured.
fn judged(place: &Place<'_>, probe: &Probe, found: &Found) -> Vec<Judged> {
    let subject = &place.device().profile().subject;
    let one = |says: &crate::Says| {
        let value = found.values.get(says.value)?;
        let about = claims::find(says.claim).is_some_and(|c| c.applies_to(subject));
        let verdict = match says.word.fits(value) {
            true => Verdict::Agrees,
            false if about => Verdict::Contradicts,
            false => Verdict::Elsewhere,
        };
        Some(Judged { id: says.claim.into(), value: says.value.into(), verdict })
    };
    probe.says.iter().filter_map(one).collect()
}
