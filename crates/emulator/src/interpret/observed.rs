//! Observed evaluation: a function runs op by op, and the caller reads and may replace every value.
//!
//! Values live until the caller leaves the op with [`Observed::leave`]. So between the two calls an
//! op's operands and all its results are available, even results that no op reads. Plans and
//! constants of earlier ops are not kept: only values that later ops need occupy memory.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_host::sync::lock;
use ferrane_mil::{Function, OpId, ValueDef, ValueId, Weights};

use super::analysis::Analysis;
use super::bounds::Bounds;
use super::cache::Cache;
use super::failure::{broken, known_opset};
use super::machine::{Machine, Value};
use crate::tables::Table;
use crate::tensor_ops::HeapTensor;

/// One arithmetic in the middle of a function.
pub(crate) struct Observed<'a> {
    machine: Machine<'a>,
    analysis: &'a Analysis,
}

impl<'a> Observed<'a> {
    /// Before the first op. The function passed `verify`, `check` and [`refuse`](super::refuse).
    pub(crate) fn new(
        function: &'a Function,
        weights: &'a Weights,
        analysis: &'a Analysis,
        cache: &'a Cache,
        (table, limits): (&'a Table, Bounds),
    ) -> Result<Observed<'a>> {
        let opset = known_opset(function)?;
        let mut machine = Machine::new(function, weights, opset, table, limits, cache);
        machine.analysis = Some(analysis);
        Ok(Observed { machine, analysis })
    }

    /// Binds the function's inputs and states.
    pub(crate) fn bind(&mut self, inputs: &[Arc<HeapTensor>], states: &[Arc<HeapTensor>]) -> Result<()> {
        self.machine.bind_ports(inputs.iter().cloned(), states)
    }

    /// Runs a live op of the body that is not a constant.
    pub(crate) fn step(&mut self, op: OpId) -> Result<()> {
        self.machine.step(op)
    }

    /// The tensor of a value, if it has one.
    pub(crate) fn tensor(&self, id: ValueId) -> Option<Arc<HeapTensor>> {
        self.machine.tensor(id).ok()
    }

    /// Replaces the results of an op, and the states, with those of another arithmetic.
    pub(crate) fn follow(
        &mut self,
        other: &Observed<'_>,
        op: OpId,
        change: &impl Fn(Arc<HeapTensor>) -> Arc<HeapTensor>,
    ) -> Result<()> {
        let function = self.machine.function;
        let folded = function.op(op).name.starts_with("constexpr_");
        for &id in &function.op(op).outputs {
            match other.machine.value(id)? {
                Value::Tensor(tensor) if folded => {
                    lock(&self.machine.cache.constants).insert(id, change(tensor));
                }
                Value::Tensor(tensor) => self.machine.bind(id, Value::Tensor(change(tensor))),
                Value::List(list) => {
                    let mut list = (*list).clone();
                    list.elements.iter_mut().for_each(|tensor| *tensor = tensor.take().map(change));
                    self.machine.bind(id, Value::List(Arc::new(list)));
                }
                Value::State(_) => return Err(broken("an op makes a state")),
            }
        }
        self.machine.states = other.machine.states.clone();
        Ok(())
    }

    /// Drops the values that no later op needs.
    pub(crate) fn leave(&mut self, op: OpId) {
        let (function, cache) = (self.machine.function, self.machine.cache);
        lock(&cache.plans).clear();
        let dying = self.analysis.dying(op);
        for &value in dying {
            self.machine.drop_value(value);
        }
        let folded = |id: &ValueId| match function.value(*id).def {
            ValueDef::Op(op, _) => function.op(op).name.starts_with("constexpr_"),
            _ => false,
        };
        lock(&cache.constants).retain(|id, _| folded(id) && !dying.contains(id));
    }
}
