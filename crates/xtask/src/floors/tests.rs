//! The checks over small made-up workspaces.

use super::*;
use crate::workspace::made_up;

const ARCHITECTURE: &str = "\
# Architecture

## The crates

| floor | crate | what lives there |
|---|---|---|
| 0 | `toy` | everything |

### Modules of `toy`

| floor | module | what lives there |
|---|---|---|
| 0 | `base` | data |
| 1 | `left` + `right`, `other` | a unit, and one more |
| 2 | `top` | the end |

### Circles

- No circle of more than 2 files in `toy`.
- The files of `crates/toy/src/family` may form one: a macro makes them.
";

const MANIFEST: &str = "[package]\nname = \"ferrane-toy\"\n";

/// A crate `toy` that keeps every rule, with `files` added or in place of its own.
fn toy(files: &[(&str, &str)]) -> tempfile::TempDir {
    let made = made_up::workspace(&[
        ("ARCHITECTURE.md", ARCHITECTURE),
        ("crates/toy/Cargo.toml", MANIFEST),
        ("crates/toy/src/lib.rs", "mod base; mod left; mod right; mod other; mod top; pub use top::Top;"),
        ("crates/toy/src/base.rs", "pub struct Base; pub struct Floor; pub fn make() {}"),
        ("crates/toy/src/left.rs", "use crate::{base::Base, right}; pub struct Left(Base); fn f() { right::go() }"),
        ("crates/toy/src/right.rs", "use crate::left::Left; pub fn go() {}"),
        ("crates/toy/src/other.rs", "pub struct Other(crate::base::Base);"),
        ("crates/toy/src/top.rs", "use super::left::*; pub struct Top(Left);"),
    ]);
    for (path, text) in files {
        made_up::add(made.path(), path, text);
    }
    made
}

fn check(files: &[(&str, &str)]) -> Vec<String> {
    let made = toy(files);
    let graphs = graphs(made.path()).unwrap();
    findings(made.path(), &graphs).unwrap().iter().map(Finding::to_string).collect()
}

/// The edges as "from to: names".
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![("crates/toy/Cargo.toml", MANIFEST)];
    all.extend(files);
    let made = made_up::workspace(&all);
    let graph = ImportGraph::read(made.path(), "toy").unwrap();
    let names = |names: &imports::Names| names.keys().map(String::as_str).collect::<Vec<_>>().join(" ");
    let edge = |((from, to), used): (&(usize, usize), _)| {
        format!("{} {}: {}", graph.short(*from), graph.short(*to), names(used))
    };
    graph.edges.iter().map(edge).collect()
}

#[test]
fn a_crate_that_keeps_the_rules_has_no_findings() {
    assert_eq!(check(&[]), [""; 0]);
}

#[test]
fn a_forbidden_import_is_reported_with_its_line_and_a_remedy() {
    let found = check(&[("crates/toy/src/base.rs", "pub struct Base;\npub struct Floor(crate::top::Top);")]);
    let message = "crates/toy/src/base.rs:2: `base` (floor 0) imports `Top` of `top` (floor 2)";
    assert!(found.iter().any(|f| f.starts_with(message)), "{found:?}");
    assert!(found[0].contains("move `Top` down, or change the table \"Modules of `toy`\" in ARCHITECTURE.md"));
}

#[test]
fn modules_of_one_floor_do_not_import_each_other_unless_they_are_one_unit() {
    let found = check(&[("crates/toy/src/other.rs", "use crate::left::Left;")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`other` (floor 1) imports `Left` of `left` (floor 1)"));
}

#[test]
fn a_module_imports_nothing_that_the_root_defines_unless_the_root_has_a_floor() {
    let root = "mod base; mod left; mod right; mod other; mod top; pub struct Root;";
    let files = [("crates/toy/src/lib.rs", root), ("crates/toy/src/other.rs", "use crate::Root;")];
    let found = check(&files);
    assert!(found.len() == 1 && found[0].contains("imports `Root` of `lib` (no floor)"), "{found:?}");
    let placed = ARCHITECTURE.replace("`base` |", "`base`, `lib` |");
    assert_eq!(check(&[&files[..], &[("ARCHITECTURE.md", &placed)]].concat()), [""; 0]);
}

#[test]
fn the_table_of_modules_is_complete() {
    let root = "mod base; mod left; mod right; mod other; mod top; mod new;";
    let found = check(&[("crates/toy/src/lib.rs", root), ("crates/toy/src/new.rs", "")]);
    assert!(found.len() == 1 && found[0].contains("module `new` is missing in the table"), "{found:?}");
    let found = check(&[("ARCHITECTURE.md", &ARCHITECTURE.replace("`top`", "`top`, `gone`"))]);
    assert!(found.len() == 1 && found[0].contains("`toy` has no module `gone`"), "{found:?}");
    let found = check(&[("ARCHITECTURE.md", &ARCHITECTURE.replace("`top`", "`top`, `base`"))]);
    assert!(found[0].contains("module `base` is in the table twice"), "{found:?}");
}

#[test]
fn a_circle_above_the_limit_is_reported_with_its_files() {
    let files = [
        ("crates/toy/src/top.rs", "mod a; mod b; pub struct Top(a::A);"),
        ("crates/toy/src/top/a.rs", "pub struct A(super::b::B);"),
        ("crates/toy/src/top/b.rs", "pub struct B(super::Top);"),
    ];
    let found = check(&files);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`toy` has a circle of 3 files"), "{found:?}");
    assert!(found[0].contains("line 19 of ARCHITECTURE.md allows 2: top.rs, top/a.rs, top/b.rs"), "{found:?}");
    let wider = ARCHITECTURE.replace("more than 2", "more than 3");
    assert_eq!(check(&[&files[..], &[("ARCHITECTURE.md", &wider)]].concat()), [""; 0]);
}

#[test]
fn a_family_may_form_a_circle_among_itself_only() {
    let table = ARCHITECTURE.replace("`base` |", "`base`, `family` |");
    let base = "mod base; mod left; mod right; mod other; mod top; mod family;";
    let files = [
        ("ARCHITECTURE.md", table.as_str()),
        ("crates/toy/src/lib.rs", base),
        ("crates/toy/src/family/mod.rs", "mod a; mod b; pub struct F(a::A, b::B);"),
        ("crates/toy/src/family/a.rs", "pub struct A(super::F);"),
        ("crates/toy/src/family/b.rs", "pub struct B(super::F);"),
    ];
    assert_eq!(check(&files), [""; 0]);
    let outside = ("ARCHITECTURE.md", &*table.replace("src/family", "src/families"));
    assert_eq!(check(&[&files[..], &[outside]].concat()).len(), 1);
}

#[test]
fn a_limit_names_a_crate_that_exists() {
    let found = check(&[("ARCHITECTURE.md", &ARCHITECTURE.replace("in `toy`.", "in `toy`, `gone`."))]);
    assert!(found.len() == 1 && found[0].contains("there is no crate `gone`"), "{found:?}");
}

#[test]
fn groups_renames_and_relative_paths_are_followed() {
    let found = edges(&[
        ("crates/toy/src/lib.rs", "mod a; mod b;"),
        ("crates/toy/src/a/mod.rs", "mod c; pub struct A; pub fn other() {}"),
        (
            "crates/toy/src/a/c.rs",
            "use super::{A as Renamed, super::b::{self, B}}; fn f() { self::g(); b::go() } fn g() {}",
        ),
        ("crates/toy/src/b.rs", "pub struct B; pub fn go() {} impl B { fn f() -> crate::a::A { crate::a::other() } }"),
    ]);
    assert_eq!(found, ["a/c.rs a/mod.rs: A", "a/c.rs b.rs: B go", "b.rs a/mod.rs: A other"]);
}

#[test]
fn a_name_that_is_exported_again_leads_to_the_file_that_defines_it() {
    let found = edges(&[
        ("crates/toy/src/lib.rs", "mod a; mod b; pub use a::*;"),
        ("crates/toy/src/a/mod.rs", "mod c; mod d; pub use c::C; pub use self::d::inner as outer;"),
        ("crates/toy/src/a/c.rs", "pub struct C;"),
        ("crates/toy/src/a/d.rs", "use super::C; pub fn inner() {}"),
        ("crates/toy/src/b.rs", "fn f(c: crate::C) { crate::a::outer() }"),
    ]);
    assert_eq!(found, ["a/d.rs a/c.rs: C", "b.rs a/c.rs: C", "b.rs a/d.rs: inner"]);
}

#[test]
fn an_export_is_an_import_if_the_file_uses_the_name_itself() {
    let root = ("crates/toy/src/lib.rs", "mod a;");
    let child = ("crates/toy/src/a/c.rs", "pub struct C;");
    assert_eq!(edges(&[root, ("crates/toy/src/a/mod.rs", "mod c; pub use c::C;"), child]), [""; 0]);
    let used = ("crates/toy/src/a/mod.rs", "mod c; pub use c::C; fn f(_: C) {}");
    assert_eq!(edges(&[root, used, child]), ["a/mod.rs a/c.rs: C"]);
}

#[test]
fn names_by_glob_in_patterns_and_in_macros_count() {
    let found = edges(&[
        ("crates/toy/src/lib.rs", "mod a; mod b; mod c;"),
        ("crates/toy/src/a.rs", "pub struct A; pub const LIMIT: u32 = 1; pub fn call() {} pub enum E { X, Y }"),
        ("crates/toy/src/b.rs", "use crate::a::*; fn f(x: u32) { match x { LIMIT => call(), _ => {} } vec![A]; }"),
        ("crates/toy/src/c.rs", "fn f() { println!(\"{}\", x.a(crate::a::E::X)); }"),
    ]);
    assert_eq!(found, ["b.rs a.rs: A LIMIT call", "c.rs a.rs: E"]);
}

#[test]
fn test_code_variables_attributes_and_declarations_do_not_count() {
    let found = edges(&[
        ("crates/toy/src/lib.rs", "mod a; mod b; #[cfg(test)] mod gone;"),
        ("crates/toy/src/a.rs", "pub fn value() -> u32 { 1 } pub struct A;"),
        (
            "crates/toy/src/b.rs",
            "use crate::a::*; fn f() { let value = 1; g(value); x.value; }\n\
             #[cfg(test)] use crate::a::A;\n#[cfg(test)] mod tests { use super::*; fn f(_: A) {} }\n\
             /// [`crate::a::A`]\nstruct B; impl B { #[cfg(test)] fn f(_: crate::a::A) {} }",
        ),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_function_and_a_module_of_one_name_are_kept_apart() {
    let found = edges(&[
        ("crates/toy/src/lib.rs", "mod a; mod b;"),
        ("crates/toy/src/a/mod.rs", "pub mod text; pub fn text() {}"),
        ("crates/toy/src/a/text.rs", "pub fn read() {}"),
        ("crates/toy/src/b.rs", "use crate::a::text::read;"),
    ]);
    assert_eq!(found, ["b.rs a/text.rs: read"]);
}

#[test]
fn inline_modules_and_path_attributes_are_followed() {
    let found = edges(&[
        (
            "crates/toy/src/lib.rs",
            "pub mod a { pub struct A; } #[path = \"odd.rs\"] mod b; mod c { mod d; pub use d::D; }",
        ),
        ("crates/toy/src/odd.rs", "use crate::a::A; use crate::c::D;"),
        ("crates/toy/src/c/d.rs", "pub struct D(super::super::a::A);"),
    ]);
    assert_eq!(found, ["odd.rs lib.rs: A", "odd.rs c/d.rs: D", "c/d.rs lib.rs: A"]);
}

#[test]
fn a_module_without_a_file_and_a_file_that_is_no_rust_fail() {
    let read = |files: &[(&str, &str)]| {
        let made = made_up::workspace(files);
        ImportGraph::read(made.path(), "toy").err().unwrap()
    };
    let missing = read(&[("crates/toy/src/lib.rs", "\nmod gone;")]);
    assert_eq!(missing, "crates/toy/src/lib.rs:2: module `gone` has no file");
    assert!(
        read(&[("crates/toy/src/lib.rs", "\nfn fn")]).starts_with("crates/toy/src/lib.rs:2: this file is not Rust")
    );
}

#[test]
fn the_listing_marks_the_edges_of_a_circle() {
    let made = toy(&[]);
    let text = listing(&ImportGraph::read(made.path(), "toy").unwrap());
    assert!(text.contains("left.rs\n    base.rs: Base:1\n  * right.rs: go:1\n"), "{text}");
    assert!(text.ends_with("circle of 2 files: left.rs, right.rs\n"), "{text}");
    let json = as_json(&ImportGraph::read(made.path(), "toy").unwrap());
    assert_eq!(json["circles"], json!([["left.rs", "right.rs"]]));
}
