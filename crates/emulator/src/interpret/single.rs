//! One op as a function of its own: the types of its results for these operands, and a plan for
//! them.
//!
//! An argument becomes a constant of that function if the plan must know its value (begin and end
//! of a slice, the extents of a reshape) or if the program states it; every other argument becomes
//! an input. So one plan serves all calls with the same extents and the same known values.

use std::sync::Arc;

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::buffer::{AlignedBuf, AllocError, SharedBytes};
use ferrane_host::sync::lock;
use ferrane_mil::ops::{self, InferContext, OpDef, Param, Takes};
use ferrane_mil::{Arg, Block, BlockId, DataType, Function, Op, OpId, Opset, Type, Value, ValueDef, ValueId};

use super::cache::{Key, MAX_PLANS};
use super::failure::failed;
use super::machine::Machine;
use crate::executable::ExecutablePlan;
use crate::plan::has_steps;
use crate::tensor_ops::{HeapTensor, decode, tensor_op};

/// Integers and strings of at most this many elements are constants to the type rule of a tensor
/// op.
const MAX_KNOWN: usize = 64;

/// An op with its current operands.
pub(super) struct Single {
    pub def: &'static OpDef,
    /// The types of the results, by the op's type rule.
    pub results: Vec<Type>,
    /// The operands that are not constant, in the order of the function's inputs.
    pub inputs: Vec<Arc<HeapTensor>>,
    /// The op has steps of a plan.
    pub is_planned: bool,
    function: Function,
    /// The bytes of constants that the program does not state.
    known: Vec<Vec<u8>>,
}

/// True for an argument whose value determines extents or positions: integers that are not data.
/// Integers are data if the signature also allows floats or any type, if it allows only bytes
/// (codes to dequantize), or if it calls them indices.
fn shapes(param: &Param) -> bool {
    let whole = |d: &DataType| d.is_int() || *d == DataType::String;
    let codes = |d: &DataType| matches!(d, DataType::Int8 | DataType::UInt8);
    let accepts = param.accepts;
    param.takes == Takes::Tensor
        && param.name != "indices"
        && accepts.iter().all(whole)
        && (accepts.is_empty() || !accepts.iter().all(codes))
}

/// True if every argument that a plan must know is known at compile time.
pub(super) fn plan_knows(function: &Function, op: &Op, opset: Opset) -> bool {
    let Some(def) = ops::find(&op.name, opset).filter(|_| has_steps(&op.name)) else { return true };
    def.params.iter().filter(|p| shapes(p)).all(|p| match op.arg(p.name) {
        Some(Arg::Value(v)) => function.constant(*v).is_some(),
        Some(Arg::List(_)) | Some(Arg::Const(_)) | None => true,
    })
}

impl Single {
    pub(super) fn new(machine: &Machine<'_>, op: &Op) -> Result<Single> {
        let invalid = |e: ferrane_mil::MilError| Error::new(ErrorKind::Evaluate, e.to_string());
        let def = ops::lookup(&op.name, machine.opset).map_err(invalid)?;
        let is_planned = has_steps(&op.name);
        if !is_planned && tensor_op(&op.name).is_none() {
            return Err(crate::refusal::refusal(&op.name));
        }
        let mut single = Single {
            def,
            results: Vec::new(),
            inputs: Vec::new(),
            is_planned,
            function: Function {
                name: op.name.clone(),
                bodies: vec![(machine.opset.into(), BlockId(0))],
                // The op itself comes first; its operands are added below. Packed weights follow.
                ops: vec![Op {
                    name: op.name.clone(),
                    args: Vec::new(),
                    attributes: op.attributes.clone(),
                    outputs: Vec::new(),
                    blocks: Vec::new(),
                    span: None,
                }],
                ..Function::default()
            },
            known: Vec::new(),
        };
        let mut args = Vec::with_capacity(op.args.len());
        for (name, arg) in &op.args {
            let arg = match arg {
                Arg::Const(constant) => Arg::Const(constant.clone()),
                Arg::Value(value) => single.argument(machine, name, *value)?,
                Arg::List(values) => single.list(machine, op, name, values)?,
            };
            args.push((name.clone(), arg));
        }
        let context = InferContext {
            function: &single.function,
            weights: machine.weights,
            def,
            args: &args,
            attributes: &op.attributes,
            blocks: &[],
        };
        single.results = ops::infer(&context).map_err(invalid)?;
        let outputs: Vec<ValueId> = (0..single.results.len())
            .map(|i| single.value(format!("result{i}"), single.results[i].clone(), ValueDef::Op(OpId(0), i as u32)))
            .collect();
        let order = (1..single.function.ops.len() as u32).map(OpId).chain([OpId(0)]).collect();
        single.function.blocks = vec![Block { inputs: Vec::new(), ops: order, outputs: outputs.clone() }];
        let main = &mut single.function.ops[0];
        (main.args, main.outputs) = (args, outputs);
        Ok(single)
    }

    fn value(&mut self, name: String, ty: Type, def: ValueDef) -> ValueId {
        self.function.values.push(Value { name, ty, def });
        ValueId(self.function.values.len() as u32 - 1)
    }

    fn input(&mut self, name: String, tensor: Arc<HeapTensor>) -> ValueId {
        let ty = Type::tensor(tensor.dtype, &tensor.shape);
        let id = self.value(name, ty, ValueDef::Input(self.inputs.len() as u32));
        self.function.inputs.push(id);
        self.inputs.push(tensor);
        id
    }

    fn argument(&mut self, machine: &Machine<'_>, name: &str, value: ValueId) -> Result<Arg> {
        if let Some(constant) = machine.function.constant(value) {
            return Ok(Arg::Const(constant.clone()));
        }
        if let Some(packed) = self.packed(machine, value) {
            return Ok(Arg::Value(packed));
        }
        let tensor = machine.tensor(value)?;
        let param = self.def.param(name);
        let fixed = param.is_some_and(|p| p.constant);
        let small = tensor.len() <= MAX_KNOWN && !tensor.dtype.is_float();
        let known = if self.is_planned { param.is_some_and(shapes) } else { small };
        if fixed || known {
            let constant = tensor.to_constant();
            // A fixed argument is the result of a `constexpr_*` op: it is the same at every call.
            if !fixed {
                self.known.push(tensor.to_bytes(tensor.dtype));
            }
            return Ok(Arg::Const(constant));
        }
        Ok(Arg::Value(self.input(name.to_string(), tensor)))
    }

    /// A weight as the program packs it, for machines that treat the other factor by how the weight
    /// is packed (int8 §3).
    fn packed(&mut self, machine: &Machine<'_>, value: ValueId) -> Option<ValueId> {
        let matters = self.is_planned && machine.table.rules().is_some_and(|rules| rules.int8_crop);
        let ValueDef::Op(id, 0) = machine.function.value(value).def else { return None };
        let op = machine.function.op(id);
        if !matters || !op.name.starts_with("constexpr_") {
            return None;
        }
        let stated = |arg: &Arg| match arg {
            Arg::Const(constant) => Some(Arg::Const(constant.clone())),
            Arg::Value(v) => machine.function.constant(*v).cloned().map(Arg::Const),
            Arg::List(_) => None,
        };
        let args = op.args.iter().map(|(name, arg)| Some((name.clone(), stated(arg)?))).collect::<Option<Vec<_>>>()?;
        let ty = machine.function.value(value).ty.clone();
        let at = OpId(self.function.ops.len() as u32);
        let made = self.value(format!("weight{}", at.0), ty, ValueDef::Op(at, 0));
        self.function.ops.push(Op { args, outputs: vec![made], blocks: Vec::new(), ..op.clone() });
        Some(made)
    }

    fn list(&mut self, machine: &Machine<'_>, op: &Op, name: &str, values: &[ValueId]) -> Result<Arg> {
        let mut tensors: Vec<Arc<HeapTensor>> = values.iter().map(|&v| machine.tensor(v)).collect::<Result<_>>()?;
        // Empty operands add nothing to a concat of others.
        if op.name == "concat" && tensors.iter().any(|t| !t.is_empty()) {
            tensors.retain(|t| !t.is_empty());
        }
        let name = |i: usize| format!("{name}{i}");
        Ok(Arg::List(tensors.into_iter().enumerate().map(|(i, t)| self.input(name(i), t)).collect()))
    }
}

impl Machine<'_> {
    /// Runs an op by a plan for these operands.
    pub(super) fn run_plan(&mut self, id: Option<OpId>, single: &Single) -> Result<Vec<HeapTensor>> {
        let plan = match id {
            None => Arc::new(self.plan(single)?),
            Some(id) => {
                let shapes = single.inputs.iter().map(|t| t.shape.clone()).collect();
                let key: Key = (id.0, shapes, single.known.clone());
                let found = lock(&self.cache.plans).get(&key).cloned();
                match found {
                    Some(plan) => plan,
                    None => {
                        let plan = Arc::new(self.plan(single)?);
                        let mut plans = lock(&self.cache.plans);
                        if plans.len() >= MAX_PLANS {
                            plans.clear();
                        }
                        plans.insert(key, plan.clone());
                        plan
                    }
                }
            }
        };
        let op = &single.function.ops[0];
        self.room(op, Some(plan.arena_bytes))?;
        let memory = |e: AllocError| Error::new(ErrorKind::OutOfMemory, e.to_string());
        let busy = || failed(op, "its memory is in use");
        let mut arena = AlignedBuf::new(plan.arena_bytes).map_err(memory)?;
        let mut accesses = Accesses::default();
        for (port, tensor) in plan.procedure.inputs.iter().zip(&single.inputs) {
            let bytes = SharedBytes::new(port.layout.allocation).map_err(memory)?;
            let elements = tensor.to_bytes(port.layout.dtype);
            let mut guard = bytes.try_write().ok_or_else(busy)?;
            guard.get_mut(..elements.len()).ok_or_else(busy)?.copy_from_slice(&elements);
            drop(guard);
            accesses.inputs.push(bytes.try_read().ok_or_else(busy)?);
        }
        for port in &plan.procedure.outputs {
            let bytes = SharedBytes::new(port.layout.allocation).map_err(memory)?;
            accesses.outputs.push(bytes.try_write().ok_or_else(busy)?);
        }
        plan.evaluate(&mut arena, &mut accesses)?;
        let ports = plan.procedure.outputs.iter().zip(&accesses.outputs).zip(&single.results);
        ports
            .map(|((port, bytes), ty)| {
                let (dtype, layout) = (ty.dtype().unwrap_or(port.layout.dtype), &port.layout);
                let data = decode(layout.dtype, layout.elements(), bytes).ok_or_else(busy)?;
                Ok(HeapTensor { dtype, shape: layout.shape.clone(), data })
            })
            .collect()
    }

    fn plan(&self, single: &Single) -> Result<ExecutablePlan> {
        ExecutablePlan::stored(&single.function, self.weights, self.table)
    }
}
