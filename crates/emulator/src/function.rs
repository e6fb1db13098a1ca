//! A compiled function: a plan, or the function itself for the interpreter.

use std::borrow::Cow;
use std::sync::Arc;

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, ErrorKind, Layout, Port, Procedure, Result};
use ferrane_mil::{DataType, Function, Weights};

use crate::executable::ExecutablePlan;
use crate::interpret::{self, Bounds, Interpreted};
use crate::plan::Ports;
use crate::tables::Table;
use crate::tensor_ops::{HeapTensor, decode};

/// A function ready to run over surfaces.
pub(crate) enum CompiledFunction {
    Plan(Box<ExecutablePlan>),
    Interpreted(Box<Interpreted>, Ports),
}

impl CompiledFunction {
    /// Compiles a function that passed `verify` and `check`.
    pub(crate) fn new(
        ports: Ports,
        function: &Function,
        weights: &Weights,
        table: &Table,
        bounds: Bounds,
    ) -> Result<CompiledFunction> {
        if interpret::is_needed(function) {
            Ok(CompiledFunction::Interpreted(Box::new(Interpreted::new(function, weights, table, bounds)?), ports))
        } else {
            let plan = ExecutablePlan::new(ports, function, weights, table)?;
            if plan.arena_bytes > bounds.memory {
                let message = format!(
                    "`{}`: an evaluation needs {} bytes and may hold {}",
                    function.name, plan.arena_bytes, bounds.memory
                );
                return Err(Error::new(ErrorKind::OutOfMemory, message));
            }
            Ok(CompiledFunction::Plan(Box::new(plan)))
        }
    }

    /// Bytes of the constants that a plan holds; an interpreted function holds none.
    pub(crate) fn constant_bytes(&self) -> usize {
        match self {
            CompiledFunction::Plan(plan) => plan.constant_bytes(),
            CompiledFunction::Interpreted(..) => 0,
        }
    }

    /// Where the weights lie that a plan shares with others, and their bytes.
    pub(crate) fn shared_constants(&self) -> Vec<(usize, usize)> {
        match self {
            CompiledFunction::Plan(plan) => {
                plan.coded_weights().map(|w| (w.codes.as_ptr().addr(), w.bytes())).collect()
            }
            CompiledFunction::Interpreted(..) => Vec::new(),
        }
    }

    pub(crate) fn procedure(&self) -> &Procedure {
        match self {
            CompiledFunction::Plan(plan) => &plan.procedure,
            CompiledFunction::Interpreted(_, ports) => &ports.procedure,
        }
    }
}

/// Evaluates an interpreted function over surfaces. States are written only if it succeeds.
pub(crate) fn interpret(function: &Interpreted, ports: &Ports, accesses: &mut Accesses) -> Result<()> {
    let procedure = &ports.procedure;
    let read = |port: &Port, bytes: &[u8]| {
        let Layout { dtype, shape, .. } = &port.layout;
        let bytes = packed(port, bytes)?;
        let data = decode(*dtype, port.layout.elements(), &bytes).ok_or_else(|| small(port))?;
        Ok(HeapTensor { dtype: *dtype, shape: shape.clone(), data })
    };
    let given: Vec<_> = procedure.inputs.iter().zip(&accesses.inputs).collect();
    let inputs = ports.inputs.iter().filter_map(|&i| given.get(i)).map(|(port, guard)| read(port, guard));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let states = procedure.states.iter().zip(&accesses.states).map(|(port, guard)| read(port, guard).map(Arc::new));
    let mut states = states.collect::<Result<Vec<_>>>()?;
    let outputs = function.evaluate(inputs, &mut states)?;
    let results: Vec<_> = outputs.iter().zip(&ports.outputs).collect();
    for &(tensor, &place) in &results {
        // Checked before anything is written.
        procedure.outputs.get(place).map_or(Ok(()), |port| fits(port, tensor))?;
    }
    for (tensor, &place) in results {
        if let (Some(port), Some(guard)) = (procedure.outputs.get(place), accesses.outputs.get_mut(place)) {
            unpack(port, &tensor.to_bytes(port.layout.dtype), guard)?;
        }
    }
    for ((port, tensor), guard) in procedure.states.iter().zip(&states).zip(&mut accesses.states) {
        unpack(port, &tensor.to_bytes(port.layout.dtype), guard)?;
    }
    Ok(())
}

/// The elements of a surface, row-major without gaps.
fn packed<'a>(port: &Port, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    if port.layout.is_packed() {
        return Ok(bytes.into());
    }
    Ok(port.layout.pack(bytes).ok_or_else(|| small(port))?.into())
}

/// Writes packed elements to the rows of a layout.
fn unpack(port: &Port, packed: &[u8], bytes: &mut [u8]) -> Result<()> {
    port.layout.unpack(packed, bytes).ok_or_else(|| small(port))
}

fn fits(port: &Port, tensor: &HeapTensor) -> Result<()> {
    let (dtype, shape): (DataType, &[usize]) = (port.layout.dtype, &port.layout.shape);
    if tensor.dtype == dtype && tensor.shape == shape {
        return Ok(());
    }
    let message = format!("the result is {} {:?}, not {dtype} {shape:?} as declared", tensor.dtype, tensor.shape);
    Err(Error::new(ErrorKind::Evaluate, message).with_port(&port.name))
}

fn small(port: &Port) -> Error {
    Error::new(ErrorKind::Binding, "the surface is too small").with_port(&port.name)
}
