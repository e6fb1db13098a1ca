//! What a function is compiled to: a plan, or the function itself for the interpreter.

use std::sync::Arc;

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, ErrorKind, Port, Procedure, Result};
use ferrane_mil::{DataType, Function, Weights};

use crate::host::{Tensor, decode};
use crate::interpret::{self, Bounds, Interpreted};
use crate::plan::{Plan, ports};
use crate::tables::Table;

/// A function ready to run over surfaces.
pub(crate) enum Body {
    Plan(Box<Plan>),
    Interpreted(Box<Interpreted>, Procedure),
}

impl Body {
    /// Compiles a function that passed `verify` and `check`.
    pub(crate) fn new(
        id: u32,
        function: &Function,
        weights: &Weights,
        table: &'static Table,
        bounds: Bounds,
    ) -> Result<Body> {
        if interpret::is_needed(function) {
            let procedure = ports(id, function)?;
            Ok(Body::Interpreted(Box::new(Interpreted::new(function, weights, table, bounds)?), procedure))
        } else {
            let plan = Plan::new(id, function, weights, table)?;
            if plan.arena_bytes > bounds.memory {
                let message = format!(
                    "`{}`: an evaluation needs {} bytes and may hold {}",
                    function.name, plan.arena_bytes, bounds.memory
                );
                return Err(Error::new(ErrorKind::OutOfMemory, message));
            }
            Ok(Body::Plan(Box::new(plan)))
        }
    }

    pub(crate) fn procedure(&self) -> &Procedure {
        match self {
            Body::Plan(plan) => &plan.procedure,
            Body::Interpreted(_, procedure) => procedure,
        }
    }
}

/// Evaluates an interpreted function over surfaces. States are written only if it succeeds.
pub(crate) fn interpret(function: &Interpreted, procedure: &Procedure, accesses: &mut Accesses) -> Result<()> {
    let read = |(port, bytes): (&Port, &[u8])| {
        let dtype = port.layout.dtype;
        let data = decode(dtype, port.layout.elements(), bytes).ok_or_else(|| small(port))?;
        Ok(Tensor { dtype, shape: port.layout.shape.clone(), data })
    };
    let inputs = procedure.inputs.iter().zip(accesses.inputs.iter().map(|g| &g[..])).map(read);
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let states = procedure.states.iter().zip(accesses.states.iter().map(|g| &g[..])).map(read);
    let mut states = states.map(|t| t.map(Arc::new)).collect::<Result<Vec<_>>>()?;
    let outputs = function.evaluate(inputs, &mut states)?;
    let results = procedure.outputs.iter().zip(&outputs).chain(procedure.states.iter().zip(&states));
    let guards = accesses.outputs.iter_mut().chain(accesses.states.iter_mut());
    for ((port, tensor), _) in results.clone().zip(0..procedure.outputs.len()) {
        // Checked before anything is written.
        fits(port, tensor)?;
    }
    for ((port, tensor), guard) in results.zip(guards) {
        let bytes = tensor.to_bytes(port.layout.dtype);
        guard.get_mut(..bytes.len()).ok_or_else(|| small(port))?.copy_from_slice(&bytes);
    }
    Ok(())
}

fn fits(port: &Port, tensor: &Tensor) -> Result<()> {
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
