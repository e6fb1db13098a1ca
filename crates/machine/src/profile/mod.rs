//! Profiles: typed values, each with its evidence, resolved from overlays.
//!
//! An overlay is a TOML table `[[overlay]]` with `match = { … }` and the values that it sets: `set`
//! for the machine and `ops` for single ops. A condition is a word or a list of words that a field
//! of the [`Subject`] may have.
//!
//! The overlay with the most conditions wins. Two overlays with the same number of conditions that
//! set a value differently are an error: the data are ambiguous, and a person must decide. Overlays
//! of a user's file take precedence over all built-in ones, and so do the values of a measurement
//! report ([`Profile::report`]).

mod chips;
mod citations;
mod declared;
mod report;
mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use chips::{Chip, Subject, chips, paths, systems};
pub use citations::{Citation, citations, plain};
pub use declared::Profile;
use declared::Values;
pub use report::{FORMAT as REPORT_FORMAT, VERSION as REPORT_VERSION};
pub use values::{
    Acceptance, AcceptedDialect, Accumulator, AttnMask, GeluTable, Limit, PortOrder, RoundOp, Rounding, SigmoidTable,
    SliceCrop, Subnormals, SumWidth, WeightRoute,
};

/// A value of a profile with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sourced<T> {
    /// The value that the machine is assumed to have.
    pub value: T,
    /// The ids of the claims that it rests on.
    pub claims: Vec<String>,
    /// The claims that it overrules, each with the reason.
    pub overrules: BTreeMap<String, String>,
}

/// One value of a profile in generic form, for lists and for checks of the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileEntry {
    /// The name; `op.NAME` for the value of an op.
    pub name: String,
    /// The meaning of the value.
    pub doc: String,
    /// The value as JSON.
    pub value: serde_json::Value,
    /// The ids of the claims that it rests on.
    pub claims: Vec<String>,
    /// The claims that it overrules, each with the reason.
    pub overrules: BTreeMap<String, String>,
}

impl ProfileEntry {
    fn new<T: Serialize>(name: &str, doc: &str, given: &Sourced<T>) -> ProfileEntry {
        ProfileEntry {
            name: name.to_string(),
            doc: doc.trim().to_string(),
            value: serde_json::to_value(&given.value).unwrap_or_default(),
            claims: given.claims.clone(),
            overrules: given.overrules.clone(),
        }
    }

    fn given<T: Serialize + Clone>(name: &str, doc: &str, given: &Given<T>) -> ProfileEntry {
        ProfileEntry::new(name, doc, &given.sourced())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as `{ value = 15 }`, which may have `claims` and `overrules`")]
struct Given<T> {
    value: T,
    #[serde(default)]
    claims: Vec<String>,
    #[serde(default)]
    overrules: BTreeMap<String, String>,
}

impl<T: Clone> Given<T> {
    fn sourced(&self) -> Sourced<T> {
        Sourced { value: self.value.clone(), claims: self.claims.clone(), overrules: self.overrules.clone() }
    }
}

/// The words of a condition; one of them must match.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Any(Vec<String>),
}

impl Words {
    fn fit(&self, found: &str) -> bool {
        match self {
            Words::One(word) => word == found,
            Words::Any(words) => words.iter().any(|w| w == found),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overlay {
    #[serde(default)]
    r#match: BTreeMap<String, Words>,
    #[serde(default)]
    set: Values,
    #[serde(default)]
    ops: BTreeMap<String, Given<Acceptance>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    overlay: Vec<Overlay>,
}

/// Why a profile could not be resolved.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not TOML of this form.
    #[error("profile file: {0}")]
    Syntax(String),
    /// There is no profile with this name.
    #[error(
        "no profile `{name}`{hint}; a profile is CHIP-OS-PATH, chips are {chips}, systems {systems}, paths {paths}"
    )]
    Unknown {
        /// The name that was looked up.
        name: String,
        /// The nearest name, as `, did you mean …?`; empty if none is near.
        hint: String,
        /// The known chips, separated by commas.
        chips: String,
        /// The known systems, separated by commas.
        systems: String,
        /// The known paths, separated by commas.
        paths: String,
    },
    /// No overlay sets a value.
    #[error("profile `{profile}`: no overlay sets `{value}`")]
    Missing {
        /// The name of the profile.
        profile: String,
        /// The name of the value.
        value: String,
    },
    /// Two equally specific overlays disagree.
    #[error("profile `{profile}`: two overlays of the same specificity set `{value}` differently")]
    Tie {
        /// The name of the profile.
        profile: String,
        /// The name of the value.
        value: String,
    },
    /// The text is not a measurement report, or has a value that no profile has.
    #[error("report: {0}")]
    Report(String),
    /// A condition names a field that a subject does not have.
    #[error("unknown overlay condition `{0}`; conditions are family, variant, chip, os, path, name")]
    Condition(String),
}

/// The precedence of an overlay: the file (built-in, user's), then the number of conditions.
type Rank = (usize, usize);

fn pick<T: Clone + PartialEq>(
    subject: &Subject,
    value: &str,
    overlays: &[(Rank, &Overlay)],
    get: impl Fn(&Overlay) -> Option<&Given<T>>,
) -> Result<Sourced<T>, ProfileError> {
    let set = || overlays.iter().filter_map(|(rank, o)| get(o).map(|given| (*rank, given)));
    let missing = || ProfileError::Missing { profile: subject.name.clone(), value: value.to_string() };
    let most = set().map(|(rank, _)| rank).max().ok_or_else(missing)?;
    let mut best = set().filter(|(rank, _)| *rank == most).map(|(_, given)| given);
    let given = best.next().ok_or_else(missing)?;
    if best.any(|other| other.value != given.value) {
        return Err(ProfileError::Tie { profile: subject.name.clone(), value: value.to_string() });
    }
    Ok(given.sourced())
}

fn ops(
    subject: &Subject,
    overlays: &[(Rank, &Overlay)],
) -> Result<BTreeMap<String, Sourced<Acceptance>>, ProfileError> {
    let mut names: Vec<&String> = overlays.iter().flat_map(|(_, o)| o.ops.keys()).collect();
    names.sort();
    names.dedup();
    let one = |name: &String| Ok((name.clone(), pick(subject, &format!("op.{name}"), overlays, |o| o.ops.get(name))?));
    names.into_iter().map(one).collect()
}

/// The built-in overlays, in files by subject.
const BUILT_IN: &[&str] = &[
    include_str!("../../data/profiles/text.toml"),
    include_str!("../../data/profiles/limits.toml"),
    include_str!("../../data/profiles/ops.toml"),
    include_str!("../../data/profiles/surfaces.toml"),
    include_str!("../../data/profiles/life.toml"),
    include_str!("../../data/profiles/numerics.toml"),
];

/// The hardest claim about each value, which a strict check reads in addition to a profile.
const STRICT: &str = include_str!("../../data/strict.toml");

static OVERLAYS: LazyLock<Result<Vec<Overlay>, ProfileError>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for text in BUILT_IN {
        all.extend(read(text)?);
    }
    Ok(all)
});

fn read(text: &str) -> Result<Vec<Overlay>, ProfileError> {
    let file: File = toml::from_str(text).map_err(|e| ProfileError::Syntax(e.to_string()))?;
    Ok(file.overlay)
}

fn resolve(subject: &Subject, files: &[&[Overlay]]) -> Result<Profile, ProfileError> {
    let mut matching = Vec::new();
    for (file, overlays) in files.iter().enumerate() {
        for overlay in *overlays {
            let mut all = true;
            for (key, wanted) in &overlay.r#match {
                let found = subject.field(key).ok_or_else(|| ProfileError::Condition(key.clone()))?;
                all &= wanted.fit(found);
            }
            if all {
                matching.push(((file, overlay.r#match.len()), overlay));
            }
        }
    }
    Profile::from_overlays(subject.clone(), &matching)
}

fn subject(name: &str) -> Result<Subject, ProfileError> {
    let words = |words: &[String]| words.join(", ");
    let chips: Vec<String> = chips().iter().map(|c| c.name.clone()).collect();
    Subject::parse(name).ok_or_else(|| ProfileError::Unknown {
        name: name.to_string(),
        hint: ferrane_diag::did_you_mean(name, Profile::names().iter().chain(&chips).map(String::as_str)),
        chips: words(&chips),
        systems: words(systems()),
        paths: words(paths()),
    })
}

impl Profile {
    /// The default machine: an M4 with macOS 15 on the in-memory path.
    pub const DEFAULT: &str = "m4-macos15-inmem";

    /// Resolves a built-in profile. A short name is completed: `m4` is `m4-macos15-inmem`.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        Profile::measured(name, "")
    }

    /// Resolves a profile with additional overlays from a TOML text, such as a user's measurements.
    /// They take precedence over the built-in ones.
    ///
    /// # Errors
    /// An unknown name, invalid syntax, or a tie between overlays.
    pub fn measured(name: &str, text: &str) -> Result<Profile, ProfileError> {
        let built_in = OVERLAYS.as_ref().map_err(ProfileError::clone)?;
        resolve(&subject(name)?, &[built_in, &read(text)?])
    }

    /// The same machine with the hardest claim about each value, from any machine.
    ///
    /// # Errors
    /// Only if the built-in overlays are invalid, which a test excludes.
    pub fn strict(&self) -> Result<Profile, ProfileError> {
        let built_in = OVERLAYS.as_ref().map_err(ProfileError::clone)?;
        resolve(&self.subject, &[built_in, &read(STRICT)?])
    }

    /// The names of all profiles.
    pub fn names() -> Vec<String> {
        Subject::all().into_iter().map(|s| s.name).collect()
    }

    /// The acceptance of an op with its claims; `None` for a native op.
    pub fn op(&self, name: &str) -> Option<&Sourced<Acceptance>> {
        self.ops.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_resolves() {
        let names = Profile::names();
        assert!(names.iter().any(|n| n == Profile::DEFAULT));
        for name in names {
            Profile::named(&name).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn the_more_specific_overlay_wins() {
        let m1 = Profile::named("m1-macos15-inmem").unwrap();
        let m4 = Profile::named("m4-macos15-inmem").unwrap();
        assert_eq!((m1.max_axis.value, m4.max_axis.value), (16384, 65536));
        assert!(!m4.max_axis.claims.is_empty());
    }

    #[test]
    fn a_users_file_stands_above() {
        let text = "[[overlay]]\n[overlay.set]\nmax_axis = { value = 7 }\n[overlay.ops]\nrelu = { value = 'refused' }";
        let profile = Profile::measured("m4", text).unwrap();
        assert_eq!(profile.max_axis.value, 7);
        assert_eq!(profile.op("relu").unwrap().value, Acceptance::Refused);
        assert_eq!(profile.entries().last().map(|e| e.name.starts_with("op.")), Some(true));
    }

    fn of(text: &str) -> Result<Profile, ProfileError> {
        resolve(&Subject::parse("m1").unwrap(), &[&read(text)?])
    }

    #[test]
    fn a_tie_is_an_error() {
        let text = "[[overlay]]\nmatch={family='h13'}\nset={dialect={value='verbose'}}\n\
                    [[overlay]]\nmatch={os=['macos15', 'macos26']}\nset={dialect={value='shorthand'}}\n";
        assert!(matches!(of(text), Err(ProfileError::Tie { value, .. }) if value == "dialect"));
        // A more specific overlay decides at any position in the file; then the other value is the
        // missing one.
        let decided = "[[overlay]]\nmatch={family='h13',os='macos15'}\nset={dialect={value='verbose'}}\n";
        for text in [format!("{text}{decided}"), format!("{decided}{text}")] {
            assert!(matches!(of(&text), Err(ProfileError::Missing { value, .. }) if value == "headers"));
        }
    }

    #[test]
    fn a_missing_value_an_unknown_name_and_a_wrong_condition_are_errors() {
        assert!(matches!(of(""), Err(ProfileError::Missing { .. })));
        let unknown = Profile::named("m4-macos15-inmen").unwrap_err().to_string();
        assert!(unknown.contains("did you mean `m4-macos15-inmem`"), "{unknown}");
        let wrong = "[[overlay]]\nmatch={moon='full'}\n";
        assert!(matches!(of(wrong), Err(ProfileError::Condition(_))));
        assert!(matches!(of("[[overlay]]\nnope=1"), Err(ProfileError::Syntax(_))));
    }
}
