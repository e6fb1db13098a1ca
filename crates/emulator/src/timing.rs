//! Where the time of a program goes: one evaluation, step by step.

use std::time::Duration;

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::buffer::{AlignedBuf, SharedBytes};
use ferrane_mil::{DataType, Program};

use crate::executable::ExecutablePlan;
use crate::plan::Ports;
use crate::tables::Table;

/// One step of a plan: a group of element-wise ops, a product, a copy, …
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepTime {
    /// The MIL op; for a group, its last one.
    pub op: String,
    /// The value that it computes.
    pub value: String,
    /// Bytes between the first and the last element read, all operands together.
    pub read: usize,
    /// The same for what it writes.
    pub written: usize,
    /// The shortest of its times over all runs.
    pub wall: Duration,
}

/// Runs the first function `runs` times over small numbers and keeps the shortest time of each
/// step.
pub(crate) fn time_steps(table: &Table, program: &Program, runs: usize) -> Result<Vec<StepTime>> {
    let memory = |e: ferrane_host::buffer::AllocError| Error::new(ErrorKind::OutOfMemory, e.to_string());
    let function = program
        .functions
        .first()
        .ok_or_else(|| Error::new(ErrorKind::InvalidProgram, "the program has no function"))?;
    let plan = ExecutablePlan::new(Ports::declared(0, function)?, function, &program.weights, table)?;
    let mut arena = AlignedBuf::new(plan.arena_bytes).map_err(memory)?;
    let busy = || Error::new(ErrorKind::Busy, "the memory of the timed plan is in use");
    let mut accesses = Accesses::default();
    for port in &plan.procedure.inputs {
        let bytes = SharedBytes::new(port.layout.allocation).map_err(memory)?;
        let mut guard = bytes.try_write().ok_or_else(busy)?;
        match port.layout.dtype {
            // A few magnitudes below 1, both signs; zeros would not be representative.
            DataType::Fp16 => {
                for (i, b) in guard.chunks_exact_mut(2).enumerate() {
                    let v = ((i * 7919 % 2003) as f32 - 1001.0) * 2e-4;
                    b.copy_from_slice(&ferrane_host::f16::from_f32(v).to_le_bytes());
                }
            }
            DataType::Fp32 => {
                for (i, b) in guard.chunks_exact_mut(4).enumerate() {
                    b.copy_from_slice(&(((i * 7919 % 2003) as f32 - 1001.0) * 2e-4).to_le_bytes());
                }
            }
            _ => {}
        }
        drop(guard);
        accesses.inputs.push(bytes.try_read().ok_or_else(busy)?);
    }
    for (ports, guards) in
        [(&plan.procedure.outputs, &mut accesses.outputs), (&plan.procedure.states, &mut accesses.states)]
    {
        for port in ports {
            let bytes = SharedBytes::new(port.layout.allocation).map_err(memory)?;
            guards.push(bytes.try_write().ok_or_else(busy)?);
        }
    }
    let mut steps: Vec<StepTime> = Vec::new();
    for run in 0..runs.max(1) {
        let mut at = 0;
        plan.timed(&mut arena, &mut accesses, &mut |op, value, read, written, wall| {
            if run == 0 {
                steps.push(StepTime { op: op.into(), value: value.into(), read, written, wall });
            } else if let Some(step) = steps.get_mut(at) {
                step.wall = step.wall.min(wall);
            }
            at += 1;
        })?;
    }
    Ok(steps)
}
