//! Text: the reader, the printer, the formatter, and the rules of machines on programs that are
//! read.

use ferrane_diag::Source;
use ferrane_machine::{CheckOptions, InputBounds, Profile, check};
use ferrane_mil::text::{Missing, Options, Types};
use ferrane_mil::weights::Strictness;
use ferrane_mil::{Program, Weights, format, parse_with, print, verify};

/// Chooses the reader's options by the length of the text, so that an input's bytes are plain text.
fn options(data: &[u8]) -> Options {
    let types = if data.len().is_multiple_of(2) { Types::Check } else { Types::Trust };
    Options { missing: Missing::Keep, strictness: Strictness::Lenient, types }
}

/// Any bytes give diagnostics that can be printed, or a program that passes the verifier.
///
/// # Panics
/// If a property does not hold.
pub fn parse(data: &[u8]) {
    let parsed = parse_with(data, &Weights::new(), options(data));
    let source = Source::new("fuzz.mil", data);
    let _ = (parsed.diagnostics.render(&source, true), parsed.diagnostics.json(&source));
    match &parsed.program {
        None => assert!(parsed.diagnostics.has_errors(), "no program and no error"),
        Some(program) => {
            assert!(!parsed.diagnostics.has_errors(), "a program together with errors");
            verify(program).expect("a program that was read passes the verifier");
            for function in &program.functions {
                let _ = ferrane_mil::check(function, &program.weights);
            }
            machines(program, data);
        }
    }
}

/// The machines that differ most in what they reject.
const MACHINES: [&str; 4] = ["m1-macos26-inmem", "m3-pro-macos15-inmem", "m5-macos26-e5rt", "m5-macos26-client"];

/// Checks the program with every rule and every claim on one machine, chosen by the length of the
/// text.
fn machines(program: &Program, data: &[u8]) {
    let Ok(profile) = Profile::named(MACHINES[data.len() / 2 % MACHINES.len()]) else { return };
    let names = program.functions.iter().flat_map(|f| f.inputs.iter().map(|v| f.value(*v).name.clone()));
    let bounds = names.map(|name| InputBounds { name, low: -1e4, high: 1e5 }).collect();
    let options = CheckOptions { strict: true, bounds, ..CheckOptions::default() };
    for finding in check(program, &profile, &options) {
        assert!(!finding.message.is_empty() && !finding.claims.is_empty(), "{finding:?}");
    }
}

/// A program that is read is printed, and the printed text is read as the same program. Formatting
/// twice gives the same as formatting once.
///
/// # Panics
/// If a property does not hold.
pub fn round_trip(data: &[u8]) {
    let Some(program) = parse_with(data, &Weights::new(), options(data)).program else { return };
    let once = print(&program);
    let again = |text: &str, what: &str| -> Program {
        let types = Types::Trust;
        let parsed = parse_with(text, &Weights::new(), Options { types, ..options(data) });
        parsed.program.unwrap_or_else(|| panic!("{what} is not readable:\n{}\n{text}", parsed.diagnostics))
    };
    let twice = print(&again(&once, "the printed text"));
    assert_eq!(once, twice, "printing is not a fixpoint");
    let formatted = format(data, None).expect("text that is read can be formatted");
    assert_eq!(format(&formatted, None).expect("formatted text is read"), formatted, "formatting is not a fixpoint");
    assert_eq!(print(&again(&formatted, "the formatted text")), once, "formatting changes the program");
}
