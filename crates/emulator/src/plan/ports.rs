//! The ports of a function, and their positions in the procedure that the compiled program reports.
//!
//! A machine may order ports in its own way and pad their rows, so a plan looks up the position and
//! the layout of each port instead of taking them from the program.

use ferrane_device::{Error, ErrorKind, Layout, Port, Procedure, Result};
use ferrane_mil::{Function, Type, ValueId};

use crate::ir::Storage;

/// A procedure, and the positions of the function's inputs and outputs in it. States keep the
/// function's order.
pub(crate) struct Ports {
    pub procedure: Procedure,
    /// For each input of the function that is not a state, its position among the procedure's
    /// inputs.
    pub inputs: Vec<usize>,
    /// The same for outputs.
    pub outputs: Vec<usize>,
}

impl Ports {
    /// Ports in program order, packed.
    pub(crate) fn declared(id: u32, function: &Function) -> Result<Ports> {
        let is_state = |v: &&ValueId| matches!(function.value(**v).ty, Type::State(_));
        let port = |(symbol, &value)| port(function, symbol, value);
        let procedure = Procedure {
            name: function.name.clone(),
            id,
            inputs: function.inputs.iter().filter(|v| !is_state(v)).enumerate().map(port).collect::<Result<_>>()?,
            outputs: function.body().outputs.iter().enumerate().map(port).collect::<Result<_>>()?,
            states: function.inputs.iter().filter(is_state).enumerate().map(port).collect::<Result<_>>()?,
        };
        let (inputs, outputs) = (0..procedure.inputs.len(), 0..procedure.outputs.len());
        Ok(Ports { inputs: inputs.collect(), outputs: outputs.collect(), procedure })
    }

    /// Reorders inputs and outputs with the given functions. Symbol indices follow the new order.
    pub(crate) fn sort(&mut self, inputs: impl FnOnce(&mut [&Port]), outputs: impl FnOnce(&mut [&Port])) {
        sort(&mut self.procedure.inputs, &mut self.inputs, inputs);
        sort(&mut self.procedure.outputs, &mut self.outputs, outputs);
    }

    /// Pads the rows of every port to a multiple of `alignment` bytes.
    pub(crate) fn align(&mut self, alignment: usize) -> Result<()> {
        let Procedure { inputs, outputs, states, .. } = &mut self.procedure;
        for port in inputs.iter_mut().chain(outputs).chain(states) {
            let layout = Layout::with_row_alignment(port.layout.dtype, &port.layout.shape, alignment);
            port.layout = layout.map_err(|e| e.with_port(&port.name))?;
        }
        Ok(())
    }
}

/// Sorts ports. Before the call, symbols are positions.
fn sort(ports: &mut Vec<Port>, places: &mut [usize], by: impl FnOnce(&mut [&Port])) {
    let mut sorted: Vec<&Port> = ports.iter().collect();
    by(&mut sorted);
    let old: Vec<u32> = sorted.iter().map(|p| p.symbol).collect();
    *ports = sorted.into_iter().cloned().collect();
    for place in places {
        *place = old.iter().position(|&s| s as usize == *place).unwrap_or(*place);
    }
    for (symbol, port) in ports.iter_mut().enumerate() {
        port.symbol = symbol as u32;
    }
}

fn port(function: &Function, symbol: usize, value: ValueId) -> Result<Port> {
    let value = function.value(value);
    let refused = |reason: &str| {
        let message = format!("no surface can hold a value of type {}: {reason}", value.ty);
        Err(Error::new(ErrorKind::Unsupported, message).with_port(&value.name))
    };
    let Some(dtype) = value.ty.dtype() else { return refused("it is not a tensor") };
    if Storage::of(dtype).is_none() {
        return refused("the element type is not one of a surface");
    }
    let Some(shape) = value.ty.shape() else {
        return refused(
            "an extent is not known; declare fixed extents, or run the function on constants (`Emulator::call`)",
        );
    };
    if shape.contains(&0) {
        return refused("it has no elements");
    }
    let layout = Layout::packed(dtype, &shape).map_err(|e| e.with_port(&value.name))?;
    Ok(Port { name: value.name.clone(), symbol: symbol as u32, layout })
}
