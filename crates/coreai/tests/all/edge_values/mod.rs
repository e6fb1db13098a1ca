//! What Apple's runtime computes for each operation, on numbers at the edges of each element type
//! (`scripts/coreai/edge_values.py`), compared with the emulator.
//!
//! A row is one operation on one element type, in one form: `add.f16`, `pad.i32.reflect`. It
//! agrees, or `differences.txt` lists it with the reason; an entry whose rows agree is an error,
//! too. docs/coreai.md has the counts.

mod archive;
mod compare;
mod page;

use std::collections::{BTreeMap, BTreeSet};

use ferrane_coreai::bytecode::BytecodeOp;
use ferrane_coreai::dialect::Field;
use ferrane_coreai::{Bytecode, ConversionOptions};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::{Program, port_names};

use archive::Archive;

/// What came of a row.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Agrees,
    /// The first element that differs.
    Differs(String),
    /// What MIL cannot express.
    Refused(String),
}

impl Outcome {
    /// The word that an entry of `differences.txt` begins with; none for what agrees.
    fn word(&self) -> Option<&'static str> {
        match self {
            Outcome::Agrees => None,
            Outcome::Differs(_) => Some("differs"),
            Outcome::Refused(_) => Some("refused"),
        }
    }
}

/// One entry of `differences.txt`.
struct Entry {
    /// `differs` or `refused`.
    word: &'static str,
    /// The name of a row; each `*` stands for any characters.
    pattern: &'static str,
    reason: &'static str,
}

/// The entries: a line that begins with `#` is the reason of those that follow it.
fn entries() -> Vec<Entry> {
    let (mut reason, mut found) = ("", Vec::new());
    for line in include_str!("differences.txt").lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(text) => reason = text,
            None => {
                assert!(!reason.is_empty(), "no reason for `{line}`");
                let (word, pattern) = line.split_once(' ').unwrap_or_else(|| panic!("`{line}` has no pattern"));
                let word = ["differs", "refused"].into_iter().find(|w| *w == word);
                let word = word.unwrap_or_else(|| panic!("`{line}` begins with neither `differs` nor `refused`"));
                found.push(Entry { word, pattern, reason });
            }
        }
    }
    found
}

/// True if the name is of the pattern's form.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The functions of a file with their names.
fn functions<'f>(file: &'f Bytecode<'_>) -> Vec<(String, &'f BytecodeOp)> {
    let inside = &file.body.operations[0].regions[0].blocks[0].operations;
    let name = |op| match file.attribute(file.property(op, "name")?)?.fields.as_slice() {
        [Field::String(id)] => Some((file.string(*id).into_owned(), op)),
        _ => None,
    };
    inside.iter().filter_map(name).collect()
}

/// The program of all rows that have one, and the reasons of the others.
fn program(file: &mut Bytecode<'_>) -> (Program, BTreeMap<String, String>) {
    let options = ConversionOptions::default();
    let mut refused = BTreeMap::new();
    if let Err(refusals) = file.to_mil(&options) {
        for refusal in refusals.all {
            // `function, place of the source` or `input of function`.
            let subject = refusal.subject.rsplit(" of ").next().unwrap_or_default();
            let function = subject.split(", ").next().unwrap_or_default();
            refused.insert(function.to_string(), refusal.reason);
        }
    }
    let names: Vec<String> = functions(file).into_iter().map(|(name, _)| name).collect();
    let mut kept = names.iter().map(|name| !refused.contains_key(name));
    file.body.operations[0].regions[0].blocks[0].operations.retain(|_| kept.next().unwrap_or(true));
    let program = file.to_mil(&options).unwrap_or_else(|e| panic!("a refusal names no row: {e}"));
    (program, refused)
}

/// Each row with its outcome.
fn outcomes(archive: &Archive) -> BTreeMap<String, Outcome> {
    let mut file = Bytecode::read(&archive.rows).expect("a program");
    let all: BTreeSet<String> = functions(&file).into_iter().map(|(name, _)| name).collect();
    let (program, refused) = program(&mut file);
    assert!(refused.keys().all(|name| all.contains(name)), "{refused:?}");
    let refused = refused.into_iter().map(|(name, reason)| (name, Outcome::Refused(reason)));
    let kept: Vec<String> = functions(&file).into_iter().map(|(name, _)| name).collect();
    let spelled = port_names(kept.iter().map(String::as_str));
    let emulator = Emulator::new(EmulatorOptions::default());
    let mut found: BTreeMap<String, Outcome> = refused.collect();
    for (name, spelled) in kept.iter().zip(&spelled) {
        found.insert(name.clone(), compare::row(archive, &emulator, &program, name, spelled));
    }
    found
}

/// The reason of each row that does not agree.
fn reasons(outcomes: &BTreeMap<String, Outcome>) -> BTreeMap<String, &'static str> {
    let entries = entries();
    let (mut reasons, mut wrong) = (BTreeMap::new(), Vec::new());
    for (name, outcome) in outcomes {
        let Some(word) = outcome.word() else { continue };
        match entries.iter().find(|e| e.word == word && fits(e.pattern, name)) {
            Some(entry) => drop(reasons.insert(name.clone(), entry.reason)),
            None => wrong.push(format!("{name} is not listed: {outcome:?}")),
        }
    }
    for Entry { word, pattern, .. } in &entries {
        let named: Vec<_> = outcomes.iter().filter(|(name, _)| fits(pattern, name)).collect();
        if named.is_empty() {
            wrong.push(format!("`{word} {pattern}` names no row"));
        }
        for (name, outcome) in named {
            if outcome.word() != Some(word) {
                wrong.push(format!("`{word} {pattern}` lists {name}, which does not: {outcome:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows are not as differences.txt says:\n{}", wrong.len(), wrong.join("\n"));
    reasons
}

#[test]
fn every_row_agrees_or_is_listed() {
    let archive = Archive::read();
    let outcomes = outcomes(&archive);
    assert!(outcomes.len() > 1500, "{} rows", outcomes.len());
    let reasons = reasons(&outcomes);
    page::compare(&archive, &outcomes, &reasons);
}

#[test]
fn a_star_stands_for_any_characters() {
    for (pattern, name, wanted) in [
        ("add.f16", "add.f16", true),
        ("add.f16", "add.f16.x", false),
        ("add.*", "add.f16.x", true),
        ("*.f16", "add.f16", true),
        ("*add*x", "broadcasting_add.f16.x", true),
        ("add.*.x", "add.f16.y", false),
    ] {
        assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
    }
}
