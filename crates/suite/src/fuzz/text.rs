//! Text: the reader, the printer, the formatter, and what rules say of whatever is read.

use ferrane_diag::Source;
use ferrane_machine::{CheckOptions, InputBounds, Profile, check};
use ferrane_mil::text::{Missing, Options, Types};
use ferrane_mil::weights::Strictness;
use ferrane_mil::{Program, Weights, format, parse_with, print, verify};

/// How the options of a reader are chosen: by the length of the text, so that the bytes of an input
/// stay plain text.
fn options(data: &[u8]) -> Options {
    let types = if data.len().is_multiple_of(2) { Types::Check } else { Types::Trust };
    Options { missing: Missing::Keep, strictness: Strictness::Lenient, types }
}

/// Any bytes are read or told why not: diagnostics that can be shown, or a program that holds its
/// invariants.
///
/// # Panics
/// If not.
pub fn parse(data: &[u8]) {
    let parsed = parse_with(data, &Weights::new(), options(data));
    let source = Source::new("fuzz.mil", data);
    let _ = (parsed.diagnostics.render(&source, true), parsed.diagnostics.json(&source));
    match &parsed.program {
        None => assert!(parsed.diagnostics.has_errors(), "no program and no error"),
        Some(program) => {
            assert!(!parsed.diagnostics.has_errors(), "a program in spite of errors");
            verify(program).expect("what was read holds the invariants");
            for function in &program.functions {
                let _ = ferrane_mil::check(function, &program.weights);
            }
            machines(program, data);
        }
    }
}

/// Machines that differ most in what they refuse.
const MACHINES: [&str; 4] = ["m1-macos26-inmem", "m3-pro-macos15-inmem", "m5-macos26-e5rt", "m5-macos26-client"];

/// Every rule looks at the program, on one machine, chosen by the length of the text, and by every
/// claim.
fn machines(program: &Program, data: &[u8]) {
    let Ok(profile) = Profile::named(MACHINES[data.len() / 2 % MACHINES.len()]) else { return };
    let names = program.functions.iter().flat_map(|f| f.inputs.iter().map(|v| f.value(*v).name.clone()));
    let bounds = names.map(|name| InputBounds { name, low: -1e4, high: 1e5 }).collect();
    let options = CheckOptions { strict: true, bounds, ..CheckOptions::default() };
    for finding in check(program, &profile, &options) {
        assert!(!finding.message.is_empty() && !finding.claims.is_empty(), "{finding:?}");
    }
}

/// What is read is printed, and what is printed is read as the same program. Formatting twice is
/// formatting once.
///
/// # Panics
/// If not.
pub fn round_trip(data: &[u8]) {
    let Some(program) = parse_with(data, &Weights::new(), options(data)).program else { return };
    let once = print(&program);
    let again = |text: &str, what: &str| -> Program {
        let types = Types::Trust;
        let parsed = parse_with(text, &Weights::new(), Options { types, ..options(data) });
        parsed.program.unwrap_or_else(|| panic!("{what} is not read:\n{}\n{text}", parsed.diagnostics))
    };
    let twice = print(&again(&once, "what was printed"));
    assert_eq!(once, twice, "printing is no fixpoint");
    let formatted = format(data, None).expect("what is read is formatted");
    assert_eq!(format(&formatted, None).expect("what is formatted is read"), formatted, "formatting is no fixpoint");
    assert_eq!(print(&again(&formatted, "what was formatted")), once, "formatting changes the program");
}
