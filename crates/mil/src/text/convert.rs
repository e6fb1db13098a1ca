//! Conversion to another dialect, and if necessary to an older opset.
//!
//! The printer chooses the spelling; a conversion has to change what must agree with it (mil-text
//! §2). The verbose dialect belongs to `program(1.0)`, which no reader accepts together with ios18.
//! So a function of a newer opset must be lowered, which is possible only if every op, type and
//! default value exists in the older opset.

use crate::error::MilError;
use crate::level::body_to_opset;
use crate::opset::Opset;
use crate::program::{Dialect, Function, Program};
use crate::weights::Weights;

/// The header of the verbose dialect.
const VERBOSE: (u32, u32) = (1, 0);
/// The oldest header that published shorthand programs have.
const SHORTHAND: (u32, u32) = (1, 3);
/// The opsets that a `program(1.0)` is seen with, in the order in which they are tried: the older
/// is the more widely accepted.
const LOWER: [Opset; 2] = [Opset::IOS16, Opset::IOS17];

/// The program in a dialect, with a header and opsets that go with it: shorthand is at least
/// `program(1.3)`, verbose is `program(1.0)` with no opset above ios17. A newer function is lowered
/// to ios16, or to ios17 if it needs that.
///
/// # Errors
/// [`MilError::Opset`] with the first op or value that the older opsets do not have, the same or in
/// the same meaning.
pub fn convert(program: &Program, dialect: Dialect) -> Result<Program, MilError> {
    let mut converted = program.clone();
    converted.dialect = dialect;
    match dialect {
        Dialect::Shorthand => converted.version = program.version.max(SHORTHAND),
        Dialect::Verbose => {
            converted.version = VERBOSE;
            for function in &mut converted.functions {
                for body in 0..function.bodies.len() {
                    lower_for_verbose(function, body, &converted.weights)?;
                }
            }
        }
    }
    Ok(converted)
}

fn lower_for_verbose(function: &mut Function, body: usize, weights: &Weights) -> Result<(), MilError> {
    let tag = function.bodies[body].0.clone();
    let Some(opset) = tag.known() else {
        let reason = format!("`{tag}` is not an opset that program(1.0) supports");
        return Err(MilError::Opset { function: function.name.clone(), reason });
    };
    if opset <= LOWER[1] {
        return Ok(());
    }
    let taken = |o: Opset| function.bodies.iter().any(|(tag, _)| tag.known() == Some(o));
    let free: Vec<Opset> = LOWER.into_iter().filter(|o| !taken(*o)).collect();
    let mut refused = None;
    for target in free {
        match body_to_opset(function, body, target, weights) {
            Ok(_) => return Ok(()),
            Err(found) => refused = found.into_iter().next().map(|first| (target, first)),
        }
    }
    let reason = match refused {
        Some((target, first)) => format!("it cannot be of {target}: `{}`: {}", first.value, first.reason),
        None => format!("it has bodies for ios16 and ios17 already, and program(1.0) does not go with {tag}"),
    };
    Err(MilError::Opset { function: function.name.clone(), reason })
}
