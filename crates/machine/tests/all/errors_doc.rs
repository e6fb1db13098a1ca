//! docs/errors.md follows from the explanations, and every code is explained.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ferrane_machine::explain;

#[test]
fn errors_doc_is_what_the_codes_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let wanted = explain::page();
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/errors.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/errors.md");
    assert_eq!(found, wanted, "FERRANE_BLESS=1 writes docs/errors.md again");
}

/// Addresses of codes name anchors of the page.
#[test]
fn every_code_has_its_anchor() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = std::fs::read_to_string(&path).expect("docs/errors.md");
    let anchors: Vec<&str> = page.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let wanted: Vec<String> = explain::all().iter().map(|e| explain::anchor(e.code)).collect();
    assert_eq!(anchors, wanted);
    assert_eq!(anchors.iter().collect::<BTreeSet<_>>().len(), anchors.len(), "an anchor stands twice");
    for e in explain::all() {
        let address = explain::address(e.code);
        assert!(address.is_none_or(|a| a.starts_with("https://") && a.ends_with(&explain::anchor(e.code))));
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
        match path.extension() {
            Some(e) if e == "rs" => found.push(path),
            _ if path.is_dir() => found.extend(sources(&path)),
            _ => {}
        }
    }
    found
}

/// The numbers in `Code(…)`, and in arms of the match that gives an error's code.
fn codes(text: &str) -> impl Iterator<Item = u16> + '_ {
    // Examples in tests are not codes.
    let text = text.split("#[cfg(test)]").next().unwrap_or("");
    let digits = |t: &str| t.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u16>().ok();
    let named = text.split("Code(").skip(1).filter_map(digits);
    let arms = text.split("} => ").skip(1).filter_map(digits);
    named.chain(arms).filter(|n| (100..1100).contains(n))
}

#[test]
fn every_code_is_explained() {
    let known: BTreeSet<u16> = explain::all().iter().map(|e| e.code.0).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // The language lists its codes; those of other crates are found in their sources.
    let mut seen: BTreeSet<u16> = ferrane_mil::codes::ALL.iter().map(|code| code.0).collect();
    let language: BTreeSet<u16> = known.iter().copied().filter(|code| *code < 400).collect();
    assert_eq!(seen, language, "codes of `ferrane_mil::codes` and their explanations");
    for name in ["machine", "hwx", "onnx", "coreai", "cli"] {
        for path in sources(&crates.join(name).join("src")) {
            seen.extend(codes(&std::fs::read_to_string(&path).expect("a source")));
        }
    }
    assert!(seen.len() > 80, "{seen:?}");
    let unexplained: Vec<&u16> = seen.difference(&known).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
}
