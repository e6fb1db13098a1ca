//! Versions of the operating system, as sources write them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version such as `26.5.2`. Omitted parts are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version: 26 of `26.5.2`.
    pub major: u32,
    /// The minor version: 5 of `26.5.2`.
    pub minor: Option<u32>,
    /// The patch version: 2 of `26.5.2`.
    pub patch: Option<u32>,
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        let mut parts = text.split('.').map(|p| p.parse().ok());
        let version = Version { major: parts.next()??, minor: optional(parts.next())?, patch: optional(parts.next())? };
        parts.next().is_none().then_some(version)
    }
}

/// `None` if the part is present but not a number.
fn optional(part: Option<Option<u32>>) -> Option<Option<u32>> {
    match part {
        Some(None) => None,
        Some(number) => Some(number),
        None => Some(None),
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        [self.minor, self.patch].into_iter().flatten().try_for_each(|n| write!(f, ".{n}"))
    }
}

/// An inclusive range of versions, `15-26`, or a single version, `26.5.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Versions {
    /// The first version of the range.
    pub from: Version,
    /// The last version of the range, included.
    pub to: Version,
}

impl Versions {
    /// True if the range includes a system with this major version.
    pub fn hold(&self, major: u32) -> bool {
        (self.from.major..=self.to.major).contains(&major)
    }
}

/// The error for a text that is neither a version nor a range of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither a version nor a range of versions")]
pub struct VersionsError {
    /// The text that was parsed.
    pub text: String,
}

impl TryFrom<String> for Versions {
    type Error = VersionsError;

    fn try_from(text: String) -> Result<Versions, VersionsError> {
        let (from, to) = text.split_once('-').unwrap_or((&text, &text));
        let versions = Version::parse(from).zip(Version::parse(to)).map(|(from, to)| Versions { from, to });
        versions.ok_or(VersionsError { text })
    }
}

impl From<Versions> for String {
    fn from(versions: Versions) -> String {
        versions.to_string()
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{}-{}", self.from, self.to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_written() {
        for text in ["15", "26.5.2", "15-26", "15.0-15.6.1"] {
            assert_eq!(Versions::try_from(text.to_string()).unwrap().to_string(), text);
        }
        for text in ["", "macOS 15", "15-", "1.2.3.4", "15.x"] {
            assert!(Versions::try_from(text.to_string()).is_err(), "{text}");
        }
        let range = Versions::try_from("15.4-26".to_string()).unwrap();
        assert!(range.hold(15) && range.hold(26) && !range.hold(14) && !range.hold(27));
    }
}
