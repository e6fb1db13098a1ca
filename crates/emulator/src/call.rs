//! Calls on constants: functions and single ops for which no surface is needed or possible.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrane_device::backend::Accesses;
use ferrane_device::{Call, Error, ErrorKind, Port, Result, Returned, Stats, Tensors};
use ferrane_host::buffer::{AlignedBuf, SharedBytes};
use ferrane_mil::{Constant, Dim, Evaluate, Function, Op, Opset, Program, Type, ValueId, Weights, verify};

use crate::Emulator;
use crate::executable::ExecutablePlan;
use crate::function::CompiledFunction;
use crate::interpret::{self, Interpreted};
use crate::plan::Ports;
use crate::refusal::checked;
use crate::tables::EXACT;
use crate::tensor_ops::HeapTensor;

impl Emulator {
    /// Runs a function on constants: any function, even one for whose ports no surface can be
    /// allocated (unknown extents, extents of 0, 64-bit integers).
    ///
    /// Inputs are named; their element types are those of the ports, and their extents match what
    /// the ports declare. A state that is not in `states` begins as zeros; `states` holds all
    /// states of the function afterward. Outputs come in the function's order.
    ///
    /// The function is checked and compiled at every call. Load a function that runs often and has
    /// fixed extents through a `Device` instead.
    ///
    /// # Errors
    /// As compiling; [`ErrorKind::Binding`] for an input or state that is missing, unknown or of a
    /// different type; as evaluating. After an error `states` is as it was.
    pub fn call(
        &self,
        program: &Program,
        function: &str,
        inputs: &[(String, Constant)],
        states: &mut BTreeMap<String, Constant>,
    ) -> Result<Vec<(String, Constant)>> {
        let function = found(program, function)?;
        let weights = &program.weights;
        let CallArguments { inputs: given, held, states: mut state } =
            CallArguments::new(function, weights, inputs, states)?;
        let outputs = if interpret::is_needed(function) {
            Interpreted::new(function, weights, self.table(), self.bounds())?.evaluate(given, &mut state)?
        } else {
            self.run_plan(function, weights, given, &mut state)?
        };
        let name = |v: &ValueId| function.value(*v).name.clone();
        states.extend(held.iter().map(name).zip(state.iter().map(|t| t.to_constant())));
        Ok(function.body().outputs.iter().map(name).zip(outputs.iter().map(|t| t.to_constant())).collect())
    }

    /// [`Emulator::call`] for the front of the seam, `ferrane_device::Device::call`.
    pub(crate) fn call_tensors(&self, program: &Program, function: &str, call: &Call) -> Result<Returned> {
        let constants = |tensors: &Tensors| -> Vec<(String, Constant)> {
            tensors.iter().map(|(name, tensor)| (name.clone(), tensor.to_constant())).collect()
        };
        let tensors = |list: Vec<(String, Constant)>| -> Result<Tensors> {
            let tensor = |(name, constant): (String, Constant)| {
                let tensor = ferrane_device::Tensor::from_constant(&constant, &program.weights)
                    .map_err(|e| e.with_port(&name))?;
                Ok((name, tensor))
            };
            list.into_iter().map(tensor).collect()
        };
        let inputs = constants(call.given_inputs());
        let mut states: BTreeMap<String, Constant> = constants(call.given_states()).into_iter().collect();
        let outputs = tensors(self.call(program, function, &inputs, &mut states)?)?;
        Ok(Returned { outputs, states: tensors(states.into_iter().collect())?, stats: Stats::default() })
    }

    fn run_plan(
        &self,
        function: &Function,
        weights: &Weights,
        inputs: Vec<HeapTensor>,
        states: &mut [Arc<HeapTensor>],
    ) -> Result<Vec<Arc<HeapTensor>>> {
        let body =
            CompiledFunction::new(Ports::declared(0, function)?, function, weights, self.table(), self.bounds())?;
        let CompiledFunction::Plan(plan) = &body else {
            return Err(Error::new(ErrorKind::Evaluate, "the function is not a plan"));
        };
        evaluate_plan(plan, inputs, states, self.bounds().memory)
    }
}

/// Runs a plan on tensors of its ports. Its outputs may have at most `most` bytes in all.
pub(crate) fn evaluate_plan(
    plan: &ExecutablePlan,
    inputs: Vec<HeapTensor>,
    states: &mut [Arc<HeapTensor>],
    most: usize,
) -> Result<Vec<Arc<HeapTensor>>> {
    let memory = |e: ferrane_host::buffer::AllocError| Error::new(ErrorKind::OutOfMemory, e.to_string());
    let busy = || Error::new(ErrorKind::Busy, "memory of the call is in use");
    let staged = |port: &Port, tensor: Option<&HeapTensor>| -> Result<SharedBytes> {
        let bytes = SharedBytes::new(port.layout.allocation).map_err(memory)?;
        if let Some(tensor) = tensor {
            let elements = tensor.to_bytes(port.layout.dtype);
            let mut guard = bytes.try_write().ok_or_else(busy)?;
            guard.get_mut(..elements.len()).ok_or_else(busy)?.copy_from_slice(&elements);
        }
        Ok(bytes)
    };
    let read = |port: &Port, bytes: &[u8]| {
        let (dtype, shape) = (port.layout.dtype, port.layout.shape.clone());
        let data = crate::tensor_ops::decode(dtype, port.layout.elements(), bytes).ok_or_else(busy)?;
        Ok(Arc::new(HeapTensor { dtype, shape, data }))
    };
    let procedure = &plan.procedure;
    // The call allocates the outputs itself, and a short text may declare any extent.
    let made: usize = procedure.outputs.iter().map(|port| port.layout.allocation).fold(0, usize::saturating_add);
    if made > most {
        let message = format!("the outputs have {made} bytes; an evaluation may hold {most}");
        return Err(Error::new(ErrorKind::OutOfMemory, message));
    }
    let mut accesses = Accesses::default();
    for (port, tensor) in procedure.inputs.iter().zip(&inputs) {
        accesses.inputs.push(staged(port, Some(tensor))?.try_read().ok_or_else(busy)?);
    }
    for port in &procedure.outputs {
        accesses.outputs.push(staged(port, None)?.try_write().ok_or_else(busy)?);
    }
    for (port, tensor) in procedure.states.iter().zip(states.iter()) {
        accesses.states.push(staged(port, Some(tensor))?.try_write().ok_or_else(busy)?);
    }
    let mut arena = AlignedBuf::new(plan.arena_bytes).map_err(memory)?;
    plan.evaluate(&mut arena, &mut accesses)?;
    for ((state, port), bytes) in states.iter_mut().zip(&procedure.states).zip(&accesses.states) {
        *state = read(port, bytes)?;
    }
    procedure.outputs.iter().zip(&accesses.outputs).map(|(port, bytes)| read(port, bytes)).collect()
}

/// The function of that name in a program that is right.
pub(crate) fn found<'a>(program: &'a Program, function: &str) -> Result<&'a Function> {
    verify(program).map_err(|e| Error::new(ErrorKind::InvalidProgram, e.to_string()))?;
    let function = program.function(function).ok_or_else(|| {
        let known: Vec<_> = program.functions.iter().map(|f| f.name.as_str()).collect();
        let message = format!("no function `{function}`; there are {}", known.join(", "));
        Error::new(ErrorKind::Binding, message)
    })?;
    checked(function, &program.weights)?;
    Ok(function)
}

/// The ports of a function with values, in its order.
pub(crate) struct CallArguments {
    /// Of the inputs that are no states.
    pub inputs: Vec<HeapTensor>,
    /// Which inputs are states.
    pub held: Vec<ValueId>,
    /// What those begin with.
    pub states: Vec<Arc<HeapTensor>>,
}

impl CallArguments {
    /// Finds a value of the port's type for each; a state that is not given begins as zeros.
    pub(crate) fn new(
        function: &Function,
        weights: &Weights,
        inputs: &[(String, Constant)],
        states: &BTreeMap<String, Constant>,
    ) -> Result<CallArguments> {
        let is_state = |v: ValueId| matches!(function.value(v).ty, Type::State(_));
        let ports: Vec<ValueId> = function.inputs.iter().copied().filter(|&v| !is_state(v)).collect();
        let named = |v: &ValueId, name: &str| function.value(*v).name == name;
        if let Some((name, _)) = inputs.iter().find(|(name, _)| !ports.iter().any(|v| named(v, name))) {
            return Err(Error::new(ErrorKind::Binding, "the function has no such input").with_port(name));
        }
        let mut given = Vec::with_capacity(ports.len());
        for &port in &ports {
            let constant = inputs.iter().find(|(name, _)| named(&port, name)).map(|(_, c)| c);
            let missing = || Error::new(ErrorKind::Binding, "no value is given").with_port(&function.value(port).name);
            given.push(tensor(function, port, constant.ok_or_else(missing)?, weights)?);
        }
        let held: Vec<ValueId> = function.inputs.iter().copied().filter(|&v| is_state(v)).collect();
        if let Some(name) = states.keys().find(|name| !held.iter().any(|v| named(v, name))) {
            return Err(Error::new(ErrorKind::Binding, "the function has no such state").with_port(name));
        }
        let mut state = Vec::with_capacity(held.len());
        for &port in &held {
            let constant = match states.get(&function.value(port).name) {
                Some(constant) => constant.clone(),
                None => zeros(function, port)?,
            };
            state.push(Arc::new(tensor(function, port, &constant, weights)?));
        }
        Ok(CallArguments { inputs: given, held, states: state })
    }
}

/// The type of a port, of a state the one inside.
fn declared(function: &Function, port: ValueId) -> &Type {
    match &function.value(port).ty {
        Type::State(inner) => inner,
        ty => ty,
    }
}

/// A constant for a port, checked against its type.
fn tensor(function: &Function, port: ValueId, constant: &Constant, weights: &Weights) -> Result<HeapTensor> {
    let (found, wanted) = (constant.ty(), declared(function, port));
    let fits = match (&found, wanted) {
        (Type::Tensor { dtype: d, shape: s }, Type::Tensor { dtype: e, shape: t }) => {
            d == e && s.len() == t.len() && s.iter().zip(t).all(|(s, t)| s == t || *t == Dim::Unknown)
        }
        _ => false,
    };
    let tensor = if fits { HeapTensor::from_constant(constant, weights) } else { None };
    tensor.ok_or_else(|| {
        let message = format!("the value is {found}, the port wants {wanted}");
        Error::new(ErrorKind::Binding, message).with_port(&function.value(port).name)
    })
}

fn zeros(function: &Function, port: ValueId) -> Result<Constant> {
    let ty = declared(function, port);
    let bytes = ty.bytes().filter(|&b| b <= isize::MAX as usize);
    match (ty.dtype(), ty.shape(), bytes) {
        (Some(dtype), Some(shape), Some(bytes)) => {
            let mut zeros = Vec::new();
            let message = || Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {bytes} bytes"));
            zeros.try_reserve_exact(bytes).map_err(|_| message())?;
            zeros.resize(bytes, 0);
            Ok(Constant::raw(dtype, &shape, &zeros))
        }
        _ => {
            let message = format!("a state of type {ty} has no initial value");
            Err(Error::new(ErrorKind::Binding, message).with_port(&function.value(port).name))
        }
    }
}

/// Whatever the options say, with `exact` numerics: fp32 inside an op, its results rounded to their
/// element types once.
impl Evaluate for Emulator {
    fn evaluate(
        &self,
        function: &Function,
        op: &Op,
        opset: Opset,
        weights: &Weights,
    ) -> std::result::Result<Vec<Constant>, String> {
        if op.name.starts_with("random_") {
            return Err(format!("op `{}` draws numbers: they are not known before it runs", op.name));
        }
        let results = interpret::evaluate_op(function, op, opset, weights, &EXACT, self.bounds());
        Ok(results.map_err(|e| e.message().to_string())?.iter().map(|t| t.to_constant()).collect())
    }
}
