//! Did it compute? The E5 runtime is known to report success where nothing ran (apple-runtime §9).
//!
//! A program is examined at its first evaluation, and again until one tells. There are two signs
//! that nothing ran:
//!
//! - An output still holds what it was filled with before. A program might compute just that, so it
//!   runs again over another filling: no program computes both. What holds both was not written.
//! - All outputs are zeros, and the inputs are not. Many programs compute zeros (a product with a
//!   weight that is zero before training begins), and no look at inputs and outputs tells them from
//!   silence. So the program is compiled once more with an echo in it
//!   ([`ferrane_mil::boundary::with_echo`]) and run over the same inputs: a program that runs
//!   echoes, whatever else it computes.
//!
//! So a program that computes is never refused. Where inputs are zeros too nothing can be told, and
//! the next evaluation is examined.

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

/// Fillings: as fp32 two NaNs whose low bits no cast from a smaller type gives.
const FILLINGS: [u32; 2] = [0x7FC5_EED5, 0xFFCA_1157];

/// What is echoed: exact in fp16, and so is the answer.
const ECHO: f32 = 2.0;

fn no_op(what: &str) -> Error {
    Error::from_raw("E5RT", 0, &format!("silent no-op: {what}"))
}

/// Evaluates, and looks whether the program computed; true if that is proven now.
///
/// # Errors
/// As an evaluation, and that it did not.
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
        Ok(false) => Err(no_op("every output is zero, and an echo in the program does not come back")),
        Err(error) => {
            // Nothing speaks against the program itself.
            shared.note(format!("`{function}` gives zeros, and whether it ran could not be examined: {error}"));
            Ok(true)
        }
    }
}

/// Runs the program with an echo in it; true if it came back.
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
    // SAFETY: an array of fp32 whose description has one element; it lives while `value` is held.
    let echo = unsafe { value.data()?.cast::<f32>().read_unaligned() };
    drop(bytes);
    Ok(echo == ECHO + 1.0)
}
