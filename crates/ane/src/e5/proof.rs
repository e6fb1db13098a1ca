//! Verifies that a program ran. The E5 runtime is known to report success where nothing ran
//! (apple-runtime §9).
//!
//! A program is examined at its first evaluation, and again until an evaluation is conclusive. Two
//! signs indicate that nothing ran:
//!
//! - An output still has the fill value from before. A program might compute exactly that, so it
//!   runs again with another fill value; no program computes both. An output that keeps both was
//!   not written.
//! - All outputs are zeros, and the inputs are not. Many programs compute zeros (for example a
//!   product with a weight that is zero before training), which outputs alone cannot distinguish
//!   from an evaluation that did nothing. So the program is compiled once more with an echo
//!   ([`ferrane_mil::boundary::with_echo`]) and run over the same inputs: a program that runs
//!   returns the echo, whatever else it computes.
//!
//! So a program that computes is never refused. If the inputs are also zeros, the evaluation is
//! inconclusive, and the next one is examined.

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, Result};
use ferrane_host::buffer::SharedBytes;
use ferrane_mil::boundary::{ECHO_INPUT, ECHO_OUTPUT, with_echo};

use super::E5Context;
use super::assembly::Assembly;
use super::run::Request;
use crate::bind::Wrap as _;
use crate::bind::coreml::{ArrayType, FeatureValue, Features, MultiArray, NoBlock, PredictionOptions};
use crate::bind::e5::Engine;
use crate::bind::foundation::{list, number, text};

/// The fill values: as fp32, two NaNs whose low bits cannot result from a cast of a smaller type.
const FILLINGS: [u32; 2] = [0x7FC5_EED5, 0xFFCA_1157];

/// The echoed value; it and the result are exact in fp16.
const ECHO: f32 = 2.0;

fn no_op(what: &str) -> Error {
    Error::from_raw("E5RT", 0, &format!("silent no-op: {what}"))
}

/// Evaluates and checks whether the program computed; true if that is proven now.
///
/// # Errors
/// The errors of an evaluation, and an error if the program did not compute.
pub(super) fn first(
    shared: &E5Context,
    assembly: &Assembly,
    function: &str,
    engine: &Engine,
    request: &Request,
    accesses: &mut Accesses,
) -> Result<bool> {
    let mut untouched = None;
    for filling in FILLINGS {
        for (slot, surface) in request.outputs.iter().zip(&mut accesses.outputs) {
            slot.fill(filling, surface)?;
        }
        request.predict(engine, accesses)?;
        untouched = None;
        for (slot, surface) in request.outputs.iter().zip(&accesses.outputs) {
            if slot.holds(filling, surface)? {
                untouched = Some(&slot.port);
            }
        }
        if untouched.is_none() {
            break;
        }
    }
    if let Some(port) = untouched {
        return Err(no_op("the output was not written").with_port(port));
    }
    for (slot, surface) in request.outputs.iter().zip(&accesses.outputs) {
        if !slot.holds(0, surface)? {
            return Ok(true);
        }
    }
    if !request.inputs.is_empty() && accesses.inputs.iter().all(|bytes| bytes.iter().all(|b| *b == 0)) {
        return Ok(false);
    }
    match echo(shared, assembly, function, request) {
        Ok(true) => Ok(true),
        Ok(false) => Err(no_op("every output is zero, and an echo in the program is not returned")),
        Err(error) => {
            // This is no evidence against the program itself.
            shared.note(format!("`{function}` gives zeros, and whether it ran could not be examined: {error}"));
            Ok(true)
        }
    }
}

/// Runs the program with an echo; true if the echo was returned.
fn echo(shared: &E5Context, assembly: &Assembly, function: &str, request: &Request) -> Result<bool> {
    let odd = |e: String| Error::new(ferrane_device::ErrorKind::System, e);
    let program = with_echo(assembly.program(), function).map_err(|e| odd(e.to_string()))?;
    let index = program.functions.iter().position(|f| f.name == function);
    let assembly = Assembly::new(shared, program)?;
    let engines = assembly.engines()?;
    let engine = index.and_then(|i| engines.get(i)).ok_or_else(|| odd("no such function".into()))?;

    let bytes = SharedBytes::new(size_of::<f32>()).map_err(|e| odd(e.to_string()))?;
    if let Some(mut bytes) = bytes.try_write() {
        bytes.copy_from_slice(&ECHO.to_le_bytes());
    }
    let one = list(&[number(1)?])?;
    let memory = bytes.address().as_ptr().cast_const().cast();
    let array = MultiArray::over(memory, &one, ArrayType::Fp32 as isize, &one, NoBlock::NIL)?;
    let features = request.features_and(ECHO_INPUT, &FeatureValue::with(&array)??)?;
    let found = Features::wrap(engine.predict(&features, &PredictionOptions::new()??)?);
    let value = found.value(&text(ECHO_OUTPUT)?)?.map(|v| v.array()).transpose()?.flatten();
    let Some(value) = value else { return Ok(false) };
    if value.dtype()? != ArrayType::Fp32 as isize || value.data()?.is_null() {
        return Ok(false);
    }
    // SAFETY: an fp32 array whose description has one element; the memory is valid while `value` is
    // held.
    let echo = unsafe { value.data()?.cast::<f32>().read_unaligned() };
    drop(bytes);
    Ok(echo == ECHO + 1.0)
}
