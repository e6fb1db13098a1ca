//! The table of docs/coreai.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::Outcome;
use super::archive::Archive;

const HEADING: &str = "## Numbers by Apple\n";
/// The section after it.
const NEXT: &str = "## Models of programs";

/// The rows of one operation.
#[derive(Default)]
struct Operation<'a> {
    agree: BTreeSet<&'a str>,
    rows: usize,
    agreeing: usize,
    /// How many rows there are for each reason, by its number.
    others: BTreeMap<usize, usize>,
    stopped: usize,
}

/// Compares the table with the page, or writes it.
pub fn compare(archive: &Archive, outcomes: &BTreeMap<String, Outcome>, reasons: &BTreeMap<String, &'static str>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coreai.md");
    let page = std::fs::read_to_string(&path).expect("docs/coreai.md");
    let wanted = section(archive, outcomes, reasons);
    let end = page.find(NEXT).expect("the next section");
    let start = page.find(HEADING).unwrap_or(end);
    if std::env::var_os("FERRANE_BLESS").is_some() {
        let text = format!("{}{wanted}{}", &page[..start], &page[end..]);
        std::fs::write(&path, text).expect("docs/coreai.md can be written");
        return;
    }
    assert_eq!(&page[start..end], wanted, "run with FERRANE_BLESS=1 to write docs/coreai.md");
}

/// The operation and the element type of a row.
fn split(row: &str) -> (&str, &str) {
    let mut parts = row.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

fn section(
    archive: &Archive,
    outcomes: &BTreeMap<String, Outcome>,
    reasons: &BTreeMap<String, &'static str>,
) -> String {
    let mut numbered: Vec<&str> = Vec::new();
    let mut operations: BTreeMap<&str, Operation<'_>> = BTreeMap::new();
    let mut count = BTreeMap::new();
    for (row, outcome) in outcomes {
        let (name, ty) = split(row);
        let operation = operations.entry(name).or_default();
        operation.rows += 1;
        *count.entry(outcome.word().unwrap_or("agrees")).or_insert(0usize) += 1;
        match reasons.get(row) {
            None => {
                operation.agree.insert(ty);
                operation.agreeing += 1;
            }
            Some(reason) => {
                let number = numbered.iter().position(|r| r == reason).unwrap_or_else(|| {
                    numbered.push(reason);
                    numbered.len() - 1
                });
                *operation.others.entry(number + 1).or_default() += 1;
            }
        }
    }
    let stopped: Vec<&str> = archive.stopped.lines().collect();
    for line in &stopped {
        operations.entry(split(line.split(": ").next().unwrap_or_default()).0).or_default().stopped += 1;
    }
    let of = |word: &str| count.get(word).copied().unwrap_or_default();
    let mut text = format!(
        "{HEADING}
`scripts/coreai/edge_values.py` records what Apple's runtime computes on a CPU for each operation, element type and form: zeros of both
signs, infinities, NaN, subnormal and the largest numbers, the least and the largest integer, division by zero, halves that are
rounded, ties, empty and single extents, indices that repeat or count from the end. A row is one operation on one type in one form. Of {}
rows that Apple's runtime runs, {} agree in the emulator, {} differ and {} are refused; it does not run {} that coreai-core accepts. fp32
agrees to 1e-5 of each element (of the largest one, where elements are summed), fp16 to one unit in the last place (sums to 4e-3 of the
largest element), integers and booleans exactly. Calls, groups, states and sparse palettes are compared in whole models
(`crates/coreai/tests/models`). Generated: `FERRANE_BLESS=1 cargo test -p ferrane-coreai edge_values`.

| operation | agrees | types of rows that agree | does not agree, by reason | not run by Apple |
|---|---|---|---|---|
",
        outcomes.len(),
        of("agrees"),
        of("differs"),
        of("refused"),
        stopped.len(),
    );
    for (name, Operation { agree, rows, agreeing, others, stopped }) in &operations {
        let others: Vec<String> = others.iter().map(|(number, count)| format!("{count} ({number})")).collect();
        let types: Vec<&str> = agree.iter().copied().collect();
        let stopped = if *stopped == 0 { String::new() } else { stopped.to_string() };
        let _ = writeln!(
            text,
            "| `{name}` | {agreeing} of {rows} | {} | {} | {stopped} |",
            types.join(" "),
            others.join(", ")
        );
    }
    text.push_str("\nReasons:\n\n");
    for (i, reason) in numbered.iter().enumerate() {
        let _ = writeln!(text, "{}. {reason}", i + 1);
    }
    text.push('\n');
    text
}
