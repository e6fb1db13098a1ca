//! `cargo xtask version`: the version of every crate, and the changelog's heading for it.

use std::path::Path;
use std::process::Command;

use crate::arguments::Arguments;
use crate::workspace::{self, Result};

const USAGE: &str = "\
usage: cargo xtask version VERSION DATE

Writes VERSION into Cargo.toml, for the crates and for what they ask of one another, and into Cargo.lock; makes a section of
that version and DATE (2027-01-31) in CHANGELOG.md from what is unreleased. docs/release.md has the steps of a release.";

/// The section that changes are written into.
const UNRELEASED: &str = "## Unreleased\n";

/// `cargo xtask version --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &[], &[], USAGE)?;
    let [version, date] = arguments.positional.as_slice() else { return Err(USAGE.to_owned()) };
    let root = workspace::root()?;
    write(&root, version, date)?;
    let status =
        Command::new("cargo").current_dir(&root).args(["update", "--workspace", "--offline", "--quiet"]).status();
    let status = status.map_err(|e| format!("`cargo` does not start: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("`cargo update --workspace` fails; Cargo.lock is not written".to_owned())
    }
}

/// Changes the two files. Nothing is written if one of them cannot be changed.
fn write(root: &Path, version: &str, date: &str) -> Result<()> {
    if numbers(version, '.') != Some(3) {
        return Err(format!("`{version}` is not a version such as 0.2.0\n\n{USAGE}"));
    }
    if numbers(date, '-') != Some(3) || date.len() != 10 {
        return Err(format!("`{date}` is not a date such as 2027-01-31\n\n{USAGE}"));
    }
    let (manifest, log) = (root.join("Cargo.toml"), root.join("CHANGELOG.md"));
    let text = workspace::read(&manifest)?;
    let table: toml::Table = text.parse().map_err(|e| format!("Cargo.toml: {e}"))?;
    let package = table.get("workspace").and_then(|w| w.get("package"));
    let old = package.and_then(|p| p.get("version")).and_then(toml::Value::as_str);
    let old = old.ok_or("Cargo.toml names no version of the workspace")?;
    let quoted = format!("version = \"{old}\"");
    // The crates' own version, and the lines of those that others depend on.
    let ours = |line: &str| line == quoted || (line.contains("path = \"crates/") && line.contains(&quoted));
    let lines = text.lines().map(|line| {
        if ours(line) { line.replace(&quoted, &format!("version = \"{version}\"")) } else { line.to_owned() }
    });
    let changed = lines.collect::<Vec<_>>().join("\n") + "\n";
    let changes = workspace::read(&log)?;
    let (before, after) =
        changes.split_once(UNRELEASED).ok_or("CHANGELOG.md has no section `## Unreleased` to make a release of")?;
    if after.split("\n## ").next().is_none_or(|section| section.trim().is_empty()) {
        return Err("CHANGELOG.md has nothing unreleased".to_owned());
    }
    workspace::write(&manifest, &changed)?;
    workspace::write(&log, &format!("{before}{UNRELEASED}\n## {version} ({date})\n{after}"))
}

/// How many numbers the text has between these marks; `None` if a part is not one.
fn numbers(text: &str, mark: char) -> Option<usize> {
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    text.split(mark).all(number).then(|| text.split(mark).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::made_up;

    const MANIFEST: &str = "[workspace.package]\nversion = \"0.1.0\"\n\n[workspace.dependencies]\n\
        a = { path = \"crates/a\", version = \"0.1.0\" }\nb = { version = \"0.1.0\" }\n";

    #[test]
    fn the_versions_of_the_workspace_change_and_no_others() {
        let made = made_up::workspace(&[
            ("Cargo.toml", MANIFEST),
            ("CHANGELOG.md", "# C\n\n## Unreleased\n\n- x\n\n## 0.1.0\n"),
        ]);
        write(made.path(), "0.2.0", "2027-01-31").unwrap();
        let read = |name: &str| workspace::read(&made.path().join(name)).unwrap();
        let manifest = read("Cargo.toml");
        assert_eq!(manifest.matches("0.2.0").count(), 2);
        assert!(manifest.contains("b = { version = \"0.1.0\" }"));
        assert_eq!(read("CHANGELOG.md"), "# C\n\n## Unreleased\n\n## 0.2.0 (2027-01-31)\n\n- x\n\n## 0.1.0\n");
        let error = write(made.path(), "0.3.0", "2027-02-01").unwrap_err();
        assert_eq!(error, "CHANGELOG.md has nothing unreleased");
        assert!(read("Cargo.toml").contains("0.2.0"), "nothing is written");
    }

    #[test]
    fn what_is_no_version_or_no_date_is_refused() {
        let made = made_up::workspace(&[("Cargo.toml", MANIFEST), ("CHANGELOG.md", "## Unreleased\n\n- x\n")]);
        for (version, date) in
            [("0.2", "2027-01-31"), ("v0.2.0", "2027-01-31"), ("0.2.0", "31.1.2027"), ("0.2.", "2027-01-31")]
        {
            assert!(write(made.path(), version, date).unwrap_err().contains("such as"), "{version} {date}");
        }
    }
}
