//! `ferrane machine`: machines, their values, and the claims that these rest on.

use std::path::Path;

use ferrane::diag::did_you_mean;
use ferrane::machine::claims::{self, Claim};
use ferrane::machine::describe::ClaimReport;
use ferrane::machine::profile::{self, Profile, ProfileEntry};
use serde_json::{Value, json};

use crate::args::{Machine, MachineClaims, MachineList, MachineShow};
use crate::error::{Error, Result};
use crate::out;

/// Runs `ferrane machine`.
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

/// The profile, overridden by the overlays of a file.
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
        let mut object = json!(subject);
        object["values"] = entries.iter().map(value).collect();
        return out::line(object);
    }
    let (chip, variant, os, path) = (&subject.chip, &subject.variant, &subject.os, &subject.path);
    out::line(format_args!("{}: chip {chip} ({variant}), system {os}, path {path}", subject.name))?;
    entries.iter().try_for_each(|entry| out::print(format_args!("\n{entry}")))
}

fn value(entry: &ProfileEntry) -> Value {
    let ProfileEntry { name, value, claims, overrules, .. } = entry;
    json!({"name": name, "value": value, "meaning": entry.meaning(), "claims": claims, "overrules": overrules})
}

fn show_claims(args: MachineClaims) -> Result<()> {
    let profile = args.machine.as_deref().map(|name| resolve(name, args.machine_file.as_deref())).transpose()?;
    let mut found = named(args.subject.as_deref())?;
    if let Some(profile) = &profile {
        found.retain(|c| c.applies_to(&profile.subject));
    }
    let entries = profile.as_ref().map(Profile::entries);
    for (i, claim) in found.into_iter().enumerate() {
        let report = ClaimReport::of(claim, entries.as_deref());
        if args.json {
            out::json(&report)?;
        } else {
            out::print(format_args!("{}{report}", if i > 0 { "\n" } else { "" }))?;
        }
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
