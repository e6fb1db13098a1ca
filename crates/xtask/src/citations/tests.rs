//! The check over small made-up workspaces. In them `$` is the section sign and `%` is `#`, so that
//! this file cites nothing.

use super::*;
use crate::workspace::made_up;

const TOY: &str = "# Toy\n\n## 1 One\n\n### 1.2 Two\n\nSee $1.\n\n1. First\n2. Second\n";

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let made = made_up::workspace(&[]);
    let own = [("README.md", "[toy](docs/reference/toy.md)\n"), ("docs/reference/toy.md", TOY)];
    for (path, text) in own.iter().chain(files) {
        made_up::add(made.path(), path, &text.replace('$', "\u{a7}").replace('%', "#"));
    }
    check(made.path()).unwrap().0.iter().map(Finding::to_string).collect()
}

#[test]
fn what_is_there_has_no_findings() {
    let source = "//! As toy $1, $1.2 and toy %2; docs/reference/toy.md has it.\nconst A: &str = \"toy $1.2\";\n";
    assert_eq!(findings(&[("crates/a/src/lib.rs", source)]), [""; 0]);
}

#[test]
fn a_section_that_is_missing_is_reported_wherever_it_is_cited() {
    let files = [
        ("crates/a/src/lib.rs", "//! One\n//! (toy $9).\n"),
        ("crates/machine/data/claims/a.toml", "source = \"toy $9\"\n"),
        ("filetests/run/a.mil", "// toy $9\n"),
        ("README.md", "[toy](docs/reference/toy.md), toy $9\n"),
    ];
    let found = findings(&files);
    let places: Vec<&str> = found.iter().map(|f| f.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        ["README.md:1", "crates/a/src/lib.rs:2", "crates/machine/data/claims/a.toml:1", "filetests/run/a.mil:1"]
    );
    let wanted = "docs/reference/toy.md has no heading 9, cited as `toy $9`; begin the heading with the number 9";
    assert!(found.iter().all(|f| f.contains(&wanted.replace('$', "\u{a7}"))), "{found:?}");
}

#[test]
fn an_unknown_page_and_an_entry_that_is_missing_are_reported() {
    let found = findings(&[("crates/a/src/lib.rs", "// box $1\n// toy %3\n// issue %3, old-box %3\n")]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].starts_with("crates/a/src/lib.rs:1: `box` is no page of docs/reference; cite one of its pages: toy")
    );
    assert!(found[1].contains("has no entry 3, cited as `toy \u{23}3`"), "{found:?}");
    assert!(found[2].contains("`old-box` is no page"), "{found:?}");
}

#[test]
fn a_bare_section_in_a_page_cites_that_page() {
    let found = findings(&[("docs/reference/toy.md", &TOY.replace("See $1", "See $4"))]);
    assert!(found.len() == 1 && found[0].starts_with("docs/reference/toy.md:7: "), "{found:?}");
}

#[test]
fn links_lead_to_files_and_headings() {
    let readme = "[toy](docs/reference/toy.md%12-two) [a](docs/a.md) [web](https://a.b/c.md) [top](%title)\n# Title\n";
    let page = "[up](../README.md%title) [gone](gone.md)\n[none](reference/toy.md%none) ![here](a.svg)\n";
    let found = findings(&[("README.md", readme), ("docs/a.md", page), ("docs/a.svg", "")]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("docs/a.md:1: the link `gone.md` leads to docs/gone.md, which does not exist"));
    assert!(found[1].starts_with("docs/a.md:2: docs/reference/toy.md has no heading for the link"));
}

#[test]
fn a_page_without_a_link_to_it_is_an_orphan() {
    let found = findings(&[("docs/a.md", "[toy](reference/toy.md)\n")]);
    assert!(found.len() == 1 && found[0].starts_with("docs/a.md: no chain of links leads from README.md"), "{found:?}");
}

#[test]
fn pages_that_comments_name_exist() {
    let source =
        "// See docs/gone.md and docs/reference/toy.md.\n// other/docs/x.md\nconst A: &str = \"in docs/gone.md\";\n";
    let found = findings(&[("crates/a/src/lib.rs", source)]);
    assert_eq!(found, ["crates/a/src/lib.rs:1: there is no docs/gone.md; name a page that exists"]);
}
