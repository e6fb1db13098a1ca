//! docs/coreai.md lists what the tables of both conversions say about each operation and op.
//! `FERRANE_BLESS=1` writes the list.

use std::fmt::Write as _;
use std::path::Path;

const HEADING: &str = "\
## Operations

Those that have no program. All others that are known have one, if their operands have the forms that the reasons of refusals name.
Generated: `FERRANE_BLESS=1 cargo test -p ferrane-coreai page`.

| operation | why |
|---|---|
";

const OPS: &str = "
## Ops

Those of MIL that have no form in Core AI.

| op | why |
|---|---|
";

#[test]
fn the_page_lists_what_has_no_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coreai.md");
    let mut wanted = HEADING.to_string();
    for (name, reason) in ferrane_coreai::operations() {
        if let Some(reason) = reason {
            let _ = writeln!(wanted, "| `{name}` | {reason} |");
        }
    }
    wanted.push_str(OPS);
    for (name, reason) in ferrane_coreai::ops() {
        if let Some(reason) = reason {
            let _ = writeln!(wanted, "| `{name}` | {reason} |");
        }
    }
    let found = std::fs::read_to_string(&path).expect("docs/coreai.md");
    let start = found.find("## Operations").unwrap_or(found.len());
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, format!("{}{wanted}", &found[..start])).expect("docs/coreai.md can be written");
        return;
    }
    assert_eq!(&found[start..], wanted, "run with FERRANE_BLESS=1 to write docs/coreai.md");
}
