//! What stands in the way, grouped by cause, and what to change first.

use std::collections::BTreeMap;

use ferrane_diag::Severity;
use ferrane_machine::placement::{Placement, Processor};
use ferrane_machine::{Effect, Finding, explain};
use serde_json::{Value, json};

/// The graph and the node that something is about.
pub(crate) type At = (usize, usize);
/// A finding with the node that it is about, if it is about one.
pub(crate) type FindingAt<'a> = (&'a Finding, Option<At>);

/// Changes that a page proposes.
const PROPOSED: usize = 6;
/// Nodes that a proposal or a cause lists.
const LISTED: usize = 2000;

/// Why ops are not on the engine, the most frequent cause first. Each placement comes with the
/// nodes of its ops.
pub(crate) fn off_engine(placed: &[(&Placement, Vec<At>)]) -> Value {
    let mut causes: BTreeMap<&str, (String, Vec<At>)> = BTreeMap::new();
    for (op, at) in placed.iter().flat_map(|(p, at)| p.ops.iter().zip(at)) {
        if op.runs_on == Some(Processor::Engine) {
            continue;
        }
        let Some((kind, message)) = op.reason() else { continue };
        causes.entry(kind).or_insert_with(|| (message.to_string(), Vec::new())).1.push(*at);
    }
    let mut sorted: Vec<_> = causes.into_iter().collect();
    sorted.sort_by_key(|(_, (_, at))| std::cmp::Reverse(at.len()));
    sorted
        .into_iter()
        .map(|(kind, (message, at))| {
            json!({"kind": kind, "message": message, "count": at.len(), "at": &at[..at.len().min(LISTED)]})
        })
        .collect()
}

/// What to change first: what brings most ops back, then what the machine refuses, computes wrongly
/// or runs slowly.
pub(crate) fn proposals(placed: &[(&Placement, Vec<At>)], findings: &[FindingAt<'_>]) -> Value {
    let mut found: Vec<Value> = placed.iter().filter_map(|(p, at)| change(p, at).or_else(|| reason(p, at))).collect();
    let mut codes: BTreeMap<(u8, u16), Vec<FindingAt<'_>>> = BTreeMap::new();
    for (finding, at) in findings {
        if let Some(rank) = rank(finding) {
            codes.entry((rank, finding.code.0)).or_default().push((finding, *at));
        }
    }
    let mut sorted: Vec<_> = codes.into_iter().collect();
    sorted.sort_by_key(|((rank, _), all)| (*rank, std::cmp::Reverse(all.len())));
    for (_, all) in sorted {
        let Some((first, _)) = all.first() else { continue };
        let code = first.code.to_string();
        let title = explain::find(&code).map_or("", |e| e.title);
        let mut ways: Vec<&str> = all.iter().filter_map(|(f, _)| f.rewrite.as_deref()).collect();
        ways.sort_unstable();
        ways.dedup();
        // One way may be for one op only; more than a few are listed with the findings.
        let how = (!ways.is_empty() && ways.len() <= 3).then(|| ways.join("; or "));
        let at: Vec<At> = all.iter().filter_map(|(_, at)| *at).take(LISTED).collect();
        found.push(json!({
            "title": format!("{code}: {title}"), "count": all.len(), "effect": first.effect.to_string(),
            "how": how, "fix": all.iter().any(|(f, _)| f.fix.is_some()), "code": code, "at": at,
        }));
    }
    found.truncate(PROPOSED);
    found.into()
}

/// The order of findings; `None` for those that need no change.
fn rank(finding: &Finding) -> Option<u8> {
    match (finding.severity, finding.effect) {
        (Severity::Error, _) => Some(0),
        (Severity::Warning, Effect::SilentlyWrong) => Some(1),
        (Severity::Warning, _) => Some(2),
        (Severity::Note, Effect::SilentlyWrong | Effect::Slow) => Some(3),
        (Severity::Note, _) => None,
    }
}

/// The reason that keeps most ops off the engine, if no single change brings them back.
fn reason(placement: &Placement, at: &[At]) -> Option<Value> {
    let mut kinds: BTreeMap<&str, (usize, &str, Vec<At>)> = BTreeMap::new();
    for (op, at) in placement.ops.iter().zip(at) {
        if let Some(reason) = &op.ineligible {
            let entry = kinds.entry(&reason.kind).or_insert((0, &reason.message, Vec::new()));
            entry.0 += 1;
            entry.2.push(*at);
        }
    }
    let (kind, (count, message, at)) = kinds.into_iter().max_by_key(|(_, (count, ..))| *count)?;
    let how = match kind {
        "fp32" => {
            Some("fp16 throughout: `compute_precision=FLOAT16` of coremltools, `ferrane convert --fp16` for ONNX")
        }
        "unknown shape" => Some("a fixed shape for each input: `--shape`"),
        _ => None,
    };
    let title = if count == 1 { message.to_string() } else { format!("{message}, and {} more like it", count - 1) };
    Some(json!({
        "title": title, "count": count, "effect": "the engine never runs it", "how": how, "fix": false, "code": null,
        "at": &at[..at.len().min(LISTED)],
    }))
}

fn change(placement: &Placement, at: &[At]) -> Option<Value> {
    let change = placement.change.as_ref()?;
    let replaced: Vec<At> = placement
        .ops
        .iter()
        .zip(at)
        .filter(|(op, _)| op.ineligible.as_ref().is_some_and(|r| r.kind == change.reason.kind))
        .map(|(_, at)| *at)
        .collect();
    let plural = if change.replace.len() == 1 { "op" } else { "ops" };
    let more = match change.regained {
        0 => String::new(),
        1 => "1 more op on the engine; ".to_string(),
        n => format!("{n} more ops on the engine; "),
    };
    let ([s0, s1], [t0, t1]) = (change.segments, change.transfers);
    Some(json!({
        "title": format!("Replace {} {plural}: {}", change.replace.len(), change.reason.message),
        "count": change.replace.len(),
        "effect": format!("{more}segments {s0} → {s1}, transfers {t0} → {t1}"),
        "how": null, "fix": false, "code": null, "at": &replaced[..replaced.len().min(LISTED)],
    }))
}
