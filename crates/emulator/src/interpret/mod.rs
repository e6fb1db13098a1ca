//! The interpreter: functions that no plan can express.
//!
//! A plan needs every extent before it runs. A function with unknown extents, computed shapes or
//! slice bounds, lists, `cond` or `while_loop` runs here, op by op, on tensors on the heap. No op
//! is implemented twice: a tensor op is called, and any other op is lowered to a plan of its own as
//! soon as its operands' extents are known (`single`); such plans are cached. So the numbers are
//! those of a plan under the same table.
//!
//! Invariants: a value is bound before it is read (`ferrane_mil::verify`); values are dropped after
//! their last use (`analysis`); the bytes of all bound values are at most [`Bounds::memory`], which
//! is checked before an op runs; the iterations of all loops of an evaluation are at most
//! [`Bounds::iterations`]. States are written back by the caller after the last op, so that a
//! failed evaluation leaves them as they were.

mod analysis;
mod bounds;
mod cache;
mod control;
mod empty;
mod failure;
mod lists;
mod machine;
mod observed;
mod single;

use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{Dim, Function, Opset, Type, ValueId, Weights};

use crate::ir::Storage;
use crate::tables::Table;
use crate::tensor_ops::HeapTensor;
use machine::{Machine, Value};

pub(crate) use analysis::Analysis;
pub(crate) use bounds::Bounds;
pub(crate) use cache::Cache;
use failure::{broken, known_opset};
pub(crate) use machine::{has_own, refuse};
pub(crate) use observed::Observed;

/// A function ready to be interpreted.
pub(crate) struct Interpreted {
    function: Function,
    weights: Weights,
    opset: Opset,
    table: Table,
    bounds: Bounds,
    analysis: Analysis,
    cache: Cache,
}

impl Interpreted {
    /// Prepares a function that passed `verify` and `check`.
    ///
    /// # Errors
    /// An op that the emulator does not execute.
    pub(crate) fn new(function: &Function, weights: &Weights, table: &Table, bounds: Bounds) -> Result<Interpreted> {
        let analysis = Analysis::new(function);
        refuse(function, &analysis)?;
        let opset = known_opset(function)?;
        let (function, weights, table) = (function.clone(), weights.clone(), table.clone());
        Ok(Interpreted { function, weights, opset, table, bounds, analysis, cache: Cache::default() })
    }

    /// Evaluates over tensors in the order of the function's inputs and states. States change only
    /// if it succeeds.
    pub(crate) fn evaluate(
        &self,
        inputs: Vec<HeapTensor>,
        states: &mut Vec<Arc<HeapTensor>>,
    ) -> Result<Vec<Arc<HeapTensor>>> {
        let mut machine =
            Machine::new(&self.function, &self.weights, self.opset, &self.table, self.bounds, &self.cache);
        machine.analysis = Some(&self.analysis);
        machine.bind_ports(inputs.into_iter().map(Arc::new), states)?;
        let Some((_, body)) = self.function.bodies.first() else { return Err(broken("the function has no body")) };
        let outputs = machine.block(*body)?;
        let tensor = |value: Value| match value {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(Error::new(ErrorKind::Unsupported, "an output of a function must be a tensor")),
        };
        let outputs = outputs.into_iter().map(tensor).collect::<Result<_>>()?;
        *states = std::mem::take(&mut machine.states);
        Ok(outputs)
    }
}

/// The results of one op whose operands are compile-time values.
pub(crate) fn evaluate_op(
    function: &Function,
    op: &ferrane_mil::Op,
    opset: Opset,
    weights: &Weights,
    table: &Table,
    bounds: Bounds,
) -> Result<Vec<Arc<HeapTensor>>> {
    let cache = Cache::default();
    let mut machine = Machine::new(function, weights, opset, table, bounds, &cache);
    if op.name == "const" {
        return Err(Error::new(ErrorKind::Unsupported, "a `const` is a value already"));
    }
    machine.constant_operands(op)?;
    machine.compute(None, op)
}

/// True for functions that no plan can express: see the module's documentation.
pub(crate) fn is_needed(function: &Function) -> bool {
    let analysis = Analysis::new(function);
    let opset = function.opset_tag().known();
    let fixed = |id: ValueId| {
        let ty = &function.value(id).ty;
        let ty = if let Type::State(inner) = ty { inner } else { ty };
        match ty {
            Type::Tensor { dtype, shape } => {
                Storage::of(*dtype).is_some() && shape.iter().all(|d| matches!(d, Dim::Fixed(n) if *n > 0))
            }
            _ => false,
        }
    };
    let body = function.body();
    let planned = |op: &ferrane_mil::Op| {
        op.name == "const"
            || (op.blocks.is_empty()
                && !has_own(&op.name)
                && op.outputs.iter().all(|&v| fixed(v))
                && op.operands().all(|v| function.constant(v).is_some() || fixed(v))
                && opset.is_none_or(|opset| single::plan_knows(function, op, opset)))
    };
    let live = body.ops.iter().filter(|&&id| analysis.is_live(id)).map(|&id| function.op(id));
    !(function.inputs.iter().chain(&body.outputs).all(|&v| fixed(v)) && live.into_iter().all(planned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(text: &str) -> bool {
        let text = format!("program(1.3)\n{{\n{text}\n}}\n");
        let program = ferrane_mil::parse(text, &Weights::new()).unwrap();
        is_needed(&program.functions[0])
    }

    /// A plan can copy values and states of any type without knowing their contents.
    #[test]
    fn copies_and_states_need_no_interpreter() {
        let copies = r#"
            func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) {
                tensor<fp16, [2]> y = identity(x = x)[name = string("y")];
                tensor<fp16, [2]> held = read_state(input = s)[name = string("held")];
                tensor<fp16, [2]> sum = add(x = y, y = held)[name = string("sum")];
                tensor<fp16, [2]> new = coreml_update_state(state = s, value = sum)[name = string("new")];
            } -> (new);"#;
        assert!(!needed(copies));
        let open = r#"
            func main<ios18>(tensor<fp16, [?]> x) {
                tensor<fp16, [?]> y = identity(x = x)[name = string("y")];
            } -> (y);"#;
        assert!(needed(open));
    }
}
