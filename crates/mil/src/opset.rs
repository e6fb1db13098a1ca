//! Opsets: versions of the set of ops, and the tags by which programs name them.

use std::fmt;
use std::str::FromStr;

use crate::error::MilError;

/// A version of the set of ops: 18 for `ios18`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opset(pub u16);

/// Opsets with their names in a model package (coreml-containers §2; coremltools 9.0).
const CORE_ML: [(Opset, &str); 5] = [
    (Opset::IOS15, "CoreML5"),
    (Opset::IOS16, "CoreML6"),
    (Opset::IOS17, "CoreML7"),
    (Opset::IOS18, "CoreML8"),
    (Opset(26), "CoreML9"),
];

impl Opset {
    /// iOS 15, macOS 12.
    pub const IOS15: Opset = Opset(15);
    /// iOS 16, macOS 13.
    pub const IOS16: Opset = Opset(16);
    /// iOS 17, macOS 14.
    pub const IOS17: Opset = Opset(17);
    /// iOS 18, macOS 15.
    pub const IOS18: Opset = Opset(18);

    /// The opsets in which the registry has ops of their own, oldest first.
    pub const ALL: [Opset; 4] = [Opset::IOS15, Opset::IOS16, Opset::IOS17, Opset::IOS18];

    /// Reads `ios18`. `None` for anything that is not `ios` and a number of at least 13.
    pub fn from_name(name: &str) -> Option<Opset> {
        let digits = name.strip_prefix("ios")?;
        let plain = digits.starts_with(|c: char| c.is_ascii_digit() && c != '0');
        digits.parse().ok().filter(|&n| plain && n >= 13).map(Opset)
    }

    /// The name in a model package: `CoreML8`.
    pub fn core_ml_name(self) -> Option<&'static str> {
        CORE_ML.iter().find(|(opset, _)| *opset == self).map(|(_, name)| *name)
    }

    /// Reads `CoreML8`.
    pub fn from_core_ml_name(name: &str) -> Option<Opset> {
        CORE_ML.iter().find(|(_, n)| *n == name).map(|(opset, _)| *opset)
    }
}

/// Parses `ios18`.
impl FromStr for Opset {
    type Err = MilError;

    /// # Errors
    /// [`MilError::UnknownOpset`], with the opset that may be meant.
    fn from_str(name: &str) -> Result<Opset, MilError> {
        OpsetTag::from(name).require()
    }
}

/// As in text: `ios18`.
impl fmt::Display for Opset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ios{}", self.0)
    }
}

/// The opset that a function's body names.
///
/// A tag that names no opset keeps its text, so that a program from a newer tool is read, printed
/// and written as it is. Its ops are not checked, and no op can be added to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpsetTag {
    /// `ios` and a number.
    Known(Opset),
    /// Any other tag, as written.
    Unknown(String),
}

impl OpsetTag {
    /// The tag of a function without a body.
    pub(crate) const NONE: &'static OpsetTag = &OpsetTag::Unknown(String::new());

    /// The opset, if the tag names one.
    pub fn known(&self) -> Option<Opset> {
        match self {
            OpsetTag::Known(opset) => Some(*opset),
            OpsetTag::Unknown(_) => None,
        }
    }

    /// The opset.
    ///
    /// # Errors
    /// [`MilError::UnknownOpset`] if the tag names none.
    pub fn require(&self) -> Result<Opset, MilError> {
        self.known().ok_or_else(|| MilError::UnknownOpset {
            opset: self.to_string(),
            suggestion: suggestion(&self.to_string()),
        })
    }
}

/// The opset that an unknown tag may mean: one that is spelled as in a package, or with a similar
/// name.
pub(crate) fn suggestion(tag: &str) -> Option<String> {
    let meant = Opset::ALL.into_iter().find(|opset| opset.core_ml_name() == Some(tag));
    let names: Vec<String> = Opset::ALL.iter().map(Opset::to_string).collect();
    let near = || ferrane_diag::nearest(&tag.to_lowercase(), names.iter().map(String::as_str)).map(str::to_string);
    meant.map(|opset| opset.to_string()).or_else(near)
}

impl fmt::Display for OpsetTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpsetTag::Known(opset) => opset.fmt(f),
            OpsetTag::Unknown(text) => f.write_str(text),
        }
    }
}

impl From<Opset> for OpsetTag {
    fn from(opset: Opset) -> OpsetTag {
        OpsetTag::Known(opset)
    }
}

/// Reads a tag as text spells it.
impl From<&str> for OpsetTag {
    fn from(text: &str) -> OpsetTag {
        Opset::from_name(text).map_or_else(|| OpsetTag::Unknown(text.to_string()), OpsetTag::Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_print_as_they_were_written() {
        for tag in ["ios15", "ios18", "ios26", "ios018", "ios12", "CoreML8", "ios", "ios+18", ""] {
            assert_eq!(OpsetTag::from(tag).to_string(), tag);
        }
        assert_eq!(OpsetTag::from("ios26"), OpsetTag::Known(Opset(26)));
        assert_eq!(OpsetTag::from("ios018").known(), None);
    }

    #[test]
    fn a_misspelled_opset_is_refused_where_it_is_parsed() {
        assert_eq!("ios18".parse(), Ok(Opset::IOS18));
        let error = "iso18".parse::<Opset>().expect_err("no opset");
        assert_eq!(
            error.to_string(),
            "no opset `iso18` (did you mean `ios18`?); the opsets are ios15, ios16, ios17 and ios18"
        );
    }

    #[test]
    fn an_unknown_tag_names_the_opset_it_may_mean() {
        for (tag, near) in [("iso18", "`ios18`"), ("CoreML7", "`ios17`"), ("IOS16", "`ios16`")] {
            let message = OpsetTag::from(tag).require().expect_err(tag).to_string();
            assert!(message.contains(tag) && message.contains(&format!("did you mean {near}")), "{message}");
        }
    }
}
