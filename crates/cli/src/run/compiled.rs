//! A compiled program (`.hwx`), run by the emulator.

use std::path::Path;
use std::time::Instant;

use ferrane::Interpreter;
use ferrane::hwx::Hwx;
use ferrane::hwx::bundle::{self, FileKind};
use ferrane::mil::{DataType, Type, Weights};
use ferrane::tensor_io::{TensorSource, Unnamed, values};
use ferrane::{Tensor, Tensors};

use super::{Ran, is_emulator, open, show, value_error};
use crate::args::{OutputFormat, Run};
use crate::error::{Error, Result};
use crate::{files, out};

/// The bytes of a compiled program; `None` for a file that is none.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    if files::is_stdin(path) {
        return Ok(None);
    }
    // The reader of programs reports what cannot be opened.
    match bundle::file(path) {
        Ok(Some((FileKind::Hwx, _))) => files::read(path).map(Some),
        _ => Ok(None),
    }
}

/// Runs it on the given inputs.
pub fn run(args: &Run, spec: &str, file: &[u8], sources: &[(String, TensorSource)]) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| files::failed(&args.program, e);
    if !is_emulator(spec) {
        return Err(Error::new("a compiled program is run by the emulator only; leave --device out"));
    }
    if args.audit || args.proof || !args.states.is_empty() {
        return Err(Error::new("a compiled program has no ops and no states; leave out --audit, --proof and --state"));
    }
    if !args.shapes.is_empty() || args.resize || args.output_format == OutputFormat::Png {
        return Err(Error::new(
            "a compiled program has one shape and no description; leave out --shape, --resize and --output-format png",
        ));
    }
    let hwx = Hwx::read(file).map_err(|e| failed(&e))?;
    let emulator = ferrane::emulator(spec)?;
    let interpreter = Interpreter::new(&emulator, &hwx, args.function.as_deref()).map_err(|e| failed(&e))?;
    for note in interpreter.notes() {
        out::note(format_args!("note: {note}"));
    }
    let types: Vec<_> = interpreter.inputs().map(|p| (p, Type::tensor(DataType::Fp16, &p.shape))).collect();
    // Symbols name tensors as well as their own names do.
    let own = |(name, source): &(String, TensorSource)| {
        let port = types.iter().find(|(p, _)| p.symbol == *name);
        (port.map_or(name, |(p, _)| &p.name).clone(), source.clone())
    };
    let sources: Vec<_> = sources.iter().map(own).collect();
    let ports: Vec<(&str, &Type)> = types.iter().map(|(p, ty)| (p.name.as_str(), ty)).collect();
    let inputs = values(interpreter.name(), &ports, &sources, Unnamed::Refuse).map_err(|e| value_error(e.into()))?;
    let inputs: Vec<_> = inputs.into_iter().map(|(name, tensor)| (name, tensor.to_constant())).collect();
    let begun = Instant::now();
    let outputs = interpreter.run(&inputs)?;
    let wall = begun.elapsed();
    let tensor = |(name, constant)| Ok((name, Tensor::from_constant(&constant, &Weights::new())?));
    let outputs: Tensors = outputs.into_iter().map(tensor).collect::<Result<_>>()?;
    let ran = Ran { function: interpreter.name(), device: &open(spec)?.name(), outputs: &outputs, wall };
    show(args, &ran, None)
}
