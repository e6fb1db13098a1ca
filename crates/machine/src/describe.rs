//! Profiles and claims as a reader sees them: values with what they rest on, claims with what takes
//! them up.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::claims::{self, Claim};
use crate::profile::{Citation, ProfileEntry, citations, plain};
use crate::rules;

/// The widest line of a paragraph, in columns.
const WIDTH: usize = 100;

impl ProfileEntry {
    /// What the value means.
    pub fn meaning(&self) -> &str {
        if self.name.starts_with("op.") { "What the machine does with the op." } else { &self.doc }
    }
}

impl fmt::Display for ProfileEntry {
    /// The value, its meaning, and the claims that it rests on and overrules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} = {}", self.name, plain(&self.value))?;
        paragraph(f, self.meaning(), "    ")?;
        if !self.claims.is_empty() {
            paragraph(f, &format!("rests on {}", self.claims.join(", ")), "      ")?;
        }
        self.overrules.iter().try_for_each(|(id, why)| paragraph(f, &format!("overrules {id}: {why}"), "      "))
    }
}

/// A claim, and what Ferrane makes of it.
#[derive(Clone, Debug)]
pub struct ClaimReport {
    /// The claim as data/claims has it.
    pub claim: &'static Claim,
    /// The values that rest on the claim or overrule it: of one profile, or of all.
    pub citations: Vec<Citation>,
    /// The codes of the rules that cite it.
    pub rules: Vec<String>,
    /// Why nothing models the claim; `None` if something does.
    pub unmodeled: Option<&'static str>,
}

impl ClaimReport {
    /// The report of a claim. `entries` are those of one profile; `None` looks at all profiles.
    pub fn of(claim: &'static Claim, entries: Option<&[ProfileEntry]>) -> ClaimReport {
        let rules = rules::all().iter().filter(|r| r.claims.contains(&claim.id.as_str()));
        let unmodeled = claims::unmodeled().iter().find(|g| g.claims.contains(&claim.id));
        ClaimReport {
            claim,
            citations: match entries {
                Some(entries) => entries.iter().filter_map(|entry| citation(claim, entry)).collect(),
                None => citations(&claim.id).to_vec(),
            },
            rules: rules.map(|r| r.code.to_string()).collect(),
            unmodeled: unmodeled.map(|g| g.reason.as_str()),
        }
    }
}

/// How a value of a profile takes a claim up, if it does.
fn citation(claim: &Claim, entry: &ProfileEntry) -> Option<Citation> {
    let overruled = entry.overrules.get(&claim.id).cloned();
    let (name, value) = (entry.name.clone(), entry.value.clone());
    (overruled.is_some() || entry.claims.contains(&claim.id)).then(|| Citation {
        name,
        value,
        machines: Default::default(),
        overruled,
    })
}

impl fmt::Display for ClaimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { id, subject, statement, stated, source, evidence, effect, .. } = self.claim;
        writeln!(f, "{id}  {subject}  ({effect}, {evidence})")?;
        paragraph(f, statement, "    ")?;
        paragraph(f, &format!("{} · {} · {} · {source}", stated.path, stated.chip, stated.os), "      ")?;
        if !self.claim.known.is_new() {
            paragraph(f, &self.claim.known.to_string(), "      ")?;
        }
        for citation in &self.citations {
            let text = match &citation.overruled {
                None => format!("taken up by {citation}"),
                Some(why) => format!("overruled by {citation}: {why}"),
            };
            paragraph(f, &text, "      ")?;
        }
        if !self.rules.is_empty() {
            paragraph(f, &format!("cited by {}", self.rules.join(", ")), "      ")?;
        }
        self.unmodeled.iter().try_for_each(|why| paragraph(f, &format!("left out: {why}"), "      "))
    }
}

impl Serialize for ClaimReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Claim { id, subject, statement, stated, applies, source, evidence, effect, .. } = self.claim;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", id)?;
        map.serialize_entry("subject", subject)?;
        map.serialize_entry("statement", statement)?;
        map.serialize_entry("path", &stated.path)?;
        map.serialize_entry("chip", &stated.chip)?;
        map.serialize_entry("os", &stated.os)?;
        map.serialize_entry("applies", applies)?;
        map.serialize_entry("source", source)?;
        map.serialize_entry("evidence", evidence)?;
        map.serialize_entry("severity", effect)?;
        map.serialize_entry("known", &self.claim.known)?;
        map.serialize_entry("taken_up", &self.citations)?;
        map.serialize_entry("rules", &self.rules)?;
        map.serialize_entry("unmodeled", &self.unmodeled)?;
        map.end()
    }
}

/// A text in lines of at most [`WIDTH`] columns, broken at spaces. The first line is indented by
/// four spaces, the others by `next`.
fn paragraph(f: &mut fmt::Formatter<'_>, text: &str, next: &str) -> fmt::Result {
    let mut line = "    ".to_string();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(f, "{line}")?;
            line = next.to_string();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    writeln!(f, "{line}")
}
