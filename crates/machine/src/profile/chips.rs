//! Chips, systems and paths, and their spelling in a profile's name: `CHIP-OS-PATH`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A chip. Names as in apple-runtime §13.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// The name, such as `m1` or `m4-pro`.
    pub name: String,
    /// The compiler family, from `h13` to `h17`.
    pub family: String,
    /// The compiler's name for this member of the family, such as `h13g`.
    pub variant: String,
    /// Chips of the A series in the same family.
    pub matches: Vec<String>,
    /// The oldest supported system that runs on it.
    pub first_os: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChipsFile {
    oses: Vec<String>,
    paths: Vec<String>,
    path_first_os: BTreeMap<String, String>,
    default_os: String,
    default_path: String,
    chip: Vec<Chip>,
}

static TABLE: LazyLock<ChipsFile> = LazyLock::new(|| {
    // The data are embedded and a test reads them, so parsing succeeds.
    toml::from_str(include_str!("../../data/chips.toml")).unwrap_or_else(|_| ChipsFile {
        oses: Vec::new(),
        paths: Vec::new(),
        path_first_os: BTreeMap::new(),
        default_os: String::new(),
        default_path: String::new(),
        chip: Vec::new(),
    })
});

/// Every chip, oldest first.
pub fn chips() -> &'static [Chip] {
    &TABLE.chip
}

/// Every operating system, oldest first, from `macos14` on.
pub fn systems() -> &'static [String] {
    &TABLE.oses
}

/// Every path to the engine.
pub fn paths() -> &'static [String] {
    &TABLE.paths
}

/// A machine: what overlays and claims are matched against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The name of the profile, such as `m4-macos15-inmem`.
    pub name: String,
    /// The compiler family, from `h13` to `h17`.
    pub family: String,
    /// The compiler's name for the member of the family, such as `h13g`.
    pub variant: String,
    /// The chip, such as `m1` or `m4-pro`.
    pub chip: String,
    /// The operating system, such as `macos15`.
    pub os: String,
    /// The path to the engine: `inmem`, `client`, `e5rt`, `coreml` or `coreai`.
    pub path: String,
}

impl Subject {
    fn of(chip: &Chip, os: &str, path: &str) -> Subject {
        Subject {
            name: format!("{}-{os}-{path}", chip.name),
            family: chip.family.clone(),
            variant: chip.variant.clone(),
            chip: chip.name.clone(),
            os: os.to_string(),
            path: path.to_string(),
        }
    }

    /// Parses a name such as `m4-macos15-inmem`. An omitted system or path is the default (`m4` is
    /// `m4-macos15-inmem`); for a chip or a path that is newer than the default system it is the
    /// first one that has both. `None` for any other text, and for a system that is older than the
    /// chip or the path.
    pub fn parse(name: &str) -> Option<Subject> {
        let (rest, path) = ending(name, &TABLE.paths);
        let (rest, os) = ending(rest, &TABLE.oses);
        let chip = TABLE.chip.iter().find(|c| c.name == rest)?;
        let path = path.unwrap_or(&TABLE.default_path);
        let first = first_system(chip, path)?;
        let os = match os {
            Some(os) if place(os)? < first => return None,
            Some(os) => os,
            None => TABLE.oses.get(place(&TABLE.default_os)?.max(first))?,
        };
        Some(Subject::of(chip, os, path))
    }

    /// Every machine that has a profile.
    pub fn all() -> Vec<Subject> {
        let mut all = Vec::new();
        for chip in &TABLE.chip {
            for (i, os) in TABLE.oses.iter().enumerate() {
                let has = |path: &&String| first_system(chip, path).is_some_and(|first| first <= i);
                all.extend(TABLE.paths.iter().filter(has).map(|path| Subject::of(chip, os, path)));
            }
        }
        all
    }

    /// The framework through which the path reaches the engine, for messages.
    pub(crate) fn framework(&self) -> &'static str {
        if self.path == "coreai" { "Core AI" } else { "Core ML" }
    }

    /// The number of the family: 13 for `h13`.
    pub fn generation(&self) -> u32 {
        self.family.strip_prefix('h').and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// The major version of the system: 15 for `macos15`.
    pub fn os_major(&self) -> Option<u32> {
        self.os.strip_prefix("macos")?.parse().ok()
    }

    pub(super) fn field(&self, key: &str) -> Option<&str> {
        Some(match key {
            "name" => &self.name,
            "family" => &self.family,
            "variant" => &self.variant,
            "chip" => &self.chip,
            "os" => &self.os,
            "path" => &self.path,
            _ => return None,
        })
    }
}

/// The place of a system in the list.
fn place(os: &str) -> Option<usize> {
    TABLE.oses.iter().position(|o| o == os)
}

/// The place of the oldest system that has both the chip and the path.
fn first_system(chip: &Chip, path: &str) -> Option<usize> {
    let first = place(&chip.first_os)?;
    match TABLE.path_first_os.get(path) {
        Some(os) => Some(first.max(place(os)?)),
        None => Some(first),
    }
}

/// Splits `-WORD` off the end if it is one of the words.
fn ending<'n, 'w>(name: &'n str, words: &'w [String]) -> (&'n str, Option<&'w str>) {
    let cut = |word: &'w String| Some((name.strip_suffix(word.as_str())?.strip_suffix('-')?, Some(word.as_str())));
    words.iter().find_map(cut).unwrap_or((name, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let all = Subject::all();
        assert!(all.len() > 200);
        for subject in all {
            assert_eq!(Subject::parse(&subject.name).as_ref(), Some(&subject));
        }
    }

    #[test]
    fn short_names_mean_the_default() {
        let name = |s: &str| Subject::parse(s).map(|s| s.name);
        assert_eq!(name("m4").as_deref(), Some("m4-macos15-inmem"));
        assert_eq!(name("m4-pro-e5rt").as_deref(), Some("m4-pro-macos15-e5rt"));
        assert_eq!(name("m5").as_deref(), Some("m5-macos26-inmem"));
        assert_eq!(name("m1-macos26").as_deref(), Some("m1-macos26-inmem"));
        assert_eq!(name("m4-coreai").as_deref(), Some("m4-macos27-coreai"));
        for wrong in ["", "m9", "m4-macos26-coreai", "m4-macos14-inmem", "m4-", "m4-inmem-macos15", "inmem"] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
