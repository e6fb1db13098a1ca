//! The floors of the crates: ARCHITECTURE.md's table against each Cargo.toml.
//!
//! A crate depends only on crates of floors below its own. Tests may also use unpublished crates,
//! the crate itself (to turn a feature on), and what a row of the table grants in words:
//! "`ane`'s tests use `emulator`".

use std::collections::BTreeMap;
use std::path::Path;

use crate::markdown::{Page, code_spans};
use crate::report::Finding;
use crate::workspace::{Package, Result, packages};

/// The heading of the table.
pub(super) const HEADING: &str = "The crates";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Floor {
    Number(u32),
    /// Tools and test helpers, above everything; `–` in the table.
    Unpublished,
}

#[derive(Debug, Default)]
struct Floors {
    /// Floor and line of each crate, by its folder.
    of: BTreeMap<String, (Floor, usize)>,
    /// Pairs of crates of which the first one's tests may use the second.
    tests: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DependencyKind {
    Normal,
    Test,
}

/// Compares the dependencies of every crate of the workspace with the table of `page`.
pub(super) fn check(root: &Path, page: &Page) -> Result<Vec<Finding>> {
    let packages = packages(root)?;
    let mut findings = Vec::new();
    let Some(floors) = floors(page, &mut findings) else {
        let remedy = "write the table `| floor | crate | what lives there |` below it";
        return Ok(vec![Finding::new(&page.path, 0, format!("there is no table below \"{HEADING}\""), remedy)]);
    };
    for package in &packages {
        if !floors.of.contains_key(&package.folder) {
            let message = format!("crate `{}` is missing in the table of {}", package.folder, page.path.display());
            findings.push(Finding::new(
                package.path(),
                0,
                message,
                "add it on the lowest floor that its dependencies allow",
            ));
        }
        for (used, kind) in dependencies(package, &packages) {
            findings.extend(objection(package, used, kind, &floors, page));
        }
    }
    for (name, (_, line)) in &floors.of {
        if !packages.iter().any(|p| p.folder == *name) {
            let message = format!("there is no crate `{name}`");
            findings.push(Finding::new(&page.path, *line, message, "remove it from the table"));
        }
    }
    Ok(findings)
}

fn objection(package: &Package, used: &Package, kind: DependencyKind, floors: &Floors, page: &Page) -> Option<Finding> {
    let (own, _) = *floors.of.get(&package.folder)?;
    let (other, _) = *floors.of.get(&used.folder)?;
    let test = kind == DependencyKind::Test;
    let (allowed, place) = match (own, other) {
        (Floor::Unpublished, _) => (true, String::new()),
        (Floor::Number(_), Floor::Unpublished) => (test, "unpublished".to_owned()),
        (Floor::Number(own), Floor::Number(other)) => {
            let granted = floors.tests.iter().any(|(a, b)| *a == package.folder && *b == used.folder);
            let fine = other < own || test && (granted || package.folder == used.folder);
            (fine, format!("floor {other}, and `{}` is on floor {own}", package.folder))
        }
    };
    if allowed {
        return None;
    }
    let (what, grant) = if test {
        ("tests of", format!(", or grant it in the table: \"`{}`'s tests use `{}`\"", package.folder, used.folder))
    } else {
        ("crate", String::new())
    };
    let message = format!("{what} `{}` may not depend on `{}` ({place})", package.folder, used.folder);
    let remedy = format!(
        "a crate depends only on floors below its own: move what is needed down, or change the table in {}{grant}",
        page.path.display()
    );
    Some(Finding::new(package.path(), package.line_of(&used.name), message, remedy))
}

fn floors(page: &Page, findings: &mut Vec<Finding>) -> Option<Floors> {
    let mut floors = Floors::default();
    for row in page.table(HEADING)? {
        let [floor, crates, rest @ ..] = row.cells.as_slice() else { continue };
        let floor = match floor.parse() {
            Ok(number) => Floor::Number(number),
            Err(_) if floor == "–" || floor == "-" => Floor::Unpublished,
            Err(_) => {
                let message = format!("`{floor}` is no floor");
                findings.push(Finding::new(
                    &page.path,
                    row.line,
                    message,
                    "write a number, or – for unpublished crates",
                ));
                continue;
            }
        };
        for name in code_spans(crates) {
            if floors.of.insert(name.to_owned(), (floor, row.line)).is_some() {
                let message = format!("crate `{name}` is in the table twice");
                findings.push(Finding::new(&page.path, row.line, message, "remove one of them"));
            }
        }
        floors.tests.extend(rest.iter().flat_map(|cell| granted(cell)));
    }
    Some(floors)
}

/// What "`a`'s tests use `b` and `c`" grants: (a, b) and (a, c).
fn granted(cell: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut parts = cell.split("`'s tests use ");
    let mut before = parts.next().unwrap_or_default();
    for part in parts {
        let user = before.rsplit('`').next().unwrap_or_default();
        let sentence = part.split([';', '.', ':']).next().unwrap_or_default();
        pairs.extend(code_spans(sentence).into_iter().map(|used| (user.to_owned(), used.to_owned())));
        before = part;
    }
    pairs
}

/// The crates of the workspace that `package` depends on.
fn dependencies<'p>(package: &Package, all: &'p [Package]) -> Vec<(&'p Package, DependencyKind)> {
    let mut found = Vec::new();
    let targets = package.manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets.into_iter().flat_map(|t| t.values().filter_map(toml::Value::as_table));
    let kinds = [
        ("dependencies", DependencyKind::Normal),
        ("build-dependencies", DependencyKind::Normal),
        ("dev-dependencies", DependencyKind::Test),
    ];
    for table in std::iter::once(&package.manifest).chain(tables) {
        for (key, kind) in kinds {
            for (name, value) in table.get(key).and_then(toml::Value::as_table).into_iter().flatten() {
                let name = value.get("package").and_then(toml::Value::as_str).unwrap_or(name);
                found.extend(all.iter().filter(|p| p.name == name).map(|p| (p, kind)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::made_up;

    const PAGE: &str = "\
## The crates

| floor | crate | what lives there |
|---|---|---|
| 0 | `low` | base |
| 1 | `left`, `right` | two; `left`'s tests use `right` |
| – | `tool` (unpublished) | chores |
";

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"ferrane-{name}\"\n{rest}")
    }

    fn findings(page: &str, changed: &str, rest: &str) -> Vec<String> {
        let made = made_up::workspace(&[("ARCHITECTURE.md", page)]);
        for name in ["low", "left", "right", "tool"] {
            let rest = if name == changed { rest } else { "" };
            made_up::add(made.path(), &format!("crates/{name}/Cargo.toml"), &manifest(name, rest));
        }
        let page = Page::read(made.path(), Path::new("ARCHITECTURE.md")).unwrap();
        check(made.path(), &page).unwrap().iter().map(Finding::to_string).collect()
    }

    #[test]
    fn floors_below_tools_in_tests_and_grants_are_allowed() {
        assert_eq!(findings(PAGE, "left", "[dependencies]\nferrane-low.workspace = true\n"), [""; 0]);
        assert_eq!(findings(PAGE, "left", "[dev-dependencies]\nferrane-right.workspace = true\n"), [""; 0]);
        assert_eq!(findings(PAGE, "low", "[dev-dependencies]\nferrane-tool.workspace = true\n"), [""; 0]);
        assert_eq!(findings(PAGE, "low", "[dev-dependencies]\nferrane-low = { path = \".\" }\n"), [""; 0]);
        assert_eq!(findings(PAGE, "tool", "[dependencies]\nferrane-right.workspace = true\n"), [""; 0]);
    }

    #[test]
    fn the_same_floor_and_floors_above_are_forbidden() {
        let cases = [
            ("left", "[dependencies]\nferrane-right.workspace = true\n", "crate `left` may not depend on `right`"),
            ("low", "[build-dependencies]\nferrane-left.workspace = true\n", "crate `low` may not depend on `left`"),
            ("low", "[target.'cfg(unix)'.dependencies]\nx = { package = \"ferrane-left\" }\n", "crate `low` may not"),
            ("low", "[dev-dependencies]\nferrane-left.workspace = true\n", "tests of `low` may not depend on `left`"),
            ("right", "[dev-dependencies]\nferrane-left.workspace = true\n", "tests of `right` may not depend"),
            (
                "low",
                "[dependencies]\nferrane-tool.workspace = true\n",
                "crate `low` may not depend on `tool` (unpublished)",
            ),
        ];
        for (name, rest, wanted) in cases {
            let found = findings(PAGE, name, rest);
            assert_eq!(found.len(), 1, "{rest}: {found:?}");
            assert!(found[0].contains(wanted), "{rest}: {found:?}");
        }
        let found = findings(PAGE, "left", "[dependencies]\nferrane-right.workspace = true\n");
        assert!(found[0].starts_with("crates/left/Cargo.toml:4: "), "{found:?}");
    }

    #[test]
    fn the_table_names_each_crate_once_and_no_other() {
        let found = findings(&PAGE.replace("`left`, ", ""), "", "");
        assert!(found.len() == 1 && found[0].contains("crate `left` is missing in the table"), "{found:?}");
        let found = findings(&PAGE.replace("`low`", "`low`, `gone`"), "", "");
        assert!(found.len() == 1 && found[0].starts_with("ARCHITECTURE.md:5: there is no crate `gone`"), "{found:?}");
        let found = findings(&PAGE.replace("`low`", "`low`, `left`"), "", "");
        assert!(found.len() == 1 && found[0].contains("crate `left` is in the table twice"), "{found:?}");
        assert!(findings("# Empty\n", "", "")[0].contains("there is no table"));
    }

    #[test]
    fn a_row_grants_what_its_words_say() {
        let pairs = granted("backends; `a`'s tests use `b` and `c`; `d`'s tests use `e`. `f`");
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(pairs, [("a", "b"), ("a", "c"), ("d", "e")]);
    }
}
