//! Compiled programs (`.hwx`), run on the CPU from their registers, weights and tables alone.
//!
//! They are a second source of plans. Each task is decoded (`decode`) into an operation and the
//! addresses of its operands. Its arithmetic becomes a plan of its own (`arithmetic`), so all
//! numbers come from the emulator's tables. Its memory is bytes at the addresses in the registers
//! (`memory`), so tasks pass values as on the engine: through buffers and through L2, by address.
//!
//! Nothing is guessed. An undescribed value of a register, a missing stride that matters, or a read
//! of bytes that no task has written refuses the program, with the task and the register
//! ([`Interpreter::new`]). Behavior that is inferred from samples, and is not a checked fact, is
//! listed by [`Interpreter::notes`]. docs/hwx.md says what is known.
//!
//! Files may be hostile: addresses, extents and weights are bounded by the buffers that they lie
//! in, and buffers by a fixed size.
//!
//! No result of this module has been compared with a machine.

mod arithmetic;
mod decode;
mod kernel;
mod memory;
mod operands;
mod planar;
mod rules;
mod step;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferrane_arith::Rounding;
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_hwx::Hwx;
use ferrane_hwx::container::{Bindings, Direction};
use ferrane_mil::{Constant, DataType, Type, Weights};

use crate::Emulator;
use crate::call::evaluate_plan;
use crate::executable::ExecutablePlan;
use crate::refusal::refused;
use crate::tensor_ops::{Data, HeapTensor};
use memory::Buffers;
use step::{Op, TaskStep};
use task::Task;

/// The most multiplications, additions and moves of one evaluation, so that no file runs for hours.
const WORK: u64 = 1 << 40;

/// A compiled program, ready to run.
pub struct Interpreter {
    name: String,
    buffers: Buffers,
    ports: Vec<Port>,
    tasks: Vec<(TaskStep, Box<ExecutablePlan>)>,
    notes: Vec<String>,
    rounding: Rounding,
    memory: usize,
}

/// A tensor of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the tensor; its symbol if the file has none.
    pub name: String,
    /// Name of the symbol, `probs@output`; inputs may be given by it as well.
    pub symbol: String,
    /// True for an input.
    pub is_input: bool,
    /// Extents `[N, C, H, W]`; the elements are fp16.
    pub shape: [usize; 4],
}

impl Interpreter {
    /// Prepares a program of a file, with the arithmetic of an emulator. Without a name, it is the
    /// first program of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a program that is not run: the message names the task and the
    /// register. [`ErrorKind::Binding`] if there is no such program, [`ErrorKind::OutOfMemory`] if
    /// it needs more than the emulator may use.
    pub fn new(emulator: &Emulator, hwx: &Hwx, program: Option<&str>) -> Result<Interpreter> {
        let programs = hwx.programs();
        let found = programs.iter().find(|p| program.is_none_or(|name| p.name == name));
        let found = found.ok_or_else(|| {
            let known: Vec<&str> = programs.iter().map(|p| p.name.as_str()).collect();
            let message = format!("no program `{}`; there are {}", program.unwrap_or_default(), known.join(", "));
            Error::new(ErrorKind::Binding, message)
        })?;
        let generation = hwx.generation().filter(|g| rules::runs(g)).ok_or_else(|| {
            let name = hwx.generation().map_or_else(|| format!("subtype {}", hwx.subtype), |g| g.name.to_string());
            refused(format!("programs of {name} are not run, only those of h13, h16 and h17"))
        })?;
        let text = hwx.task_sections().into_iter().find(|(section, _)| section.addr == found.text_addr);
        let (section, first) = text.ok_or_else(|| refused(format!("the program {} has no tasks", found.name)))?;
        let descriptors = hwx.tasks(&section, first).map_err(|e| refused(e.to_string()))?;
        if descriptors.len() as u64 != u64::from(found.tasks) {
            let message =
                format!("the program says it has {} tasks, its section has {}", found.tasks, descriptors.len());
            return Err(refused(message));
        }
        let mut buffers = Buffers::new(hwx, &Bindings::of(hwx, found))?;
        let (mut tasks, mut notes, mut work) = (Vec::new(), Vec::new(), 0u64);
        for descriptor in &descriptors {
            let task = Task::new(generation, descriptor);
            let step = task.step(&mut buffers)?;
            work = work.saturating_add(effort(&step));
            if work > WORK {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!("the program takes more than {WORK:#x} operations"),
                ));
            }
            for note in task.notes.into_inner() {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            let plan = arithmetic::plan(emulator, &step)?;
            tasks.push((step, plan));
        }
        for port in buffers.ports.iter().filter(|p| p.direction == Direction::Output) {
            buffers.readable(&port.span).map_err(|why| refused(format!("output {}: {why}", port.tensor.name)))?;
        }
        buffers.settle();
        let port = |p: &memory::Port| Port {
            name: if p.tensor.name.is_empty() { p.tensor.symbol.clone() } else { p.tensor.name.clone() },
            symbol: p.tensor.symbol.clone(),
            is_input: p.direction == Direction::Input,
            shape: p.shape,
        };
        Ok(Interpreter {
            name: found.name.clone(),
            ports: buffers.ports.iter().map(port).collect(),
            buffers,
            tasks,
            notes,
            rounding: emulator.table().rules().map_or(Rounding::Even, |r| r.rounding),
            memory: emulator.bounds().memory,
        })
    }

    /// Name of the program in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tensors that the program reads.
    pub fn inputs(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|p| p.is_input)
    }

    /// The tensors that the program writes.
    pub fn outputs(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|p| !p.is_input)
    }

    /// The unchecked assumptions on which its results rest, inferred from samples or reported: one
    /// sentence each, with the task.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Runs the program on values of its inputs, by name. Outputs are in the file's order.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an input that is missing, unknown, or of a wrong type or shape.
    pub fn run(&self, inputs: &[(String, Constant)]) -> Result<Vec<(String, Constant)>> {
        let is = |port: &Port, name: &str| port.name == name || port.symbol == name;
        if let Some((name, _)) = inputs.iter().find(|(name, _)| !self.inputs().any(|p| is(p, name))) {
            return Err(Error::new(ErrorKind::Binding, "the program has no such input").with_port(name));
        }
        let mut bytes = self.buffers.fresh();
        let ports = || self.ports.iter().zip(&self.buffers.ports);
        for (port, place) in ports().filter(|(p, _)| p.is_input) {
            let given = inputs.iter().find(|(name, _)| is(port, name));
            let wrong = |message: String| Error::new(ErrorKind::Binding, message).with_port(&port.name);
            let (_, constant) = given.ok_or_else(|| wrong("no value is given".to_string()))?;
            let wanted = Type::tensor(DataType::Fp16, &port.shape);
            let tensor = HeapTensor::from_constant(constant, &Weights::new()).filter(|_| constant.ty() == wanted);
            match tensor.map(|t| t.data) {
                Some(Data::Floats(values)) => memory::store(&mut bytes, &place.span, values.into_iter()),
                _ => return Err(wrong(format!("the value is {}, the program expects {wanted}", constant.ty()))),
            }
        }
        self.tasks.iter().try_for_each(|(step, plan)| self.run_task(step, plan, &mut bytes))?;
        let output = |(port, place): (&Port, &memory::Port)| {
            let values = memory::load(&bytes, &place.span);
            (port.name.clone(), HeapTensor::floats(DataType::Fp16, &port.shape, values).to_constant())
        };
        Ok(ports().filter(|(p, _)| !p.is_input).map(output).collect())
    }

    fn run_task(&self, step: &TaskStep, plan: &ExecutablePlan, bytes: &mut [Vec<u8>]) -> Result<()> {
        let mut inputs = Vec::new();
        for span in &step.sources {
            inputs.push(HeapTensor::floats(DataType::Fp16, &span.extents, memory::load(bytes, span)));
        }
        if let (Some(kept), Some(source)) = (&step.kept, inputs.first()) {
            let values = (0..source.len()).map(|i| source.float(i));
            memory::store(bytes, kept, values);
        }
        if let (Some(kernel), Op::Product { outputs }) = (&step.kernel, &step.op) {
            let values = kernel.places.iter().map(|at| memory::half(&bytes[kernel.buffer], *at)).collect();
            let [groups, channels, ..] = step.sources[0].extents;
            inputs.push(HeapTensor::floats(DataType::Fp16, &[groups, *outputs, channels], values));
        }
        let results = evaluate_plan(plan, inputs, &mut [], self.memory)?;
        let result: &Arc<HeapTensor> = results.first().ok_or_else(|| refused("a task has no result"))?;
        let value = |i: usize| match &step.after.function {
            Some(table) if !result.float(i).is_nan() => {
                table.evaluate(self.rounding, result.float(i)).unwrap_or(f32::NAN)
            }
            _ => result.float(i),
        };
        memory::store(bytes, &step.result, (0..result.len()).map(value));
        Ok(())
    }
}

/// Number of operations of a step.
fn effort(step: &TaskStep) -> u64 {
    let count = |n: usize| n as u64;
    let elements = |e: &[usize; 4]| e.iter().fold(1u64, |n, e| n.saturating_mul(count(*e)));
    let extents = &step.result.extents;
    let places = count(extents[0]).saturating_mul(count(extents[2])).saturating_mul(count(extents[3]));
    let products = match &step.op {
        Op::Conv { weights, .. } => places.saturating_mul(count(weights.bits.len())),
        Op::Product { .. } => {
            let kernel = step.kernel.as_ref().map_or(0, |k| count(k.places.len()));
            kernel.saturating_mul(count(extents[2])).saturating_mul(count(extents[3]))
        }
        _ => 0,
    };
    let moved = step.sources.iter().map(|s| elements(&s.extents)).fold(elements(extents), u64::saturating_add);
    products.saturating_add(moved)
}
