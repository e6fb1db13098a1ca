//! Executable plans: a lowered function with its constants, its memory resolved, and the table that
//! runs it.
//!
//! Invariant: the plan's own steps allocate nothing in an evaluation. The arena and the surfaces
//! are the caller's; only tensor ops allocate their values.

use std::time::{Duration, Instant};

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, ErrorKind, Layout, Procedure, Result};
use ferrane_host::buffer::AlignedBuf;
use ferrane_host::pool;
use ferrane_mil::{DataType, Function, Weights};

use crate::ir::{Access, Buffer, CodedWeight, Step, Storage, View};
use crate::plan::{self, LoweredPlan, Ports};
use crate::tables::Table;
use crate::tables::memory::{Constants, Memory};

/// A step with its memory resolved.
struct Resolved {
    step: Step,
    reads: Vec<Access>,
    writes: Vec<Access>,
    /// Offsets of element 0 of each read in its slice.
    bases: Vec<usize>,
}

/// A function ready to run.
pub(crate) struct ExecutablePlan {
    table: Table,
    steps: Vec<Resolved>,
    constants: AlignedBuf,
    /// Bytes of the arena that an evaluation needs.
    pub arena_bytes: usize,
    /// Its steps touch at least [`LARGE`] bytes, or compute [`LARGE_WORK`].
    large: bool,
    /// The function as the device reports it: name and ports.
    pub procedure: Procedure,
}

/// Bytes that the steps of a plan read and write together, from which on more than one thread may
/// pay off.
const LARGE: usize = 1 << 20;

/// The same for multiply-adds: some tens of microseconds of one thread.
const LARGE_WORK: usize = 1 << 22;

impl ExecutablePlan {
    /// A plan whose ports hold values as the table stores them, not as surfaces do: nothing is
    /// rounded on the way in and out.
    pub(crate) fn stored(function: &Function, weights: &Weights, table: &Table) -> Result<ExecutablePlan> {
        let mut ports = Ports::declared(0, function)?;
        for port in ports.procedure.inputs.iter_mut().chain(&mut ports.procedure.outputs) {
            if port.layout.dtype == DataType::Fp16 && table.half == Storage::F32 {
                port.layout = Layout::packed(DataType::Fp32, &port.layout.shape)?;
            }
        }
        ExecutablePlan::new(ports, function, weights, table)
    }

    /// Lowers a function and computes its constants.
    pub(crate) fn new(ports: Ports, function: &Function, weights: &Weights, table: &Table) -> Result<ExecutablePlan> {
        let lowered = plan::lower(&ports, function, weights, table.policy())?;
        let LoweredPlan { mut buffers, steps, initial, arena_bytes, constant_bytes } = lowered;
        let mut constants =
            AlignedBuf::new(constant_bytes).map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?;
        for buffer in &mut buffers {
            if let Some(data) = buffer.data.take() {
                let end = buffer.start + buffer.bytes().unwrap_or(0);
                data.write(&mut constants[buffer.start..end]).map_err(|e| Error::new(ErrorKind::Evaluate, e))?;
            }
        }
        for step in initial {
            let resolved = resolve(step, &buffers);
            let mut memory = Memory {
                constants: Constants::Write(&mut constants),
                arena: &mut [],
                inputs: &[],
                outputs: &mut [],
                states: &mut [],
            };
            run(table, &resolved, &mut memory)?;
        }
        let steps: Vec<_> = steps.into_iter().map(|s| resolve(s, &buffers)).collect();
        let touched: usize = steps.iter().flat_map(|s| s.reads.iter().chain(&s.writes)).map(|a| a.end - a.start).sum();
        let touched = touched + steps.iter().map(|s| s.step.coded_bytes()).sum::<usize>();
        let work = steps.iter().map(|s| s.step.multiply_adds()).fold(0, usize::saturating_add);
        let large = touched >= LARGE || work >= LARGE_WORK;
        Ok(ExecutablePlan { table: table.clone(), steps, constants, arena_bytes, large, procedure: ports.procedure })
    }

    /// Bytes of all constants that the plan holds itself.
    pub(crate) fn constant_bytes(&self) -> usize {
        self.constants.len()
    }

    /// The weights that the plan shares with its program, and with other plans of it.
    pub(crate) fn coded_weights(&self) -> impl Iterator<Item = &CodedWeight> {
        self.steps.iter().filter_map(|s| s.step.coded_weight())
    }

    /// Evaluates over bound surfaces, in port order.
    pub(crate) fn evaluate(&self, arena: &mut [u8], accesses: &mut Accesses) -> Result<()> {
        let mut memory = self.memory(arena, accesses);
        self.on_pool(|| self.steps.iter().try_for_each(|step| run(&self.table, step, &mut memory)))?;
        for (port, bytes) in self.procedure.outputs.iter().zip(&mut accesses.outputs) {
            self.table.leave(port.layout.dtype, bytes);
        }
        Ok(())
    }

    /// Runs the steps of a large plan on a thread of the pool: outside of it, every parallel step
    /// would wake the pool's threads and wait for them.
    fn on_pool(&self, steps: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        if self.large && pool::thread_index().is_none() { pool::scope(|_| steps()) } else { steps() }
    }

    fn memory<'a>(&'a self, arena: &'a mut [u8], accesses: &'a mut Accesses) -> Memory<'a> {
        Memory {
            constants: Constants::Read(&self.constants),
            arena,
            inputs: &accesses.inputs,
            outputs: &mut accesses.outputs,
            states: &mut accesses.states,
        }
    }

    /// Evaluates and calls `seen` for each step with its op, value, bytes read, bytes written and
    /// time.
    pub(crate) fn timed(
        &self,
        arena: &mut [u8],
        accesses: &mut Accesses,
        seen: &mut (dyn FnMut(&str, &str, usize, usize, Duration) + Send),
    ) -> Result<()> {
        let mut memory = self.memory(arena, accesses);
        let bytes = |a: &[Access]| a.iter().map(|a| a.end - a.start).sum();
        self.on_pool(|| {
            self.steps.iter().try_for_each(|step| {
                let start = Instant::now();
                run(&self.table, step, &mut memory)?;
                let read = bytes(&step.reads) + step.step.coded_bytes();
                seen(&step.step.op, &step.step.value, read, bytes(&step.writes), start.elapsed());
                Ok(())
            })
        })
    }
}

fn run(table: &Table, step: &Resolved, memory: &mut Memory<'_>) -> Result<()> {
    table.run(&step.step, memory, &step.reads, &step.writes, &step.bases)
}

fn resolve(step: Step, buffers: &[Buffer<'_>]) -> Resolved {
    let access = |v: &View| {
        let (low, high) = v.span();
        let (buffer, size) = (&buffers[v.buffer], v.storage.bytes());
        let (start, end) = (buffer.start + low * size, buffer.start + high * size);
        Access { space: buffer.space, start, end, storage: v.storage }
    };
    Resolved {
        reads: step.reads.iter().map(access).collect(),
        writes: step.writes.iter().map(access).collect(),
        bases: step.reads.iter().map(|v| v.offset - v.span().0).collect(),
        step,
    }
}

#[cfg(test)]
mod tests {
    use ferrane_mil::{Builder, Constant, DataType, Opset, Type};

    use super::*;
    use crate::tables::FAST;

    /// A plan that adds the largest of `1.5` repeated to its input.
    fn repeated(times: i32) -> ExecutablePlan {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[1])).unwrap();
        let one = b.weight("one", "@model_path/w.bin", DataType::Fp16, &[1], vec![0x00, 0x3E]).unwrap();
        let many = b.op("tile", "many", [("x", one.into()), ("reps", Constant::int32s(&[times]).into())]).unwrap();
        let axes = Constant::int32s(&[0]);
        let args = [("x", many.into()), ("axes", axes.into()), ("keep_dims", Constant::bool(true).into())];
        let most = b.op("reduce_max", "most", args).unwrap();
        let y = b.add("y", x, most).unwrap();
        let program = b.finish(&[("y", y)]).unwrap();
        let ports = Ports::declared(0, &program.functions[0]).unwrap();
        ExecutablePlan::new(ports, &program.functions[0], &program.weights, &FAST).unwrap()
    }

    #[test]
    fn constants_are_folded_as_long_as_they_stay_small() {
        let small = repeated(1000);
        assert_eq!((small.steps.len(), small.constants.len() >= 2000), (1, true));
        // More than a compile may fold, but small enough that a compile that does fold it only
        // fails this test.
        let large = repeated(1 << 24);
        assert!(large.constants.len() < FOLDED && large.arena_bytes >= 1 << 25, "{}", large.constants.len());
        assert!(large.steps.len() > 1);
    }

    const FOLDED: usize = 2 << 20;
}
