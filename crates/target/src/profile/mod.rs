//! Profiles: typed values, each with its evidence, resolved from overlays.
//!
//! An overlay is a TOML table `[[overlay]]` with `match = { … }` and the values it sets. The conditions are equalities on the
//! [`Subject`]; an overlay with more conditions is more specific and wins. Two overlays of the same specificity that set the same
//! value differently are an error: the data say too little and a person must decide.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A machine: what overlays are matched against. Names as in apple-runtime §13.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Name of the profile, `m4-macos15-inmem` for example.
    pub name: String,
    /// Compiler family: `h13` … `h17`.
    pub family: String,
    /// Chip: `m1`, `m4-pro`, …
    pub chip: String,
    /// Operating system: `macos15`, …
    pub os: String,
    /// Path to the engine: `inmem`, `client`, `e5rt`, `coreml`.
    pub path: String,
}

/// A value with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Ids of the claims it rests on.
    pub claims: Vec<String>,
    /// Claims it overrules, each with the reason.
    pub overrules: BTreeMap<String, String>,
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident : $ty:ty),* $(,)?) => {
        /// What a machine allows. Each value says where it comes from.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct Profile {
            /// The machine.
            pub subject: Subject,
            $($(#[$doc])* pub $name: Sourced<$ty>,)*
        }

        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Values { $($name: Option<Given<$ty>>,)* }

        impl Profile {
            fn from_overlays(subject: Subject, overlays: &[&Overlay]) -> Result<Profile, ProfileError> {
                $(let $name = pick(&subject, stringify!($name), overlays, |v| v.$name.as_ref())?;)*
                Ok(Profile { subject, $($name,)* })
            }
        }
    };
}

values! {
    /// Longest extent of a tensor axis (mil-text §6).
    max_axis: usize,
    /// Highest rank of a tensor (mil-text §6).
    max_rank: usize,
    /// Compiles allowed in one process before the engine fails (apple-runtime §3).
    compile_budget: usize,
    /// Requests that may be in flight at once (apple-runtime §2).
    queue_depth: usize,
    /// Bytes to which the rows of a surface are padded; 1 is packed (apple-runtime §7, §11).
    row_alignment: usize,
    /// Text dialect the compiler accepts: `shorthand` or `verbose` (mil-text §2).
    dialect: String,
    /// True where the blob reader rejects wrong sizes and offsets (weight-blob §4).
    strict_blobs: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given<T> {
    value: T,
    #[serde(default)]
    claims: Vec<String>,
    #[serde(default)]
    overrules: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overlay {
    #[serde(default)]
    r#match: BTreeMap<String, String>,
    #[serde(default)]
    set: Values,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    profile: Vec<Subject>,
    #[serde(default)]
    overlay: Vec<Overlay>,
}

/// Why a profile could not be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not TOML of this form.
    #[error("profile file: {0}")]
    Syntax(String),
    /// No profile of that name.
    #[error("no profile `{name}`; known: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Nothing sets a value.
    #[error("profile `{profile}`: no overlay sets `{value}`")]
    Missing {
        /// The profile.
        profile: String,
        /// The value.
        value: &'static str,
    },
    /// Two equally specific overlays disagree.
    #[error("profile `{profile}`: two overlays of the same specificity set `{value}` differently")]
    Tie {
        /// The profile.
        profile: String,
        /// The value.
        value: &'static str,
    },
    /// A condition names something a subject does not have.
    #[error("overlay condition `{0}` is none of family, chip, os, path, name")]
    Condition(String),
}

impl Subject {
    fn field(&self, key: &str) -> Option<&str> {
        Some(match key {
            "name" => &self.name,
            "family" => &self.family,
            "chip" => &self.chip,
            "os" => &self.os,
            "path" => &self.path,
            _ => return None,
        })
    }
}

fn pick<T: Clone + PartialEq>(
    subject: &Subject,
    value: &'static str,
    overlays: &[&Overlay],
    get: impl Fn(&Values) -> Option<&Given<T>>,
) -> Result<Sourced<T>, ProfileError> {
    let set = || overlays.iter().filter_map(|o| get(&o.set).map(|given| (o.r#match.len(), given)));
    let missing = || ProfileError::Missing { profile: subject.name.clone(), value };
    let most = set().map(|(specificity, _)| specificity).max().ok_or_else(missing)?;
    let mut best = set().filter(|(specificity, _)| *specificity == most).map(|(_, given)| given);
    let given = best.next().ok_or_else(missing)?;
    if best.any(|other| other.value != given.value) {
        return Err(ProfileError::Tie { profile: subject.name.clone(), value });
    }
    Ok(Sourced { value: given.value.clone(), claims: given.claims.clone(), overrules: given.overrules.clone() })
}

/// The profiles that come with the crate.
const BUILT_IN: &str = include_str!("../../data/profiles/base.toml");

impl Profile {
    /// The machine assumed where none is named: an M4 under macOS 15 on the in-memory path.
    pub const DEFAULT: &str = "m4-macos15-inmem";

    /// Resolves a built-in profile.
    ///
    /// # Errors
    /// An unknown name.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        Profile::resolve(BUILT_IN, name)
    }

    /// Names of the built-in profiles.
    pub fn names() -> Vec<String> {
        toml::from_str::<File>(BUILT_IN)
            .map_or_else(|_| Vec::new(), |f| f.profile.into_iter().map(|p| p.name).collect())
    }

    /// Resolves `name` from the overlays of a TOML text.
    ///
    /// # Errors
    /// Wrong syntax, an unknown name, a missing value or a tie.
    pub fn resolve(text: &str, name: &str) -> Result<Profile, ProfileError> {
        let file: File = toml::from_str(text).map_err(|e| ProfileError::Syntax(e.to_string()))?;
        let known = || file.profile.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        let subject = file
            .profile
            .iter()
            .find(|p| p.name == name)
            .ok_or_else(|| ProfileError::Unknown { name: name.to_string(), known: known() })?;
        let mut matching = Vec::new();
        for overlay in &file.overlay {
            let mut all = true;
            for (key, wanted) in &overlay.r#match {
                let found = subject.field(key).ok_or_else(|| ProfileError::Condition(key.clone()))?;
                all &= found == wanted;
            }
            if all {
                matching.push(overlay);
            }
        }
        Profile::from_overlays(subject.clone(), &matching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_resolves() {
        let names = Profile::names();
        assert!(names.iter().any(|n| n == Profile::DEFAULT));
        for name in names {
            Profile::named(&name).unwrap();
        }
    }

    #[test]
    fn the_more_specific_overlay_wins() {
        let m1 = Profile::named("m1-macos15-inmem").unwrap();
        let m4 = Profile::named("m4-macos15-inmem").unwrap();
        assert_eq!((m1.max_axis.value, m4.max_axis.value), (16384, 65536));
        assert!(!m4.max_axis.claims.is_empty());
    }

    const BASE: &str = "[[profile]]\nname='a'\nfamily='h13'\nchip='m1'\nos='macos15'\npath='inmem'\n";

    #[test]
    fn a_tie_is_an_error() {
        let text = format!(
            "{BASE}[[overlay]]\nmatch={{family='h13'}}\nset={{max_axis={{value=1}}}}\n[[overlay]]\nmatch={{os='macos15'}}\nset={{max_axis={{value=2}}}}\n"
        );
        assert!(matches!(Profile::resolve(&text, "a"), Err(ProfileError::Tie { value: "max_axis", .. })));
        // One that is more specific decides, wherever it stands: then another value is the missing one.
        let decided = "[[overlay]]\nmatch={family='h13',os='macos15'}\nset={max_axis={value=3}}\n";
        let before = format!("{BASE}{decided}{}", &text[BASE.len()..]);
        for text in [format!("{text}{decided}"), before] {
            assert!(matches!(Profile::resolve(&text, "a"), Err(ProfileError::Missing { value: "max_rank", .. })));
        }
    }

    #[test]
    fn a_missing_value_an_unknown_name_and_a_wrong_condition_are_errors() {
        assert!(matches!(Profile::resolve(BASE, "a"), Err(ProfileError::Missing { .. })));
        let unknown = Profile::resolve(BASE, "b").unwrap_err().to_string();
        assert!(unknown.contains("known: a"), "{unknown}");
        let wrong = format!("{BASE}[[overlay]]\nmatch={{moon='full'}}\n");
        assert!(matches!(Profile::resolve(&wrong, "a"), Err(ProfileError::Condition(_))));
        assert!(matches!(Profile::resolve("[[overlay]]\nnope=1", "a"), Err(ProfileError::Syntax(_))));
    }
}
