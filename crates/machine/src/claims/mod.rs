//! Claims: published statements about the engine, each with its source and the machines it is
//! about.
//!
//! A claim is evidence, not truth. Claims contradict each other, and all are kept: a
//! [`Profile`](crate::Profile) states for one machine which it rests on and which it overrules. Ids
//! that begin with `C` are those of the published list of claims, which is complete; any other
//! claim has an id that begins with `F`, in `further.toml`, or in `apple.toml` if Apple published
//! it for its models ([`Known`] states how it stands to the others).
//!
//! The machines of a claim are recorded twice: in the words of its source ([`Stated`]) and in our
//! names ([`Applies`]), because sources spell machines in some forty ways, and one of them calls
//! the whole family H13 "M1".

mod version;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::profile::Subject;

pub use version::{Version, Versions, VersionsError};

/// One published statement with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// `C001` and so on from the published list, `F001` and so on our own.
    pub id: String,
    /// The subject, from general to specific: `op.concat`.
    pub subject: String,
    /// The statement, in our words.
    pub statement: String,
    /// The machines that it is about, in our names.
    pub applies: Applies,
    /// The machines that it is about, in the words of the source.
    pub stated: Stated,
    /// The author or document that made the statement.
    pub source: String,
    /// The kind of evidence.
    pub evidence: Evidence,
    /// The consequence for a program that ignores it.
    pub effect: ClaimEffect,
    /// The relation to claims that were known before it.
    #[serde(default, skip_serializing_if = "Known::is_new")]
    pub known: Known,
}

/// The relation of a claim to other claims, by their ids. Without any, the claim is new.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Known {
    /// Claims that state the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confirms: Vec<String>,
    /// Claims of which it states more: a number, a limit, a condition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sharpens: Vec<String>,
    /// Claims that cannot be true of the same machine and path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradicts: Vec<String>,
}

impl Known {
    /// True if the claim confirms, sharpens and contradicts none.
    pub fn is_new(&self) -> bool {
        self.all().next().is_none()
    }

    /// Every claim that it is related to.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.confirms.iter().chain(&self.sharpens).chain(&self.contradicts)
    }
}

/// A set of machines. An empty list matches every machine; a machine matches by its family or by
/// its chip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Applies {
    /// Paths to the engine; empty for statements about the compiler or the hardware.
    pub paths: Vec<String>,
    /// Compiler families, such as `h13`.
    pub families: Vec<String>,
    /// Chips, such as `m4-pro`.
    pub chips: Vec<String>,
    /// System versions, possibly with minor versions; a machine is matched by the major one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oses: Option<Versions>,
}

/// A set of machines in the words of the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// The path: one of ours, `hwx` (compiled programs and hardware) or `any`.
    pub path: String,
    /// The chip or family as the source spells it.
    pub chip: String,
    /// The system version as the source spells it.
    pub os: String,
}

/// How a statement was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Evidence {
    /// Observed on a device.
    Measured,
    /// Read from compiled programs or from the compiler.
    Decompiled,
    /// Read from published source code.
    Code,
    /// Stated without a measurement.
    Claimed,
}

/// The consequence for a program that ignores a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ClaimEffect {
    /// The compiler refuses the program.
    #[serde(rename = "compile")]
    Compile,
    /// Every evaluation of the program fails.
    #[serde(rename = "eval")]
    Evaluation,
    /// Results are wrong without an error.
    #[serde(rename = "silent")]
    Silent,
    /// The program is slow.
    #[serde(rename = "perf")]
    Performance,
}

impl std::fmt::Display for Known {
    /// `confirms C026; contradicts C125`, or `new`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = [("confirms", &self.confirms), ("sharpens", &self.sharpens), ("contradicts", &self.contradicts)];
        let listed = kinds.into_iter().filter(|(_, ids)| !ids.is_empty());
        let listed: Vec<String> = listed.map(|(kind, ids)| format!("{kind} {}", ids.join(", "))).collect();
        f.write_str(if listed.is_empty() { "new" } else { "" })?;
        f.write_str(&listed.join("; "))
    }
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Evidence::Measured => "measured",
            Evidence::Decompiled => "decompiled",
            Evidence::Code => "code",
            Evidence::Claimed => "claimed",
        })
    }
}

impl std::fmt::Display for ClaimEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ClaimEffect::Compile => "compile",
            ClaimEffect::Evaluation => "eval",
            ClaimEffect::Silent => "silent",
            ClaimEffect::Performance => "perf",
        })
    }
}

impl Claim {
    /// True if the claim is about this machine.
    pub fn applies_to(&self, subject: &Subject) -> bool {
        let Applies { paths, families, chips, oses } = &self.applies;
        let path = paths.is_empty() || paths.contains(&subject.path);
        let machine = (families.is_empty() && chips.is_empty())
            || families.contains(&subject.family)
            || chips.contains(&subject.chip);
        let system = oses.is_none_or(|v| subject.os_major().is_some_and(|major| v.hold(major)));
        path && machine && system
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsFile {
    claim: Vec<Claim>,
}

/// The data files, in the order of the list.
const FILES: [&str; 10] = [
    include_str!("../../data/claims/program.toml"),
    include_str!("../../data/claims/limits.toml"),
    include_str!("../../data/claims/ops.toml"),
    include_str!("../../data/claims/types.toml"),
    include_str!("../../data/claims/surfaces.toml"),
    include_str!("../../data/claims/runtime.toml"),
    include_str!("../../data/claims/numerics.toml"),
    include_str!("../../data/claims/performance.toml"),
    include_str!("../../data/claims/further.toml"),
    include_str!("../../data/claims/apple.toml"),
];

// The data are embedded and a test reads them, so parsing succeeds.
static CLAIMS: LazyLock<Vec<Claim>> =
    LazyLock::new(|| FILES.iter().flat_map(|text| read(text).unwrap_or_default()).collect());

fn read(text: &str) -> Result<Vec<Claim>, toml::de::Error> {
    toml::from_str(text).map(|file: ClaimsFile| file.claim)
}

/// Every claim, in the order of subject groups and ids.
pub fn all() -> &'static [Claim] {
    &CLAIMS
}

/// The claim with this id, if there is one.
pub fn find(id: &str) -> Option<&'static Claim> {
    all().iter().find(|c| c.id == id)
}

/// The claims about a subject and its parts: `op` includes `op.concat`, but `op.conv` does not
/// include `op.conv_bias`.
pub fn about(subject: &str) -> impl Iterator<Item = &'static Claim> + '_ {
    let inside = move |c: &&Claim| c.subject.strip_prefix(subject).is_some_and(|r| r.is_empty() || r.starts_with('.'));
    all().iter().filter(inside)
}

/// Claims that no value, rule or model uses, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmodeled {
    /// The ids of the claims that share the reason.
    pub claims: Vec<String>,
    /// Why nothing uses them.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnmodeledFile {
    unmodeled: Vec<Unmodeled>,
}

static UNMODELED: LazyLock<Vec<Unmodeled>> = LazyLock::new(|| {
    let text = include_str!("../../data/unmodeled.toml");
    toml::from_str(text).map(|r: UnmodeledFile| r.unmodeled).unwrap_or_default()
});

/// All claims that nothing uses, grouped by reason.
pub fn unmodeled() -> &'static [Unmodeled] {
    &UNMODELED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{chips, paths};

    #[test]
    fn the_files_are_read_whole() {
        for text in FILES {
            assert!(!read(text).unwrap_or_else(|e| panic!("{e}")).is_empty());
        }
        let text = include_str!("../../data/unmodeled.toml");
        toml::from_str::<UnmodeledFile>(text).unwrap_or_else(|e| panic!("{e}"));
        assert!(!unmodeled().is_empty());
    }

    #[test]
    fn ids_are_unique_and_machines_are_known() {
        let mut ids: Vec<&str> = all().iter().map(|c| c.id.as_str()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for claim in all() {
            let Applies { paths: path, families, chips: chip, oses } = &claim.applies;
            assert!(path.iter().all(|p| paths().contains(p)), "{}", claim.id);
            assert!(families.iter().all(|f| chips().iter().any(|c| c.family == *f)), "{}", claim.id);
            assert!(chip.iter().all(|n| chips().iter().any(|c| c.name == *n)), "{}", claim.id);
            assert!(oses.is_none_or(|v| v.from <= v.to), "{}", claim.id);
            assert!(!claim.statement.is_empty() && !claim.source.is_empty(), "{}", claim.id);
            assert!(claim.known.all().all(|id| *id != claim.id && find(id).is_some()), "{}", claim.id);
        }
    }

    #[test]
    fn a_claim_knows_its_machines() {
        let applies = |id: &str, machine: &str| find(id).unwrap().applies_to(&Subject::parse(machine).unwrap());
        // Only M4 Max with macOS 15 in memory.
        assert!(applies("C041", "m4-max-macos15-inmem"));
        for other in ["m4-macos15-inmem", "m4-max-macos26-inmem", "m4-max-macos15-e5rt"] {
            assert!(!applies("C041", other), "{other}");
        }
        // The guide means a family when it writes "M1".
        assert!(applies("C062", "m1-ultra-macos15-e5rt") && !applies("C062", "m2-macos15-e5rt"));
        // A minor version belongs to its system.
        assert!(applies("C010", "m5-macos26-client") && !applies("C010", "m5-macos27-client"));
        assert!(applies("C154", "m4-macos26-inmem") && !applies("C154", "m4-macos27-inmem"));
    }

    #[test]
    fn subjects_nest() {
        assert!(about("op.conv").all(|c| c.subject == "op.conv"));
        assert!(about("op").count() > 80 && about("op.concat").count() == 5);
        assert_eq!(about("op.con").count(), 0);
    }
}
