//! A program's ports as the multiarrays of Core ML's E5 runtime (apple-runtime §9).
//!
//! That runtime takes fp32 tensors at its boundary, with the names and shapes of a model
//! description. [`multiarrays`] puts casts around a program, so that its ports are such tensors and
//! its ops read the same values as before. Every value of an element type that is cast is exact in
//! fp32, so no number changes; int32, for which that does not hold, stays, because a multiarray can
//! hold it. A port of rank 0 gets one axis of extent 1, because a multiarray has at least one.
//! [`outline`] is a program with the same ports and no computation, to make a description from;
//! [`with_echo`] adds an output that shows whether a program ran at all.

use std::collections::HashSet;

use crate::build::Builder;
use crate::error::MilError;
use crate::op;
use crate::ops::{self, InferContext};
use crate::opset::Opset;
use crate::program::{Arg, Constant, DataType, Function, Op, OpId, Program, Type, Value, ValueDef, ValueId};
use crate::verify::verify;
use crate::weights::Weights;

/// The input of [`with_echo`]: `tensor<fp32, [1]>`.
pub const ECHO_INPUT: &str = "ferrane_echo_x";

/// Its output: the input and 1.
pub const ECHO_OUTPUT: &str = "ferrane_echo_y";

/// The type of a port at the boundary.
///
/// # Errors
/// [`MilError::Invalid`] for a type that is not a tensor with known extents, or whose elements
/// neither fp32 nor int32 can hold.
pub fn port_type(name: &str, ty: &Type) -> Result<Type, MilError> {
    use DataType::{Bool, Fp16, Fp32, Int8, Int16, Int32, UInt8, UInt16};
    let bad = |why: &str| MilError::Invalid { reason: format!("the port `{name}` is a {ty}, and {why}") };
    let shape = ty.shape().filter(|_| matches!(ty, Type::Tensor { .. }));
    let shape = shape.ok_or_else(|| bad("a multiarray is a tensor with known extents"))?;
    let dtype = match ty.dtype() {
        Some(Fp32 | Fp16 | Bool | Int8 | UInt8 | Int16 | UInt16) => Fp32,
        Some(Int32) => Int32,
        _ => return Err(bad("fp32 does not hold its elements")),
    };
    Ok(Type::tensor(dtype, if shape.is_empty() { &[1] } else { &shape }))
}

/// The program with casts around it, for the ports whose type differs from [`port_type`].
///
/// # Errors
/// A port that cannot be such a tensor; a port that is both input and output; a function with
/// several bodies; an opset without a cast that is needed.
pub fn multiarrays(program: &Program) -> Result<Program, MilError> {
    let mut program = program.clone();
    let Program { functions, weights, .. } = &mut program;
    for function in functions {
        Edit::new(function, weights)?.ports()?;
    }
    verify(&program)?;
    Ok(program)
}

/// A program of one function `main` with the ports that [`multiarrays`] gives the function; its
/// outputs are zeros.
///
/// # Errors
/// As [`multiarrays`].
pub fn outline(function: &Function) -> Result<Program, MilError> {
    let mut b = Builder::new("main", function.opset()?);
    for input in &function.inputs {
        let value = function.value(*input);
        b.input(&value.name, port_type(&value.name, &value.ty)?)?;
    }
    let mut outputs = Vec::new();
    for output in &function.body().outputs {
        let value = function.value(*output);
        let ty = port_type(&value.name, &value.ty)?;
        let zero = if ty.dtype() == Some(DataType::Int32) { Constant::int32(0) } else { Constant::fp32(0.0) };
        let long = |_| MilError::Invalid { reason: format!("the port `{}` is too long", value.name) };
        let extents = ty.shape().unwrap_or_default().into_iter().map(i32::try_from);
        let shape = Constant::int32s(&extents.collect::<Result<Vec<_>, _>>().map_err(long)?);
        let zeros = b.op(op::FILL, &value.name, [("shape", shape.into()), ("value", zero.into())])?;
        outputs.push((value.name.as_str(), zeros));
    }
    b.finish(&outputs)
}

/// The program with one more input and one more output of a function, `y = x + 1`: if the output is
/// not the input plus 1, the function did not run, whatever its other outputs hold.
///
/// # Errors
/// There is no such function, or the names are taken.
pub fn with_echo(program: &Program, function: &str) -> Result<Program, MilError> {
    let mut program = program.clone();
    let Program { functions, weights, .. } = &mut program;
    let found = functions.iter_mut().find(|f| f.name == function);
    let found = found.ok_or_else(|| MilError::Invalid { reason: format!("there is no function `{function}`") })?;
    let mut edit = Edit::new(found, weights)?;
    let ty = Type::tensor(DataType::Fp32, &[1]);
    let x = edit.value(ECHO_INPUT.into(), ty, ValueDef::Input(edit.function.inputs.len() as u32));
    edit.function.inputs.push(x);
    let mut ops = Vec::new();
    let y = edit.op(&mut ops, op::ADD, ECHO_OUTPUT, x, ("y", Constant::fp32(1.0)))?;
    let body = edit.body();
    body.ops.extend(ops);
    body.outputs.push(y);
    verify(&program)?;
    Ok(program)
}

/// A function of one body, while ops are inserted at its inputs and outputs.
struct Edit<'a> {
    function: &'a mut Function,
    weights: &'a Weights,
    opset: Opset,
    names: HashSet<String>,
}

impl<'a> Edit<'a> {
    fn new(function: &'a mut Function, weights: &'a Weights) -> Result<Edit<'a>, MilError> {
        let opset = function.opset_tag().known();
        let (Some(opset), [_]) = (opset, function.bodies.as_slice()) else {
            let reason = format!("`{}` is not a function of one body in a known opset", function.name);
            return Err(MilError::Invalid { reason });
        };
        let names = function.values.iter().map(|v| v.name.clone()).collect();
        Ok(Edit { function, weights, opset, names })
    }

    fn body(&mut self) -> &mut crate::program::Block {
        let block = self.function.bodies.first().map_or(0, |(_, b)| b.index());
        &mut self.function.blocks[block]
    }

    fn unique(&mut self, name: String) -> String {
        let mut found = name.clone();
        for n in 0.. {
            if self.names.insert(found.clone()) {
                break;
            }
            found = format!("{name}_{n}");
        }
        found
    }

    fn value(&mut self, name: String, ty: Type, def: ValueDef) -> ValueId {
        let id = ValueId(self.function.values.len() as u32);
        self.function.values.push(Value { name, ty, def });
        id
    }

    fn push(&mut self, op: Op) -> OpId {
        let id = OpId(self.function.ops.len() as u32);
        self.function.ops.push(op);
        id
    }

    /// Adds an op of a value and a constant argument, with one result of that name, and the `const`
    /// op, to `ops`.
    fn op(
        &mut self,
        ops: &mut Vec<OpId>,
        op: &str,
        name: &str,
        x: ValueId,
        (argument, constant): (&str, Constant),
    ) -> Result<ValueId, MilError> {
        let next = |f: &Function| OpId(f.ops.len() as u32);
        let (label, id) = (self.unique(format!("{name}_{argument}")), next(self.function));
        let value = self.value(label.clone(), constant.ty(), ValueDef::Op(id, 0));
        let attributes = vec![("name".into(), Constant::string(&label)), ("val".into(), constant)];
        let nothing = Op {
            name: op::CONST.into(),
            args: Vec::new(),
            attributes,
            outputs: vec![value],
            blocks: Vec::new(),
            span: None,
        };
        ops.push(self.push(nothing));

        let args = vec![(argument.to_string(), Arg::Value(value)), ("x".to_string(), Arg::Value(x))];
        let def = ops::lookup(op, self.opset)?;
        let (function, weights) = (&*self.function, self.weights);
        let types = ops::infer(&InferContext { function, weights, def, args: &args, attributes: &[], blocks: &[] })?;
        let ty = types.into_iter().next().ok_or_else(|| MilError::shape(op, "has no result"))?;
        let id = next(self.function);
        let value = self.value(name.to_string(), ty, ValueDef::Op(id, 0));
        let attributes = vec![("name".into(), Constant::string(name))];
        ops.push(self.push(Op {
            name: op.into(),
            args,
            attributes,
            outputs: vec![value],
            blocks: Vec::new(),
            span: None,
        }));
        Ok(value)
    }

    fn cast(&mut self, ops: &mut Vec<OpId>, name: &str, x: ValueId, dtype: DataType) -> Result<ValueId, MilError> {
        self.op(ops, op::CAST, name, x, ("dtype", Constant::string(dtype.name())))
    }

    /// Renames a value, so that its name is free.
    fn rename(&mut self, id: ValueId) -> (String, Type) {
        let Value { name, ty, def } = self.function.value(id).clone();
        let suffix = ty.dtype().map_or("", DataType::name);
        let new = self.unique(format!("{name}_{suffix}"));
        // The attribute `name` of an op is that of its result.
        if let ValueDef::Op(op, _) = def {
            let attributes = self.function.ops[op.index()].attributes.iter_mut();
            let own = attributes.filter(|(n, c)| n == "name" && c.as_str() == Some(&name));
            own.for_each(|(_, c)| *c = Constant::string(&new));
        }
        self.function.values[id.index()].name = new;
        (name, ty)
    }

    fn ports(&mut self) -> Result<(), MilError> {
        let inputs = self.function.inputs.clone();
        if let Some(both) = self.body().outputs.clone().into_iter().find(|v| inputs.contains(v)) {
            let name = &self.function.value(both).name;
            return Err(MilError::Invalid { reason: format!("the port `{name}` is both input and output") });
        }
        let mut before = Vec::new();
        for i in 0..inputs.len() {
            self.input(i, &mut before)?;
        }
        let mut after = Vec::new();
        for i in 0..self.body().outputs.len() {
            self.output(i, &mut after)?;
        }
        let body = self.body();
        body.ops.splice(0..0, before);
        body.ops.extend(after);
        Ok(())
    }

    fn input(&mut self, at: usize, ops: &mut Vec<OpId>) -> Result<(), MilError> {
        let old = self.function.inputs[at];
        let Value { name, ty, .. } = self.function.value(old).clone();
        let port = port_type(&name, &ty)?;
        if port == ty {
            return Ok(());
        }
        let (name, ty) = self.rename(old);
        let inside = self.function.value(old).name.clone();
        let new = self.value(name, port.clone(), ValueDef::Input(at as u32));
        let mut x = new;
        if let Some(dtype) = ty.dtype().filter(|d| port.dtype() != Some(*d)) {
            let name = self.unique(format!("{inside}_cast"));
            x = self.cast(ops, &name, x, dtype)?;
        }
        if ty.rank() == Some(0) {
            let name = self.unique(format!("{inside}_squeeze"));
            x = self.op(ops, op::SQUEEZE, &name, x, ("axes", Constant::int32s(&[0])))?;
        }
        if self.function.value(x).ty != ty {
            return Err(MilError::shape(op::CAST, format!("cannot produce {ty}")));
        }
        // The last op now computes the old value, so the ops that read it stay unchanged. The op's
        // own result is the newest value.
        let def = self.function.value(x).def;
        if let ValueDef::Op(op, _) = def {
            self.function.ops[op.index()].outputs = vec![old];
            self.function.values.pop();
        }
        self.function.values[old.index()].def = def;
        self.function.inputs[at] = new;
        Ok(())
    }

    fn output(&mut self, at: usize, ops: &mut Vec<OpId>) -> Result<(), MilError> {
        let old = self.body().outputs[at];
        let Value { name, ty, .. } = self.function.value(old).clone();
        if self.body().outputs[at + 1..].contains(&old) {
            return Err(MilError::Invalid { reason: format!("the port `{name}` occurs twice") });
        }
        let port = port_type(&name, &ty)?;
        if port == ty {
            return Ok(());
        }
        let (name, ty) = self.rename(old);
        let mut x = old;
        let scalar = ty.rank() == Some(0);
        if let Some(dtype) = port.dtype().filter(|d| ty.dtype() != Some(*d)) {
            let name = if scalar { self.unique(format!("{name}_cast")) } else { name.clone() };
            x = self.cast(ops, &name, x, dtype)?;
        }
        if scalar {
            x = self.op(ops, op::EXPAND_DIMS, &name, x, ("axes", Constant::int32s(&[0])))?;
        }
        self.body().outputs[at] = x;
        Ok(())
    }
}
