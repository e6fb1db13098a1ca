//! A report of `ferrane doctor` as a profile: its measured values take precedence over all built-in
//! ones.
//!
//! A report is JSON as described in docs/doctor.md. Only the parts that define a profile are read
//! here: the machine's name and, of each probe, its values and the results for the claims about
//! them. A value cites `measured:PROBE` and the claims that the probe confirmed, and overrules
//! those that it contradicted.
//!
//! Unknown fields are ignored. Values that profiles do not have are errors, so a report of a newer
//! version is not accepted in part.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{File, OVERLAYS, Overlay, Profile, ProfileError, resolve, subject};

/// The `format` of a report.
pub const FORMAT: &str = "ferrane-doctor";
/// The version of reports that is written and read.
pub const VERSION: u64 = 1;

/// The largest number in a report. No machine has a larger limit, and larger numbers could overflow
/// where they are used.
const LARGEST: u64 = 1 << 40;

#[derive(Deserialize)]
struct MeasuredReport {
    profile: String,
    probes: Vec<MeasuredProbe>,
}

#[derive(Deserialize)]
struct MeasuredProbe {
    name: String,
    #[serde(default)]
    values: BTreeMap<String, Value>,
    #[serde(default)]
    claims: Vec<JudgedClaim>,
}

#[derive(Deserialize)]
struct JudgedClaim {
    id: String,
    value: String,
    verdict: String,
}

fn wrong(why: impl Into<String>) -> ProfileError {
    ProfileError::Report(why.into())
}

impl Profile {
    /// The profile of a machine according to a report.
    ///
    /// # Errors
    /// [`ProfileError::Report`] if the text is not a report of a known version, or has a value that
    /// no profile has.
    pub fn report(text: &str) -> Result<Profile, ProfileError> {
        // The head first: the rest of a newer version may have another form.
        let head: Value = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if head.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(wrong(format!("it does not begin with \"format\": \"{FORMAT}\"")));
        }
        match head.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(wrong(format!("it is of version {other}; this Ferrane reads version {VERSION}")));
            }
            None => return Err(wrong("it has no version")),
        }
        let report: MeasuredReport = serde_json::from_value(head).map_err(|e| wrong(e.to_string()))?;
        let overlay = overlay(&report)?;
        let built_in = OVERLAYS.as_ref().map_err(ProfileError::clone)?;
        resolve(&subject(&report.profile)?, &[built_in, &[overlay]])
    }

    /// Finds a profile by its name, or reads the report in a file whose name ends in `.json`.
    ///
    /// # Errors
    /// As [`Profile::named`] and [`Profile::report`], and if the file cannot be read.
    pub fn find(spec: &str) -> Result<Profile, ProfileError> {
        if !spec.ends_with(".json") {
            return Profile::named(spec);
        }
        let text = std::fs::read_to_string(spec).map_err(|e| wrong(format!("{spec}: {e}")))?;
        Profile::report(&text).map_err(|e| match e {
            ProfileError::Report(why) => wrong(format!("{spec}: {why}")),
            other => other,
        })
    }
}

/// All values of a report as one overlay.
fn overlay(report: &MeasuredReport) -> Result<Overlay, ProfileError> {
    let mut found: BTreeMap<&str, (&Value, &str)> = BTreeMap::new();
    let (mut set, mut ops) = (Map::new(), Map::new());
    for probe in &report.probes {
        for (name, value) in &probe.values {
            if let Some((_, other)) = found.get(name.as_str()).filter(|(v, _)| *v != value) {
                return Err(wrong(format!("`{name}` has two values, by the probes `{other}` and `{}`", probe.name)));
            }
            found.insert(name, (value, &probe.name));
            let given = given(probe, name, value);
            let (side, key) = match name.strip_prefix("op.") {
                Some(op) if ferrane_mil::ops::versions(op).is_empty() => {
                    return Err(wrong(format!("probe `{}`: no op is called `{op}`", probe.name)));
                }
                Some(op) => (&mut ops, op),
                None => (&mut set, name.as_str()),
            };
            check(name, value, &given).map_err(|why| wrong(format!("probe `{}`: {why}", probe.name)))?;
            side.insert(key.to_string(), given);
        }
    }
    serde_json::from_value(json!({ "set": set, "ops": ops })).map_err(|e| wrong(e.to_string()))
}

/// A value with its evidence.
fn given(probe: &MeasuredProbe, name: &str, value: &Value) -> Value {
    let about = |verdict: &'static str| probe.claims.iter().filter(move |c| c.value == name && c.verdict == verdict);
    let source = format!("measured:{}", probe.name);
    let claims: Vec<&str> = std::iter::once(source.as_str()).chain(about("agrees").map(|c| c.id.as_str())).collect();
    let overruled: Map<String, Value> = about("contradicts")
        .map(|c| (c.id.clone(), json!(format!("the probe `{}` found otherwise", probe.name))))
        .collect();
    json!({ "value": value, "claims": claims, "overrules": overruled })
}

/// Checks that profiles have such a value.
fn check(name: &str, value: &Value, given: &Value) -> Result<(), String> {
    if value.as_u64().is_some_and(|n| n > LARGEST) {
        return Err(format!("`{name}`: {value} is more than any machine has"));
    }
    let one = match name.strip_prefix("op.") {
        Some(op) => json!({ "overlay": [{ "ops": { op: given } }] }),
        None => json!({ "overlay": [{ "set": { name: given } }] }),
    };
    serde_json::from_value::<File>(one).map(drop).map_err(|e| format!("`{name}`: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Acceptance, Limit, PortOrder};

    fn report(probes: &str) -> String {
        format!(
            r#"{{"format": "ferrane-doctor", "version": 1, "profile": "m4-max-macos26-inmem", "later": 1, "probes": [{probes}]}}"#
        )
    }

    #[test]
    fn measured_values_stand_above_and_say_where_they_come_from() {
        let text = report(
            r#"{"name": "budget", "values": {"compile_budget": "none", "min_surface": 256}},
               {"name": "op.concat", "values": {"op.concat": "refused"},
                "claims": [{"id": "C041", "value": "op.concat", "verdict": "agrees"},
                           {"id": "C042", "value": "op.concat", "verdict": "contradicts"}]},
               {"name": "order", "values": {"output_order": "descending-size"}}, {"name": "speed"}"#,
        );
        let profile = Profile::report(&text).unwrap();
        assert_eq!(profile.subject.name, "m4-max-macos26-inmem");
        assert_eq!((profile.compile_budget.value, profile.min_surface.value), (Limit(None), 256));
        assert_eq!(profile.output_order.value, PortOrder::DescendingSize);
        let concat = profile.op("concat").unwrap();
        assert_eq!(concat.value, Acceptance::Refused);
        assert_eq!(concat.claims, ["measured:op.concat", "C041"]);
        assert_eq!(concat.overrules.keys().collect::<Vec<_>>(), ["C042"]);
        // Values that were not measured are unchanged.
        let known = Profile::named("m4-max-macos26-inmem").unwrap();
        assert_eq!(profile.max_axis, known.max_axis);
    }

    #[test]
    fn what_is_no_report_says_why() {
        let fails = |text: &str| Profile::report(text).unwrap_err().to_string();
        for (text, word) in [
            ("", "EOF"),
            ("[]", "format"),
            (r#"{"format": "other"}"#, "format"),
            (r#"{"format": "ferrane-doctor"}"#, "no version"),
            (r#"{"format": "ferrane-doctor", "version": 2, "probes": 3}"#, "version 2"),
            (r#"{"format": "ferrane-doctor", "version": -1}"#, "no version"),
            (r#"{"format": "ferrane-doctor", "version": 1}"#, "profile"),
            (r#"{"format": "ferrane-doctor", "version": 1, "profile": "m4", "probes": {}}"#, "sequence"),
            (r#"{"format": "ferrane-doctor", "version": 1, "profile": "m99", "probes": []}"#, "no profile `m99`"),
        ] {
            assert!(fails(text).contains(word), "{text}: {}", fails(text));
        }
        for (values, word) in [
            (r#"{"max_moons": 3}"#, "max_moons"),
            (r#"{"min_surface": -1}"#, "min_surface"),
            (r#"{"min_surface": 1e300}"#, "min_surface"),
            (r#"{"min_surface": 18446744073709551615}"#, "more than any machine"),
            (r#"{"compile_budget": 18446744073709551615}"#, "more than any machine"),
            (r#"{"compile_budget": "many"}"#, "compile_budget"),
            (r#"{"output_order": ["alphabetical"]}"#, "output_order"),
            (r#"{"op.concat": "maybe"}"#, "op.concat"),
            (r#"{"op.conkat": "refused"}"#, "conkat"),
            (r#"{"op.": "refused"}"#, "no op"),
            (r#"{"max_axis": null}"#, "max_axis"),
        ] {
            let text = report(&format!(r#"{{"name": "p", "values": {values}}}"#));
            assert!(fails(&text).contains(word), "{values}: {}", fails(&text));
            assert!(fails(&text).contains('p'), "{values}");
        }
        let deep = "[".repeat(100_000);
        assert!(fails(&deep).contains("recursion"), "{}", fails(&deep));
        let twice = report(r#"{"name": "a", "values": {"cast": true}}, {"name": "b", "values": {"cast": false}}"#);
        assert!(fails(&twice).contains("`a` and `b`"), "{}", fails(&twice));
    }

    #[test]
    fn a_name_or_a_file_is_found() {
        assert_eq!(Profile::find("m4").unwrap().subject.name, Profile::DEFAULT);
        let missing = Profile::find("nowhere/report.json").unwrap_err().to_string();
        assert!(missing.contains("nowhere/report.json"), "{missing}");
    }
}
