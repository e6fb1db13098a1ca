//! Claims: what somebody found out about the engine, with where it applies and where it comes from.
//!
//! A claim is evidence, not truth. Claims contradict each other, and all are kept: a
//! [`Profile`](crate::Profile) says for one machine which it rests on and which it overrules. Ids
//! that begin with `C` are those of the published list of claims; ids that begin with `F` are ours,
//! for tables and findings of the same sources that values need. Where a claim applies stands
//! twice: as its source words it ([`Stated`]) and in our names ([`Applies`]), because sources spell
//! machines in some forty ways, and one means the whole family H13 by "M1".

mod version;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::profile::Subject;

pub use version::{Version, Versions, VersionsError};

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// `C001` … of the published list, `F001` … of our own.
    pub id: String,
    /// What it is about, from the general to the particular: `op.concat`.
    pub subject: String,
    /// What was found.
    pub statement: String,
    /// The machines it is about, in our names.
    pub applies: Applies,
    /// The machines it is about, as the source words them.
    pub stated: Stated,
    /// Who found it.
    pub source: String,
    /// How it was found.
    pub evidence: Evidence,
    /// What happens to a program that does not heed it.
    pub effect: ClaimEffect,
}

/// Machines. An empty list holds every one; a machine is in it by its family or by its chip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Applies {
    /// Paths to the engine; empty for what is a matter of compiler or hardware.
    pub paths: Vec<String>,
    /// Compiler families.
    pub families: Vec<String>,
    /// Chips.
    pub chips: Vec<String>,
    /// Systems, with minor versions; a machine is known by the major one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oses: Option<Versions>,
}

/// Machines, as the source words them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// Path: one of ours, `hwx` (compiled programs and hardware) or `any`.
    pub path: String,
    /// Chip.
    pub chip: String,
    /// System.
    pub os: String,
}

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Evidence {
    /// Seen on a device.
    Measured,
    /// Read out of compiled programs, or of the compiler.
    Decompiled,
    /// Read in published source code.
    Code,
    /// Said without a measurement.
    Claimed,
}

/// What happens to a program that does not heed a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ClaimEffect {
    /// The compiler refuses it.
    #[serde(rename = "compile")]
    Compile,
    /// Every evaluation fails.
    #[serde(rename = "eval")]
    Evaluation,
    /// Its results are wrong, without an error.
    #[serde(rename = "silent")]
    Silent,
    /// It is slow.
    #[serde(rename = "perf")]
    Performance,
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

/// The files, in the order in which claims are listed.
const FILES: [&str; 9] = [
    include_str!("../../data/claims/program.toml"),
    include_str!("../../data/claims/limits.toml"),
    include_str!("../../data/claims/ops.toml"),
    include_str!("../../data/claims/types.toml"),
    include_str!("../../data/claims/surfaces.toml"),
    include_str!("../../data/claims/runtime.toml"),
    include_str!("../../data/claims/numerics.toml"),
    include_str!("../../data/claims/performance.toml"),
    include_str!("../../data/claims/further.toml"),
];

// Embedded, and read by a test.
static CLAIMS: LazyLock<Vec<Claim>> =
    LazyLock::new(|| FILES.iter().flat_map(|text| read(text).unwrap_or_default()).collect());

fn read(text: &str) -> Result<Vec<Claim>, toml::de::Error> {
    toml::from_str(text).map(|file: ClaimsFile| file.claim)
}

/// Every claim, by subject group and id.
pub fn all() -> &'static [Claim] {
    &CLAIMS
}

/// The claim of that id.
pub fn find(id: &str) -> Option<&'static Claim> {
    all().iter().find(|c| c.id == id)
}

/// The claims about a subject and all it contains: `op` holds `op.concat`, and `op.conv` does not
/// hold `op.conv_bias`.
pub fn about(subject: &str) -> impl Iterator<Item = &'static Claim> + '_ {
    let inside = move |c: &&Claim| c.subject.strip_prefix(subject).is_some_and(|r| r.is_empty() || r.starts_with('.'));
    all().iter().filter(inside)
}

/// A claim that no value, rule or model takes up, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmodeled {
    /// Ids of claims with the same reason.
    pub claims: Vec<String>,
    /// The reason.
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

/// The claims that nothing takes up, with the reason.
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
        }
    }

    #[test]
    fn a_claim_knows_its_machines() {
        let applies = |id: &str, machine: &str| find(id).unwrap().applies_to(&Subject::parse(machine).unwrap());
        // M4 Max under macOS 15 in memory, and nothing else.
        assert!(applies("C041", "m4-max-macos15-inmem"));
        for other in ["m4-macos15-inmem", "m4-max-macos26-inmem", "m4-max-macos15-e5rt"] {
            assert!(!applies("C041", other), "{other}");
        }
        // The guide's "M1" is a family.
        assert!(applies("C062", "m1-ultra-macos15-e5rt") && !applies("C062", "m2-macos15-e5rt"));
        // A minor version is of its system.
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
