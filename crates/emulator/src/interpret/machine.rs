//! One evaluation: values, blocks, ops.

use std::collections::HashMap;
use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;
use ferrane_mil::{Arg, BlockId, DataType, Function, Op, OpId, Opset, Type, ValueDef, ValueId, Weights};

use super::analysis::Analysis;
use super::bounds::Bounds;
use super::cache::Cache;
use super::empty;
use super::failure::{broken, failed};
use super::single::Single;
use crate::plan::has_steps;
use crate::refusal::{refusal, unsupported};
use crate::tables::Table;
use crate::tensor_ops::{Call, HeapTensor, tensor_op};

/// A value while a function runs.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Tensor(Arc<HeapTensor>),
    List(Arc<List>),
    /// A state of the function, by its position.
    State(usize),
}

/// A list of tensors.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// The elements; `None` for those that were not written yet.
    pub elements: Vec<Option<Arc<HeapTensor>>>,
    /// A write after the end grows the list.
    pub grows: bool,
    /// The type of elements. An element that was not written reads as zeros if its extents are
    /// known.
    pub element: Type,
}

impl Value {
    fn bytes(&self) -> usize {
        match self {
            Value::Tensor(tensor) => tensor.bytes(),
            Value::List(list) => list.elements.iter().map(|e| 16 + e.as_ref().map_or(0, |t| t.bytes())).sum(),
            Value::State(_) => 0,
        }
    }
}

/// An op that only the interpreter runs, or that works on values that are not tensors.
type Own = fn(&mut Machine<'_>, &Op) -> Result<Vec<Value>>;

/// Ops that only the interpreter runs.
const OWN: &[(&str, Own)] = &[
    ("cond", |m, op| m.cond(op)),
    ("while_loop", |m, op| m.while_loop(op)),
    ("make_list", |m, op| m.make_list(op)),
    ("list_length", |m, op| m.list_length(op)),
    ("list_read", |m, op| m.list_read(op)),
    ("list_write", |m, op| m.list_write(op)),
    ("list_gather", |m, op| m.list_gather(op)),
    ("list_scatter", |m, op| m.list_scatter(op)),
];

/// Ops on states, for functions that are interpreted; plans lower them in `plan::state`.
const STATES: &[(&str, Own)] = &[
    ("read_state", |m, op| {
        let state = m.state(op, "input")?;
        Ok(vec![Value::Tensor(m.states[state].clone())])
    }),
    ("coreml_update_state", |m, op| m.update_state(op, "state", "value")),
    ("write_state", |m, op| m.update_state(op, "input", "data")),
];

/// True for ops that only the interpreter runs.
pub(crate) fn has_own(op: &str) -> bool {
    OWN.iter().any(|(name, _)| *name == op)
}

/// Refuses functions with a live op that is not executed.
pub(crate) fn refuse(function: &Function, analysis: &Analysis) -> Result<()> {
    for i in (0..function.ops.len()).filter(|&i| analysis.is_live(OpId(i as u32))) {
        let name = &function.ops[i].name;
        if name != "const" && !has_steps(name) && tensor_op(name).is_none() && !has_own(name) {
            return Err(refusal(name));
        }
    }
    Ok(())
}

/// The state of one evaluation.
pub(super) struct Machine<'a> {
    pub function: &'a Function,
    pub weights: &'a Weights,
    pub opset: Opset,
    pub table: &'a Table,
    pub bounds: Bounds,
    pub cache: &'a Cache,
    /// Liveness. Without it, no value is dropped and every op is live.
    pub analysis: Option<&'a Analysis>,
    pub states: Vec<Arc<HeapTensor>>,
    values: HashMap<ValueId, Value>,
    /// Bytes of `values`.
    held: usize,
    pub iterations: u64,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        function: &'a Function,
        weights: &'a Weights,
        opset: Opset,
        table: &'a Table,
        bounds: Bounds,
        cache: &'a Cache,
    ) -> Machine<'a> {
        Machine {
            function,
            weights,
            opset,
            table,
            bounds,
            cache,
            analysis: None,
            states: Vec::new(),
            values: HashMap::new(),
            held: 0,
            iterations: 0,
        }
    }

    /// Binds the inputs of the function, in order, and its states.
    pub(super) fn bind_ports(
        &mut self,
        mut inputs: impl Iterator<Item = Arc<HeapTensor>>,
        states: &[Arc<HeapTensor>],
    ) -> Result<()> {
        self.states = states.to_vec();
        let mut state = 0;
        for &id in &self.function.inputs {
            let value = match self.function.value(id).ty {
                Type::State(_) => {
                    state += 1;
                    Value::State(state - 1)
                }
                _ => {
                    let mut tensor = inputs.next().ok_or_else(|| broken("an input is missing"))?;
                    if self.table.hardware.is_some() {
                        self.table.enter_tensor(Arc::make_mut(&mut tensor));
                    }
                    Value::Tensor(tensor)
                }
            };
            self.bind(id, value);
        }
        Ok(())
    }

    pub(super) fn bind(&mut self, id: ValueId, value: Value) {
        self.held = self.held.saturating_add(value.bytes());
        if let Some(old) = self.values.insert(id, value) {
            self.held = self.held.saturating_sub(old.bytes());
        }
    }

    pub(super) fn drop_value(&mut self, id: ValueId) {
        if let Some(old) = self.values.remove(&id) {
            self.held = self.held.saturating_sub(old.bytes());
        }
    }

    /// Refuses to allocate `bytes` more if that exceeds the limit; `None` is more than can be
    /// addressed.
    pub(super) fn room(&self, op: &Op, bytes: Option<usize>) -> Result<()> {
        let total = bytes.and_then(|b| b.checked_add(self.held));
        if total.is_some_and(|t| t <= self.bounds.memory) {
            return Ok(());
        }
        let wanted = bytes.map_or("more bytes than can be addressed".into(), |b| format!("{b} bytes"));
        let message = format!(
            "op `{}` needs {wanted} in addition to the {} that values occupy; an evaluation may use at most {}",
            op.name, self.held, self.bounds.memory
        );
        Err(Error::new(ErrorKind::OutOfMemory, message))
    }

    /// Runs the ops of a block, whose parameters are bound, and returns its results.
    pub(super) fn block(&mut self, id: BlockId) -> Result<Vec<Value>> {
        let function = self.function;
        let block = function.block(id);
        for &op in &block.ops {
            self.op(op)?;
        }
        let results = block.outputs.iter().map(|&v| self.value(v)).collect::<Result<_>>()?;
        for &output in &block.outputs {
            let inner = match function.value(output).def {
                ValueDef::Op(op, _) => block.ops.contains(&op),
                ValueDef::BlockInput(of, _) => of == id,
                ValueDef::Input(_) => false,
            };
            if inner {
                self.drop_value(output);
            }
        }
        Ok(results)
    }

    fn op(&mut self, id: OpId) -> Result<()> {
        let op = self.function.op(id);
        if op.name == "const" || self.analysis.is_some_and(|a| !a.is_live(id)) {
            return Ok(());
        }
        self.step(id)?;
        if let Some(analysis) = self.analysis {
            for &value in analysis.dying(id) {
                self.drop_value(value);
            }
        }
        Ok(())
    }

    /// Runs a live op that is not a constant. Its operands stay bound.
    pub(super) fn step(&mut self, id: OpId) -> Result<()> {
        let function = self.function;
        let op = function.op(id);
        if let Some((_, own)) = OWN.iter().chain(STATES).find(|(name, _)| *name == op.name) {
            let results = own(self, op)?;
            if results.len() != op.outputs.len() && !op.outputs.is_empty() {
                return Err(broken(&format!("op `{}` has a wrong number of results", op.name)));
            }
            for (&output, value) in op.outputs.iter().zip(results) {
                self.bind(output, value);
            }
        } else if op.name.starts_with("constexpr_") {
            self.constexpr(op)?;
        } else {
            let results = self.compute(Some(id), op)?;
            for (&output, tensor) in op.outputs.iter().zip(results) {
                self.bind(output, Value::Tensor(tensor));
            }
        }
        if self.held > self.bounds.memory {
            self.room(op, Some(0))?;
        }
        Ok(())
    }

    /// Unpacks a weight, once for all evaluations.
    fn constexpr(&mut self, op: &Op) -> Result<()> {
        if op.outputs.iter().all(|v| lock(&self.cache.constants).contains_key(v)) {
            return Ok(());
        }
        let results = self.compute(None, op)?;
        lock(&self.cache.constants).extend(op.outputs.iter().copied().zip(results));
        Ok(())
    }

    /// Computes the `constexpr_*` ops that an op's operands come from.
    pub(super) fn constant_operands(&mut self, op: &Op) -> Result<()> {
        let function = self.function;
        for value in op.operands() {
            if let ValueDef::Op(id, _) = function.value(value).def {
                let source = function.op(id);
                if source.name.starts_with("constexpr_") {
                    // Their operands are literals, constants, or results of earlier `constexpr_*`
                    // ops.
                    self.constant_operands(source)?;
                    self.constexpr(source)?;
                }
            }
        }
        Ok(())
    }

    /// The current content of a value.
    pub(super) fn value(&self, id: ValueId) -> Result<Value> {
        if let Some(value) = self.values.get(&id) {
            return Ok(value.clone());
        }
        if let Some(tensor) = lock(&self.cache.constants).get(&id) {
            return Ok(Value::Tensor(tensor.clone()));
        }
        let name = &self.function.value(id).name;
        let constant = self.function.constant(id).ok_or_else(|| {
            Error::new(ErrorKind::Evaluate, format!("`{name}` is not known, or is used before it is computed"))
        })?;
        let tensor = HeapTensor::from_constant(constant, self.weights)
            .ok_or_else(|| unsupported("const", format!("`{name}` of type {} cannot be read", constant.ty())))?;
        let tensor = Arc::new(tensor);
        lock(&self.cache.constants).insert(id, tensor.clone());
        Ok(Value::Tensor(tensor))
    }

    pub(super) fn tensor(&self, id: ValueId) -> Result<Arc<HeapTensor>> {
        match self.value(id)? {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(broken(&format!("`{}` is not a tensor", self.function.value(id).name))),
        }
    }

    /// The tensors of an argument; none if it is not given.
    pub(super) fn arguments(&self, op: &Op, name: &str) -> Result<Vec<Arc<HeapTensor>>> {
        match op.arg(name) {
            None => Ok(Vec::new()),
            Some(Arg::Value(v)) => Ok(vec![self.tensor(*v)?]),
            Some(Arg::List(vs)) => vs.iter().map(|&v| self.tensor(v)).collect(),
            Some(Arg::Const(c)) => HeapTensor::from_constant(c, self.weights)
                .map(|t| vec![Arc::new(t)])
                .ok_or_else(|| unsupported(&op.name, format!("`{name}` of type {} cannot be read", c.ty()))),
        }
    }

    /// The tensor of an argument that must be given.
    pub(super) fn argument(&self, op: &Op, name: &str) -> Result<Arc<HeapTensor>> {
        let first = self.arguments(op, name)?.into_iter().next();
        first.ok_or_else(|| unsupported(&op.name, format!("needs the argument `{name}`")))
    }

    /// An argument that is one integer or bool.
    pub(super) fn number(&self, op: &Op, name: &str) -> Result<i64> {
        let tensor = self.argument(op, name)?;
        if tensor.len() == 1 { Ok(tensor.int(0)) } else { Err(failed(op, format!("`{name}` must be one number"))) }
    }

    fn state(&self, op: &Op, name: &str) -> Result<usize> {
        let value = self.function.arg_value(op, name).map(|v| self.value(v)).transpose()?;
        match value {
            Some(Value::State(i)) if i < self.states.len() => Ok(i),
            _ => Err(unsupported(&op.name, format!("`{name}` must be a state of the function"))),
        }
    }

    /// Writes a state. A state holds what its surface can: fp16 values are rounded under every
    /// table.
    fn update_state(&mut self, op: &Op, state: &str, value: &str) -> Result<Vec<Value>> {
        let at = self.state(op, state)?;
        let mut new = self.argument(op, value)?;
        if new.shape != self.states[at].shape || new.dtype != self.states[at].dtype {
            let old = &self.states[at];
            let (new, old) = ((new.dtype, &new.shape), (old.dtype, &old.shape));
            return Err(failed(op, format!("the value is {} {:?}, the state {} {:?}", new.0, new.1, old.0, old.1)));
        }
        if new.dtype == DataType::Fp16 {
            Arc::make_mut(&mut new).settle(true);
        }
        self.states[at] = new.clone();
        Ok(vec![Value::Tensor(new)])
    }

    /// The results of an op on tensors: by its tensor op, or by a plan of its own. The plan is
    /// cached if `id` is given.
    pub(super) fn compute(&mut self, id: Option<OpId>, op: &Op) -> Result<Vec<Arc<HeapTensor>>> {
        let single = Single::new(self, op)?;
        let bytes = single.results.iter().map(size).try_fold(0usize, |sum, b| sum.checked_add(b?));
        self.room(op, bytes)?;
        let mut results = match tensor_op(&op.name).filter(|_| !single.is_planned) {
            Some(routine) => {
                let mut operands = Vec::with_capacity(op.args.len());
                for (name, _) in &op.args {
                    operands.push((name.as_str(), self.arguments(op, name)?));
                }
                for (name, constant) in op.attributes.iter().filter(|_| op.name.starts_with("constexpr_")) {
                    if let Some(tensor) = HeapTensor::from_constant(constant, self.weights) {
                        operands.push((name.as_str(), vec![Arc::new(tensor)]));
                    }
                }
                let (results, wide) = (&single.results[..], self.table.wide_sums);
                routine(&Call { def: single.def, opset: self.opset, operands, results, wide })?
            }
            None => match empty::results(op, &single.results, &single.inputs)? {
                Some(results) => results,
                None => self.run_plan(id, &single)?,
            },
        };
        if results.len() != single.results.len() {
            return Err(broken(&format!("op `{}` has a wrong number of results", op.name)));
        }
        for (tensor, ty) in results.iter_mut().zip(&single.results) {
            let fits = ty.dtype() == Some(tensor.dtype) && ty.shape().is_none_or(|s| s == tensor.shape);
            if !fits {
                let message = format!("gives {} {:?}, not {ty} as its rule says", tensor.dtype, tensor.shape);
                return Err(failed(op, message));
            }
            let round = self.table.rounds(tensor.dtype);
            self.table.settle(tensor, round);
        }
        Ok(results.into_iter().map(Arc::new).collect())
    }
}

/// Bytes of a result on the heap; 0 if its extents are unknown, because the op's operands bound it
/// then. `None` if the number does not fit a `usize`.
fn size(ty: &Type) -> Option<usize> {
    match ty.shape() {
        Some(_) => {
            let element = if ty.dtype().is_some_and(DataType::is_float) { 4 } else { 8 };
            ty.elements()?.checked_mul(element)
        }
        None => Some(0),
    }
}
