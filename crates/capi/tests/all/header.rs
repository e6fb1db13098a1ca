//! `include/ferrane.h` and the list of functions in docs/c-api.md are generated from the sources.
//! `FERRANE_BLESS=1` writes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

use crate::cc::crate_folder;

/// In the order of the header.
const SOURCES: [&str; 8] = ["status", "device", "kernel", "port", "run", "flight", "blob", "bridge"];

const PREAMBLE: &str = "\
// The C interface of Ferrane: programs for the Apple Neural Engine, on the engine or on its
// emulator. See docs/c-api.md.
//
// Every function may be called from any thread. Handles are numbers and not addresses: a handle
// that was freed, or is null, or belongs to another type, is an error (FERRANE_INVALID_HANDLE) and
// does no harm. A pointer that is not null must point to as many elements as the function says
// until it returns; a null pointer is an error unless the function allows it, or the number of
// elements is 0. Text is UTF-8. A result is written to its pointer only if the call succeeds, except
// handles and blobs, which are null after a failure.
//
// This file is generated from the sources by cbindgen (crates/capi/tests/all/header.rs).
";

/// The root of the workspace.
pub fn root() -> PathBuf {
    crate_folder().join("../..")
}

fn generated() -> String {
    let config = Config {
        language: Language::C,
        style: Style::Type,
        cpp_compat: true,
        header: Some(PREAMBLE.trim_end().into()),
        include_guard: Some("FERRANE_H".into()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(String::from).to_vec(),
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::C99,
        line_length: 110,
        tab_width: 4,
        ..Config::default()
    };
    let folder = crate_folder();
    let add = |builder: Builder, name: &&str| builder.with_src(folder.join("src").join(format!("{name}.rs")));
    let builder = SOURCES.iter().fold(Builder::new().with_config(config), add);
    let mut bytes = Vec::new();
    builder.generate().expect("the sources are read").write(&mut bytes);
    String::from_utf8(bytes).expect("UTF-8")
}

/// Compares a file with the expected contents, or writes it.
fn same_or_blessed(path: &Path, wanted: &str) {
    if std::env::var_os("FERRANE_BLESS").is_some() {
        fs::write(path, wanted).expect("the file can be written");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == wanted, "{} is out of date: FERRANE_BLESS=1 writes it", path.display());
}

/// A function of the header: the lines of its comment, and its declaration.
struct Declared {
    name: String,
    comment: Vec<String>,
    text: String,
}

fn declarations(header: &str) -> Vec<Declared> {
    let mut found = Vec::new();
    let (mut comment, mut text) = (Vec::new(), String::new());
    for line in header.lines() {
        if let Some(words) = line.strip_prefix("//") {
            comment.push(words.trim_start().to_string());
        } else if text.is_empty()
            && (line.starts_with(['#', ' ']) || line.starts_with("typedef") || !line.contains('('))
        {
            comment.clear();
        } else {
            text.push_str(line);
            text.push('\n');
            if line.ends_with(';') {
                let name = text.split('(').next().and_then(|t| t.split([' ', '*']).next_back()).unwrap_or_default();
                found.push(Declared {
                    name: name.into(),
                    comment: std::mem::take(&mut comment),
                    text: std::mem::take(&mut text),
                });
            }
        }
    }
    found
}

/// The names of the header's functions.
pub fn functions() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_folder().join("include/ferrane.h")).expect("the header");
    declarations(&header).into_iter().map(|d| d.name).collect()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let header = generated();
    same_or_blessed(&crate_folder().join("include/ferrane.h"), &header);
    let declared = declarations(&header);
    assert!(declared.len() > 40, "{} functions are understood", declared.len());
    for Declared { name, comment, .. } in declared {
        assert!(name.starts_with("ferrane_") || name.starts_with("ane_bridge_"), "{name}");
        assert!(!comment.is_empty(), "{name} says nothing");
    }
}

/// Everything after this line of docs/c-api.md is generated.
const FUNCTIONS: &str = "## Every function\n";

#[test]
fn the_page_lists_every_function() {
    let path = root().join("docs/c-api.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (written, _) = page.split_once(FUNCTIONS).expect("the list");
    let mut wanted = format!("{written}{FUNCTIONS}");
    for Declared { comment, text, .. } in declarations(&generated()) {
        wanted.push_str(&format!("\n```c\n{text}```\n\n{}\n", comment.join("\n")));
    }
    same_or_blessed(&path, &wanted);
}
