//! `cargo xtask names`: type names that many crates define, long functions, long files.
//!
//! A type name that more than three crates define must be explained in the glossary, below "Shared
//! type names". What is left from before the rule is data of `ratchet.toml`: a number for each name
//! and each long function, which may fall and never rise.

mod definitions;
mod ratchet;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use self::definitions::Definitions;
use self::ratchet::Ratchet;
use crate::arguments::Arguments;
use crate::markdown::{Page, code_spans};
use crate::report::{Finding, conclude};
use crate::workspace::{self, Result};

const PAGE: &str = "ARCHITECTURE.md";
/// The heading of the glossary's table of names that may be shared.
const HEADING: &str = "Shared type names";
/// More crates than this need an entry in that table.
const CRATES: usize = 3;
/// The longest body of a function, in lines.
const FUNCTION: usize = 100;
/// Longer files are listed.
const FILE: usize = 700;

const USAGE: &str = "\
usage: cargo xtask names [--tighten]

Reads crates/*/src without test code, and
  fails on a type name (struct, enum, union, trait, alias) that more than 3 crates define, unless ARCHITECTURE.md lists it
    below \"Shared type names\";
  fails on a function whose body has more than 100 lines, unless the line before `fn` is the comment `// table`;
  lists files of more than 700 lines.

crates/xtask/ratchet.toml allows what was there before the rule, with a number that may not rise.

options
  --tighten  lower the numbers of ratchet.toml to today's, and remove what is no longer needed";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &["--tighten"], &[], USAGE)?;
    if let Some(extra) = arguments.positional.first() {
        return Err(format!("unexpected argument `{extra}`\n\n{USAGE}"));
    }
    let root = workspace::root()?;
    let definitions = Definitions::read(&root)?;
    let mut ratchet = Ratchet::read(&root)?;
    if arguments.has("--tighten") {
        ratchet.tighten(&shared(&definitions), &long(&definitions));
        ratchet.write(&root)?;
    }
    for (path, lines) in definitions.files.iter().filter(|(_, lines)| *lines > FILE) {
        println!("{}: {lines} lines", path.display());
    }
    for slack in ratchet.slack(&shared(&definitions), &long(&definitions)) {
        println!("{}: {slack}; --tighten writes it", ratchet::PATH);
    }
    conclude("names", findings(&definitions, &ratchet, &Page::read(&root, Path::new(PAGE))?))
}

/// `cargo xtask names --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

/// The names that more than [`CRATES`] crates define, with the number of crates.
fn shared(definitions: &Definitions) -> BTreeMap<String, usize> {
    let counted = definitions.types.iter().map(|(name, places)| {
        let crates: BTreeSet<&str> = places.iter().map(|place| place.package.as_str()).collect();
        (name.clone(), crates.len())
    });
    counted.filter(|(_, crates)| *crates > CRATES).collect()
}

/// The functions of more than [`FUNCTION`] lines that are no tables, with their lines.
fn long(definitions: &Definitions) -> BTreeMap<String, usize> {
    let functions = definitions.functions.iter().filter(|f| f.lines > FUNCTION && !f.table);
    functions.map(|f| (f.key(), f.lines)).collect()
}

fn findings(definitions: &Definitions, ratchet: &Ratchet, page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(rows) = page.table(HEADING) else {
        let message = format!("there is no table below \"{HEADING}\"");
        return vec![Finding::new(&page.path, 0, message, "write `| name | reason |` below that heading")];
    };
    let mut explained = BTreeSet::new();
    for row in &rows {
        let [name, reason, ..] = row.cells.as_slice() else { continue };
        explained.extend(code_spans(name));
        if reason.is_empty() {
            findings.push(Finding::new(&page.path, row.line, format!("{name} has no reason"), "say why it is shared"));
        }
    }
    for (name, crates) in shared(definitions) {
        let allowed = ratchet.names.get(&name).copied().unwrap_or(CRATES);
        if explained.contains(name.as_str()) || crates <= allowed {
            continue;
        }
        let places = &definitions.types[&name];
        let listed: Vec<String> = places.iter().map(|p| format!("{}:{}", p.path.display(), p.line)).collect();
        let message = format!("{crates} crates define `{name}`, and {allowed} may: {}", listed.join(", "));
        let remedy = format!(
            "give it a name that says what it is without its module, or explain it in {PAGE} below \"{HEADING}\""
        );
        findings.push(Finding::new(&places[0].path, places[0].line, message, remedy));
    }
    for function in definitions.functions.iter().filter(|f| f.lines > FUNCTION && !f.table) {
        let allowed = ratchet.functions.get(&function.key()).copied().unwrap_or(FUNCTION);
        if function.lines > allowed {
            let message = format!("`{}` has {} lines, and may have {allowed}", function.name, function.lines);
            let remedy = "split it; if it is a table, write the comment `// table` on the line before `fn`";
            findings.push(Finding::new(&function.path, function.line, message, remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::made_up;

    const GLOSSARY: &str =
        "## Glossary\n\n### Shared type names\n\n| name | reason |\n|---|---|\n| `Error` | idiomatic |\n";

    /// Five crates; each defines `Error` and what `text` adds to the first `n` of them.
    fn check(n: usize, text: &str, ratchet: &str) -> Vec<String> {
        let made = made_up::workspace(&[("ARCHITECTURE.md", GLOSSARY), (ratchet::PATH, ratchet)]);
        for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let manifest = format!("[package]\nname = \"{name}\"\n");
            made_up::add(made.path(), &format!("crates/{name}/Cargo.toml"), &manifest);
            let text = format!("pub enum Error {{}}\n{}", if index < n { text } else { "" });
            made_up::add(made.path(), &format!("crates/{name}/src/lib.rs"), &text);
        }
        let definitions = Definitions::read(made.path()).unwrap();
        let page = Page::read(made.path(), Path::new("ARCHITECTURE.md")).unwrap();
        let found = findings(&definitions, &Ratchet::read(made.path()).unwrap(), &page);
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn three_crates_may_share_a_name_and_explained_names_are_free() {
        assert_eq!(check(3, "struct Kind;", ""), [""; 0]);
    }

    #[test]
    fn a_name_of_four_crates_is_reported_with_its_places() {
        for text in ["struct Kind;", "enum Kind {}", "trait Kind {}", "type Kind = u8;", "fn f() { struct Kind; }"] {
            let found = check(4, text, "");
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains("4 crates define `Kind`, and 3 may: crates/a/src/lib.rs:2, "), "{found:?}");
        }
    }

    #[test]
    fn associated_types_and_test_code_do_not_count() {
        assert_eq!(check(5, "struct S; impl T for S { type Kind = u8; }", "[shared-names]\nS = 5\n"), [""; 0]);
        assert_eq!(check(5, "#[cfg(test)] mod tests { struct Kind; }", ""), [""; 0]);
    }

    #[test]
    fn the_ratchet_allows_its_number_and_no_more() {
        assert_eq!(check(4, "struct Kind;", "[shared-names]\nKind = 4\n"), [""; 0]);
        assert_eq!(check(5, "struct Kind;", "[shared-names]\nKind = 4\n").len(), 1);
    }

    fn body(lines: usize) -> String {
        format!("fn f() {{{}}}", "\n".repeat(lines + 1))
    }

    #[test]
    fn a_long_function_is_reported_unless_it_is_a_table() {
        assert_eq!(check(1, &body(100), ""), [""; 0]);
        let found = check(1, &body(101), "");
        assert!(found.len() == 1 && found[0].starts_with("crates/a/src/lib.rs:2: `f` has 101 lines"), "{found:?}");
        assert_eq!(check(1, &format!("// table\n{}", body(101)), ""), [""; 0]);
        assert_eq!(check(1, &format!("// table\n#[inline]\npub {}", body(101)), ""), [""; 0]);
        assert_eq!(check(1, &format!("#[test]\n{}", body(101)), ""), [""; 0]);
        let method = format!("struct S; impl S {{\n{}\n}}", body(120));
        assert!(check(1, &method, "")[0].contains("`S::f` has 120 lines"));
        assert_eq!(check(1, &method, "[long-functions]\n\"crates/a/src/lib.rs S::f\" = 120\n"), [""; 0]);
        assert_eq!(check(1, &method, "[long-functions]\n\"crates/a/src/lib.rs S::f\" = 119\n").len(), 1);
    }

    #[test]
    fn the_table_is_needed_with_its_reasons() {
        let made = made_up::workspace(&[("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")]);
        let definitions = Definitions::read(made.path()).unwrap();
        let page = |text: &str| Page::parse(Path::new("A.md"), text);
        let found = findings(&definitions, &Ratchet::default(), &page("# A\n"));
        assert!(found[0].message.contains("there is no table"));
        let found = findings(&definitions, &Ratchet::default(), &page(&GLOSSARY.replace("idiomatic", "")));
        assert_eq!(found[0].to_string(), "A.md:7: `Error` has no reason; say why it is shared");
    }
}
