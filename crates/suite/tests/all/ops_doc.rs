//! docs/ops.md lists what the registry, the emulator and the derivatives state about each op.
//! `FERRANE_BLESS=1` writes it, including the number of value-inference cases in the test data for
//! each op. The test does not compare that number, because the data may be another version.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ferrane_emulator::{Arithmetic, Support, arithmetic, support};
use ferrane_mil::{Opset, grad, ops};
use ferrane_testdata::root;

const INTRODUCTION: &str = "\
# Ops

Every op of MIL that the registry knows, from iOS 15 to iOS 18. Generated: `FERRANE_BLESS=1 cargo test -p ferrane-suite ops_doc`.

All of them are read, checked, printed in both dialects and kept in packages, and their result types are inferred.

- **opsets**: those in which the op exists; in bold where its signature changed.
- **executed**: *plan*: as steps over strided views; *tensor op*: by one function over whole tensors; *interpreter*: control flow and
  lists, run op by op; else why not. *hardware*: under `numerics=hardware` by rules that are published; an op without that word is
  computed there as `fast` does, and rounded as the machine rounds.
- **derivative**: *yes*: `ferrane_mil::grad` has a rule; *zero*: nothing flows back; else why not.
- **cases**: how many of coremltools' own results the op was compared with.

| op | what it computes | opsets | executed | derivative | cases | source |
|---|---|---|---|---|---|---|
";

fn cases() -> BTreeMap<String, usize> {
    let index = root().map(|r| r.join("mil/mil_value_inference/cases.json")).and_then(|p| std::fs::read(p).ok());
    let cases: Vec<serde_json::Value> = index.and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for case in &cases {
        *counts.entry(case["op"].as_str().unwrap_or_default().to_string()).or_default() += 1;
    }
    counts
}

fn opsets(op: &str) -> String {
    let mut parts = Vec::new();
    let mut before = None;
    for opset in [15, 16, 17, 18].map(Opset) {
        let now = ops::find(op, opset).map(|d| d.since);
        match now {
            None => {}
            Some(since) if before.is_some_and(|b| b != since) => parts.push(format!("**{}**", opset.0)),
            Some(_) => parts.push(opset.0.to_string()),
        }
        before = now.or(before);
    }
    parts.join(" ")
}

fn table() -> String {
    let counts = cases();
    let mut text = INTRODUCTION.to_string();
    for name in ops::names() {
        let newest = ops::versions(name).last().expect("an op has a version");
        let executed = match support(name, Opset::IOS18) {
            Support::Plan => "plan".to_string(),
            Support::TensorOp => "tensor op".to_string(),
            Support::Interpreter => "interpreter".to_string(),
            Support::Refused(reason) => format!("no: {reason}"),
            _ => "?".to_string(),
        };
        let executed = match arithmetic(name) {
            Arithmetic::Modeled => format!("{executed}, hardware"),
            _ => executed,
        };
        let derivative = match grad::differentiable(name) {
            grad::Support::Differentiable => "yes".to_string(),
            grad::Support::Zero(_) => "zero".to_string(),
            grad::Support::No(reason) => format!("no: {reason}"),
            _ => "?".to_string(),
        };
        let count = counts.get(name).map_or(String::new(), usize::to_string);
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {executed} | {derivative} | {count} | {} |",
            newest.doc.replace('|', "\\|"),
            opsets(name),
            newest.source
        );
    }
    text
}

/// The rows without the number of cases, which is the last column but one.
fn comparable(text: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut cells: Vec<&str> = line.split(" | ").collect();
        if line.starts_with("| `") && cells.len() >= 7 {
            let at = cells.len() - 2;
            cells[at] = "";
        }
        cells.join(" | ")
    };
    text.lines().map(row).collect()
}

#[test]
fn ops_doc_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    let wanted = table();
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/ops.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/ops.md");
    assert_eq!(comparable(&found), comparable(&wanted), "run with FERRANE_BLESS=1 to write docs/ops.md");
}
