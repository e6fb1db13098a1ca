//! The message of a `.mlmodel`, which is also the model of a package.

use ferrane_mil::package::read_model;
use ferrane_mil::text::{Missing, Options, Types};
use ferrane_mil::weights::Strictness;
use ferrane_mil::{Weights, check, print, verify};

/// Any bytes are a model or are refused; a program that is read holds its invariants and can be
/// printed and checked.
///
/// # Panics
/// If not.
pub fn package(data: &[u8]) {
    let options = Options { missing: Missing::Keep, strictness: Strictness::Lenient, types: Types::Trust };
    let Ok(opened) = read_model(data, &Weights::new(), options) else { return };
    verify(&opened.program).expect("what was read holds the invariants");
    let _ = print(&opened.program);
    for function in &opened.program.functions {
        let _ = check(function, &opened.program.weights);
    }
}
