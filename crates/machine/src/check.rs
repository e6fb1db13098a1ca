//! Checks a program against a machine: [`check`](fn@check) runs the rules.
//!
//! [`check`](fn@check) reads a program as the profile's compiler would
//! ([`select`](fn@crate::select::select)) and passes it to every [rule](crate::rules). According to
//! everything published, the machine accepts a program that passes without an error and computes it
//! correctly. The check itself cannot fail: rules ignore what they do not understand.
//!
//! A strict check has no rules of its own. It runs the same rules a second time over a profile with
//! the hardest claim about each value. A finding that only this run reports carries the reason why
//! the machine's own profile decides otherwise.

use std::collections::{BTreeMap, HashSet};

use ferrane_diag::{Code, Severity};
use ferrane_mil::{OpId, Program};

use crate::finding::{Effect, Finding};
use crate::findings::Findings;
use crate::options::CheckOptions;
use crate::profile::Profile;
use crate::rules::{self, Context};

/// Checks a program against a machine. Findings come in the order of codes; sort by span to show
/// them next to a text.
///
/// ```
/// use ferrane_machine::{Effect, Profile, check};
/// use ferrane_mil::{Builder, DataType, Opset, Type};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut b = Builder::new("main", Opset::IOS18);
/// let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64]))?;
/// let y = b.op("tan", "y", [("x", x.into())])?;
/// let program = b.finish(&[("y", y)])?;
///
/// let profile = Profile::find("m4-macos15-inmem")?;
/// let findings = check(&program, &profile, &Default::default());
/// let refused = findings.iter().find(|f| f.effect == Effect::REFUSED).ok_or("accepted")?;
/// assert!(refused.message.contains("`tan`"), "{}", refused.message);
/// # Ok(())
/// # }
/// ```
pub fn check(program: &Program, profile: &Profile, options: &CheckOptions<'_>) -> Vec<Finding> {
    let mut found = run(program, profile, options);
    if !options.strict {
        return found;
    }
    let Ok(hardest) = profile.strict() else { return found };
    let known: HashSet<_> = found.iter().map(place).collect();
    let reasons = reasons(profile);
    let more: Vec<Finding> = run(program, &hardest, options)
        .into_iter()
        .filter(|f| !known.contains(&place(f)))
        .map(|mut f| {
            let reason = f.claims.iter().find_map(|c| reasons.get(c.as_str()).map(|r| r.to_string()));
            f.overruled = Some(reason.unwrap_or_else(|| "the claim is about another machine".to_string()));
            f
        })
        .collect();
    found.extend(more);
    found.sort_by_key(|f| f.code);
    found
}

/// The key by which two findings are the same.
fn place(f: &Finding) -> (Code, Option<usize>, Option<OpId>, Option<String>) {
    (f.code, f.function, f.op, f.value.clone())
}

/// The reasons for which the profile overrules claims, by claim.
fn reasons(profile: &Profile) -> BTreeMap<String, String> {
    profile.entries().into_iter().flat_map(|e| e.overrules).collect()
}

/// What the engine's compiler does with a program, as if no framework ran refused ops elsewhere. At
/// most `limit` findings are kept per rule.
pub(crate) fn engine_findings(program: &Program, profile: &Profile, limit: usize) -> Vec<Finding> {
    rule_findings(program, profile, &CheckOptions::default(), limit)
}

fn rule_findings(program: &Program, profile: &Profile, options: &CheckOptions<'_>, limit: usize) -> Vec<Finding> {
    let context = Context::new(program, profile, options);
    let Some(first) = rules::all().first() else { return Vec::new() };
    let mut findings = Findings::new(first.defaults(), limit);
    for rule in rules::all() {
        findings.begin(rule.defaults());
        (rule.run)(&context, &mut findings);
    }
    findings.finish()
}

fn run(program: &Program, profile: &Profile, options: &CheckOptions<'_>) -> Vec<Finding> {
    let mut found = rule_findings(program, profile, options, options.limit.unwrap_or(Findings::LIMIT).max(1));
    if profile.elsewhere.value {
        found.iter_mut().for_each(|f| elsewhere(f, profile.subject.framework()));
    }
    found
}

/// Turns a refusal into a note: the framework runs refused ops on the CPU or the GPU.
fn elsewhere(finding: &mut Finding, framework: &str) {
    match finding.effect {
        Effect::CompileError { .. } | Effect::EvaluationError { .. } | Effect::Hangs => {
            finding.severity = Severity::Note;
            finding.effect = Effect::Slow;
            finding.message += &format!(": {framework} runs it on the CPU or the GPU");
        }
        _ => finding.severity = finding.severity.min(Severity::Warning),
    }
}
