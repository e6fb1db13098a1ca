//! The check over small made-up workspaces.

use super::*;
use crate::workspace::made_up;

const STYLE_PAGE: &str = "## Prose\n\n| not | but |\n|---|---|\n| zorked | reported |\n| if glad be | if necessary |\n";

fn check_all(files: &[(&str, &str)], paths: &[&str]) -> Vec<String> {
    let made = made_up::workspace(&[(STYLE, STYLE_PAGE), ("crates/xtask/Cargo.toml", "")]);
    for (path, text) in files {
        made_up::add(made.path(), path, text);
    }
    let list = WordList::read(&Page::read(made.path(), Path::new(STYLE)).unwrap()).unwrap();
    let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
    let mut findings = Vec::new();
    for file in super::files(made.path(), &paths).unwrap() {
        let text = workspace::read(&made.path().join(&file)).unwrap();
        findings.extend(check(&file, &text, &list).into_iter().map(|(_, finding)| finding.to_string()));
    }
    findings
}

fn check_rust(text: &str) -> Vec<String> {
    check_all(&[("crates/a/src/lib.rs", text)], &[])
}

#[test]
fn comments_and_strings_of_rust_are_read_and_identifiers_are_not() {
    let found =
        check_rust("// it is zorked\nfn zorked() { let zorked = \"was zorked\"; }\n/// If glad\n/// be.\nfn x() {}\n");
    let wanted = [
        "crates/a/src/lib.rs:1: `zorked` is out; instead: reported",
        "crates/a/src/lib.rs:2: `zorked` is out; instead: reported",
        "crates/a/src/lib.rs:3: `if glad be` is out; instead: if necessary",
    ];
    assert_eq!(found, [&wanted[..], &["crates/a/src/lib.rs:3: the documentation \"If glad be.\" says nothing; give a unit, a shape, a range, an owner or what an empty value means; of a private item, remove it"]].concat());
}

#[test]
fn code_in_comments_single_words_and_quotes_are_not_prose() {
    let source = "\
//! Calls `zorked` as in
//! ```
//! // zorked
//! zorked();
//! ```
const KEY: &str = \"zorked\";
// prose: quoted
const APPLE: &str = \"the truth was zorked\";
const OTHER: &str = \"so I was zorked\"; // prose: quoted
";
    assert_eq!(check_rust(source), [""; 0]);
    assert_eq!(check_rust("//! ```\n//! zorked\n//! ```\n//! zorked\n").len(), 1);
}

#[test]
fn a_string_of_several_lines_gives_the_line_of_the_word() {
    let found = check_rust("const A: &str = \"one\n two zorked\";\n");
    assert!(found.len() == 1 && found[0].starts_with("crates/a/src/lib.rs:2: "), "{found:?}");
}

#[test]
fn pages_scripts_and_filetests_are_read() {
    let found = check_all(
        &[
            ("docs/a.md", "# Zorked\ntext `zorked`, zorked\n```\nferrane zorked # zorked\n```\n"),
            ("scripts/a.sh", "echo zorked # zorked\n"),
            ("scripts/b.py", "\"\"\"As zorked.\"\"\"\nx = 'zorked'\n"),
            ("filetests/run/a.mil", "// zorked\nx = \"as zorked\"\n"),
            ("README.md", "if glad\nbe\n"),
        ],
        &[],
    );
    let places: Vec<&str> = found.iter().map(|f| f.split(": ").next().unwrap()).collect();
    let wanted = ["docs/a.md:1", "docs/a.md:2", "docs/a.md:4", "filetests/run/a.mil:1", "scripts/a.sh:1"];
    assert_eq!(places, [&wanted[..], &["scripts/b.py:1", "README.md:1"]].concat());
}

#[test]
fn quoted_data_is_exempt() {
    let files = [
        ("docs/claims.md", "zorked"),
        ("crates/machine/data/claims/a.toml", "# zorked"),
        ("crates/train/src/data/story/a.rs", "// zorked"),
        ("filetests/golden/a.mil", "// zorked"),
    ];
    assert_eq!(check_all(&files, &[]), [""; 0]);
}

#[test]
fn paths_choose_files() {
    let files =
        [("crates/a/src/lib.rs", "// zorked\n"), ("crates/ab/src/lib.rs", "// zorked\n"), ("docs/a.md", "zorked\n")];
    assert_eq!(check_all(&files, &["crates/a", "docs"]).len(), 2);
    assert_eq!(check_all(&files, &[]).len(), 3);
    let made = made_up::workspace(&files);
    made_up::add(made.path(), "fuzz/a.rs", "// zorked\n");
    let chosen = |path: &str| super::files(made.path(), &[path.to_owned()]);
    assert_eq!(chosen("fuzz").unwrap_err(), "fuzz has no file that this check reads");
    assert_eq!(chosen("gone").unwrap_err(), "there is no gone");
}

#[test]
fn the_count_has_a_row_per_crate() {
    let one = |concern, file: &str| (concern, Finding::new(file, 1, "", ""));
    let findings = [
        one(Concern::Words, "crates/a/src/lib.rs"),
        one(Concern::Stubs, "crates/a/src/b.rs"),
        one(Concern::Width, "docs/a.md"),
    ];
    let rows: Vec<Vec<String>> =
        table(&findings).lines().map(|l| l.split_whitespace().map(str::to_owned).collect()).collect();
    assert_eq!(rows[1], ["a", "1", "0", "1"]);
    assert_eq!(rows[2], ["docs", "0", "1", "0"]);
    assert_eq!(rows[3], ["all", "1", "1", "1"]);
}

#[test]
fn fixing_wraps_comments_in_place() {
    let wide = format!("// {}\n", vec!["word"; 30].join(" "));
    let made = made_up::workspace(&[("crates/a/src/lib.rs", &wide), ("docs/a.md", &wide)]);
    let files = super::files(made.path(), &[]).unwrap();
    fix(made.path(), &files).unwrap();
    let fixed = workspace::read(&made.path().join("crates/a/src/lib.rs")).unwrap();
    assert_eq!(fixed.lines().count(), 2);
    assert_eq!(workspace::read(&made.path().join("docs/a.md")).unwrap(), wide);
}
