//! The protobuf message of a `.mlmodel` file, which a package contains as well.

use ferrane_mil::package::read_model;
use ferrane_mil::text::{Missing, Options, Types};
use ferrane_mil::weights::Strictness;
use ferrane_mil::{Weights, check, print, verify};

/// Any bytes are a model or rejected. A program that is read passes the verifier and can be printed
/// and checked.
///
/// # Panics
/// If a property does not hold.
pub fn package(data: &[u8]) {
    let options = Options { missing: Missing::Keep, strictness: Strictness::Lenient, types: Types::Trust };
    let Ok(opened) = read_model(data, &Weights::new(), options) else { return };
    verify(&opened.program).expect("a program that was read passes the verifier");
    let _ = print(&opened.program);
    for function in &opened.program.functions {
        let _ = check(function, &opened.program.weights);
    }
}
