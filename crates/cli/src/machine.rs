//! `ferrane machine`: machines, their values, and the claims behind them.

use std::path::Path;

use ferrane::diag::did_you_mean;
use ferrane::machine::claims::{self, Claim};
use ferrane::machine::profile::{self, Citation, Profile, ProfileEntry, citations, plain};
use ferrane::machine::rules;
use serde_json::{Value, json};

use crate::args::{Machine, MachineClaims, MachineList, MachineShow};
use crate::error::{Error, Result};
use crate::out;

/// Columns of text.
const WIDTH: usize = 100;

/// Runs the command.
pub fn run(args: Machine) -> Result<()> {
    match args {
        Machine::List(args) => list(args),
        Machine::Show(args) => show(args),
        Machine::Claims(args) => show_claims(args),
    }
}

fn list(args: MachineList) -> Result<()> {
    if args.json {
        return profile::Subject::all().iter().try_for_each(|s| out::line(json!(s)));
    }
    out::line(format_args!("{:10} {:7} {:8} {:9} like", "chip", "family", "variant", "since"))?;
    for chip in profile::chips() {
        let like = chip.matches.join(", ");
        let line = format!("{:10} {:7} {:8} {:9} {like}", chip.name, chip.family, chip.variant, chip.first_os);
        out::line(line.trim_end())?;
    }
    out::line("")?;
    out::line(format_args!("systems    {}", profile::systems().join(", ")))?;
    out::line(format_args!("paths      {}", profile::paths().join(", ")))?;
    let count = profile::Subject::all().len();
    out::line(format_args!("A profile is CHIP-OS-PATH, {} for example; there are {count}.", Profile::DEFAULT))
}

/// The profile with the overlays of a file above it.
fn resolve(name: &str, file: Option<&Path>) -> Result<Profile> {
    let Some(path) = file else { return Ok(Profile::find(name)?) };
    let failed = |e: &dyn std::fmt::Display| Error::new(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    Profile::measured(name, &text).map_err(|e| failed(&e))
}

fn show(args: MachineShow) -> Result<()> {
    let profile = resolve(&args.machine, args.machine_file.as_deref())?;
    let mut entries = profile.entries();
    for name in &args.values {
        if !entries.iter().any(|e| e.name == *name) {
            let hint = did_you_mean(name, entries.iter().map(|e| e.name.as_str()));
            return Err(Error::new(format!("{} has no value `{name}`{hint}", profile.subject.name)));
        }
    }
    entries.retain(|e| args.values.is_empty() || args.values.contains(&e.name));
    let subject = &profile.subject;
    if args.json {
        let values: Vec<Value> = entries.iter().map(value).collect();
        let mut object = json!(subject);
        object["values"] = json!(values);
        return out::line(object);
    }
    let (chip, variant, os, path) = (&subject.chip, &subject.variant, &subject.os, &subject.path);
    out::line(format_args!("{}: chip {chip} ({variant}), system {os}, path {path}", subject.name))?;
    for entry in &entries {
        out::line(format_args!("\n{} = {}", entry.name, plain(&entry.value)))?;
        paragraph(meaning(entry), "    ", "    ")?;
        if !entry.claims.is_empty() {
            paragraph(&format!("rests on {}", entry.claims.join(", ")), "    ", "      ")?;
        }
        for (id, why) in &entry.overrules {
            paragraph(&format!("overrules {id}: {why}"), "    ", "      ")?;
        }
    }
    Ok(())
}

fn meaning(entry: &ProfileEntry) -> &str {
    if entry.name.starts_with("op.") { "What the machine does with the op." } else { &entry.doc }
}

fn value(entry: &ProfileEntry) -> Value {
    json!({
        "name": entry.name, "value": entry.value, "meaning": meaning(entry), "claims": entry.claims,
        "overrules": entry.overrules,
    })
}

fn show_claims(args: MachineClaims) -> Result<()> {
    let profile = args.machine.as_deref().map(|name| resolve(name, args.machine_file.as_deref())).transpose()?;
    let mut found = named(args.subject.as_deref())?;
    if let Some(profile) = &profile {
        found.retain(|c| c.applies_to(&profile.subject));
    }
    let entries = profile.as_ref().map(Profile::entries);
    let mut first = true;
    for claim in found {
        let answers = answers(claim, entries.as_deref());
        if args.json {
            out::line(object(claim, &answers))?;
            continue;
        }
        if !std::mem::replace(&mut first, false) {
            out::line("")?;
        }
        tell(claim, &answers)?;
    }
    Ok(())
}

fn named(subject: Option<&str>) -> Result<Vec<&'static Claim>> {
    let Some(name) = subject else { return Ok(claims::all().iter().collect()) };
    let found: Vec<_> = claims::find(name).into_iter().chain(claims::about(name)).collect();
    if found.is_empty() {
        let known = claims::all().iter().flat_map(|c| [c.id.as_str(), c.subject.as_str()]);
        let hint = did_you_mean(name, known);
        return Err(Error::new(format!("no claim is `{name}` or is about it{hint}")));
    }
    Ok(found)
}

/// What takes a claim up: values of one profile, or of all.
fn answers(claim: &Claim, entries: Option<&[ProfileEntry]>) -> Vec<Citation> {
    let Some(entries) = entries else { return citations(&claim.id).to_vec() };
    let of = |entry: &ProfileEntry| {
        let overruled = entry.overrules.get(&claim.id).cloned();
        (overruled.is_some() || entry.claims.contains(&claim.id)).then(|| Citation {
            name: entry.name.clone(),
            value: entry.value.clone(),
            machines: Default::default(),
            overruled,
        })
    };
    entries.iter().filter_map(of).collect()
}

/// Codes of the rules that cite a claim.
fn cited_by(claim: &Claim) -> Vec<String> {
    let rules = rules::all().iter().filter(|r| r.claims.contains(&claim.id.as_str()));
    rules.map(|r| r.code.to_string()).collect()
}

fn left(claim: &Claim) -> Option<&'static str> {
    claims::unmodeled().iter().find(|g| g.claims.contains(&claim.id)).map(|g| g.reason.as_str())
}

fn object(claim: &Claim, answers: &[Citation]) -> Value {
    json!({
        "id": claim.id, "subject": claim.subject, "statement": claim.statement, "path": claim.stated.path,
        "chip": claim.stated.chip, "os": claim.stated.os, "applies": claim.applies, "source": claim.source,
        "evidence": claim.evidence, "severity": claim.effect, "taken_up": answers, "rules": cited_by(claim), "unmodeled": left(claim),
    })
}

fn tell(claim: &Claim, answers: &[Citation]) -> Result<()> {
    out::line(format_args!("{}  {}  ({}, {})", claim.id, claim.subject, claim.effect, claim.evidence))?;
    paragraph(&claim.statement, "    ", "    ")?;
    let stated = &claim.stated;
    let place = format!("{} · {} · {} · {}", stated.path, stated.chip, stated.os, claim.source);
    paragraph(&place, "    ", "      ")?;
    for answer in answers {
        match &answer.overruled {
            None => paragraph(&format!("taken up by {answer}"), "    ", "      ")?,
            Some(why) => paragraph(&format!("overruled by {answer}: {why}"), "    ", "      ")?,
        }
    }
    let rules = cited_by(claim);
    if !rules.is_empty() {
        paragraph(&format!("cited by {}", rules.join(", ")), "    ", "      ")?;
    }
    left(claim).map_or(Ok(()), |why| paragraph(&format!("left out: {why}"), "    ", "      "))
}

/// Text broken at spaces; `first` before the first line and `next` before the others.
fn paragraph(text: &str, first: &str, next: &str) -> Result<()> {
    let mut line = first.to_string();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out::line(&line)?;
            line = next.to_string();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out::line(line)
}
