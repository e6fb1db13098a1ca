//! What was there before the rule: numbers that may fall and never rise.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::workspace::{self, Result};

/// The file, relative to the root.
pub(super) const PATH: &str = "crates/xtask/ratchet.toml";

const HEAD: &str = "\
# What `cargo xtask names` allows beyond its rules, because it was there before them: type names with the number of crates
# that define them, and functions with the lines of their bodies. A number may fall and never rise; `--tighten` lowers them.
";

/// The contents of the file. A missing file allows nothing.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratchet {
    /// Type names and the crates that may define them.
    #[serde(default, rename = "shared-names")]
    pub(super) names: BTreeMap<String, usize>,
    /// Functions, as "FILE NAME", and the lines that they may have.
    #[serde(default, rename = "long-functions")]
    pub(super) functions: BTreeMap<String, usize>,
}

impl Ratchet {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join(PATH);
        if !path.is_file() {
            return Ok(Self::default());
        }
        toml::from_str(&workspace::read(&path)?).map_err(|e| format!("{PATH}: {e}"))
    }

    /// Lowers each number to what is there now, and removes what is there no longer.
    pub(super) fn tighten(&mut self, names: &BTreeMap<String, usize>, functions: &BTreeMap<String, usize>) {
        for (allowed, found) in [(&mut self.names, names), (&mut self.functions, functions)] {
            allowed.retain(|key, number| {
                let Some(found) = found.get(key) else { return false };
                *number = (*number).min(*found);
                true
            });
        }
    }

    /// What tightening would change, one line each.
    pub(super) fn slack(&self, names: &BTreeMap<String, usize>, functions: &BTreeMap<String, usize>) -> Vec<String> {
        let mut lines = Vec::new();
        for (allowed, found) in [(&self.names, names), (&self.functions, functions)] {
            for (key, number) in allowed {
                match found.get(key) {
                    None => lines.push(format!("`{key}` is no longer needed")),
                    Some(found) if found < number => lines.push(format!("`{key}` is {found} and may be {number}")),
                    Some(_) => {}
                }
            }
        }
        lines
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        workspace::write(&root.join(PATH), &self.text())
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (heading, numbers) in [("shared-names", &self.names), ("long-functions", &self.functions)] {
            text += &format!("\n[{heading}]\n");
            for (key, number) in numbers {
                let bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let key = if bare { key.clone() } else { format!("\"{key}\"") };
                text += &format!("{key} = {number}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
        pairs.iter().map(|(key, number)| ((*key).to_owned(), *number)).collect()
    }

    #[test]
    fn tightening_lowers_and_removes_and_never_adds() {
        let names = numbers(&[("Kind", 9), ("Place", 4), ("Gone", 5)]);
        let functions = numbers(&[("crates/a/src/b.rs f", 120)]);
        let mut ratchet = Ratchet { names, functions };
        let now = (numbers(&[("Kind", 7), ("Place", 6), ("New", 4)]), numbers(&[("crates/a/src/b.rs f", 120)]));
        assert_eq!(ratchet.slack(&now.0, &now.1), ["`Gone` is no longer needed", "`Kind` is 7 and may be 9"]);
        ratchet.tighten(&now.0, &now.1);
        assert_eq!(ratchet.names, numbers(&[("Kind", 7), ("Place", 4)]));
        assert_eq!(ratchet.functions.len(), 1);
        assert!(ratchet.slack(&now.0, &now.1).is_empty());
    }

    #[test]
    fn what_is_written_is_read() {
        let ratchet = Ratchet { names: numbers(&[("Kind", 7)]), functions: numbers(&[("a/b.rs S::f", 101)]) };
        assert_eq!(toml::from_str::<Ratchet>(&ratchet.text()).unwrap(), ratchet);
    }
}
