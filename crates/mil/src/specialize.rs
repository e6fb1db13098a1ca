//! A function for chosen extents of its inputs.
//!
//! Converters write a network for inputs of several sizes once, with unknown extents (`?`).
//! [`specialize`] fixes the extents of the inputs and follows them through the function: every op's
//! rule is applied again, and integers that are computed from extents (`shape`, and what slices,
//! concatenates and adds its results) become constants, because later ops take their extents from
//! them. A network without control flow then has no unknown extent left, so that it can be checked,
//! costed, planned and bound to surfaces like any other.
//!
//! Numbers do not change: only `int32`, `bool` and `fp32` values of at most
//! [`MOST_ELEMENTS`] elements that depend on extents and constants alone are computed ahead, with
//! the `exact` arithmetic of an [`Evaluate`], which these types share with the others. What stays
//! unknown, such as the extents that a loop changes, stays `?`.

use std::collections::HashSet;

use crate::error::MilError;
use crate::eval::Evaluate;
use crate::op;
use crate::ops::{self, InferContext};
use crate::opset::Opset;
use crate::program::{BlockId, Constant, DataType, Dim, Function, OpId, Program, Type, ValueId};
use crate::verify::verify;
use crate::weights::Weights;

/// The most elements of a value that is computed ahead: far more than a tensor has axes.
pub const MOST_ELEMENTS: usize = 256;

/// The program with these extents of the inputs of one function; the other functions are unchanged.
/// An input that is not named keeps its type.
///
/// # Errors
/// [`MilError::Extents`] for an unknown function or input, for extents that contradict the input's
/// type, and for an op that does not accept the extents that reach it; [`MilError::Invalid`] for a
/// program that does not verify.
pub fn specialize(
    program: &Program,
    function: &str,
    shapes: &[(String, Vec<usize>)],
    evaluate: &dyn Evaluate,
) -> Result<Program, MilError> {
    verify(program)?;
    let mut program = program.clone();
    let Program { functions, weights, .. } = &mut program;
    let found = functions.iter_mut().find(|f| f.name == function);
    let found = found.ok_or_else(|| invalid(format!("there is no function `{function}`")))?;
    for (name, shape) in shapes {
        fix_input(found, name, shape)?;
    }
    for (tag, body) in found.bodies.clone() {
        let Some(opset) = tag.known() else { continue };
        let outputs = found.block(body).outputs.iter().copied().collect();
        let inner = std::mem::take(found);
        let mut work = Specializer {
            function: inner,
            weights,
            opset,
            evaluate,
            outputs,
            from_extents: HashSet::new(),
            changed: Vec::new(),
        };
        let done = work.block(body, Depth::Body);
        *found = work.function;
        done?;
    }
    verify(&program)?;
    Ok(program)
}

fn invalid(reason: String) -> MilError {
    MilError::Extents { reason }
}

fn fix_input(function: &mut Function, name: &str, shape: &[usize]) -> Result<(), MilError> {
    let id = function.inputs.iter().copied().find(|v| function.value(*v).name == name);
    let id = id.ok_or_else(|| invalid(format!("`{}` has no input `{name}`", function.name)))?;
    let ty = &mut function.values[id.index()].ty;
    let fixed = match &*ty {
        Type::Tensor { dtype, shape: declared } => {
            Some(Type::tensor(*dtype, shape)).filter(|_| admits(declared, shape))
        }
        _ => None,
    };
    match fixed {
        Some(fixed) => *ty = fixed,
        None => return Err(invalid(format!("the input `{name}` is {ty}, its shape cannot be {shape:?}"))),
    }
    Ok(())
}

/// True if the declared extents can be these.
pub(crate) fn admits(declared: &[Dim], shape: &[usize]) -> bool {
    let one = |(d, n): (&Dim, &usize)| matches!(d, Dim::Unknown) || *d == Dim::Fixed(*n);
    declared.len() == shape.len() && declared.iter().zip(shape).all(one)
}

/// Where an op stands.
#[derive(Clone, Copy, PartialEq)]
enum Depth {
    /// In the body of the function.
    Body,
    /// In a block of an op.
    Nested,
}

struct Specializer<'a> {
    function: Function,
    weights: &'a Weights,
    opset: Opset,
    evaluate: &'a dyn Evaluate,
    /// The outputs of the body, each of which must stay the result of an op.
    outputs: HashSet<ValueId>,
    /// Values that were computed from extents and are constants now.
    from_extents: HashSet<ValueId>,
    /// The types that were replaced, in order, so that a trial can be taken back.
    changed: Vec<(ValueId, Type)>,
}

impl Specializer<'_> {
    fn block(&mut self, id: BlockId, depth: Depth) -> Result<(), MilError> {
        // `verify` bounds the nesting of blocks, and so this recursion.
        for op in self.function.block(id).ops.clone() {
            self.op(op, depth)?;
        }
        Ok(())
    }

    fn op(&mut self, id: OpId, depth: Depth) -> Result<(), MilError> {
        if self.function.op(id).name == op::CONST {
            return Ok(());
        }
        if self.function.op(id).name == op::WHILE_LOOP {
            self.loop_blocks(id, depth)?;
        } else {
            for block in self.function.op(id).blocks.clone() {
                self.block(block, Depth::Nested)?;
            }
        }
        let op = self.function.op(id);
        let Some(def) = ops::find(&op.name, self.opset) else { return Ok(()) };
        let label = op.outputs.first().map_or(op.name.as_str(), |v| &self.function.value(*v).name);
        let inferred = ops::infer(&InferContext::of(&self.function, self.weights, def, op))
            .map_err(|e| invalid(format!("with these shapes of the inputs, `{label}` is not possible: {e}")))?;
        for (output, ty) in op.outputs.clone().into_iter().zip(&inferred) {
            self.narrow(output, ty)?;
        }
        if depth == Depth::Body {
            self.fold(id);
        }
        Ok(())
    }

    /// The blocks of a loop. Its variables are tried with the extents that they begin with, which
    /// hold if the body gives them the same ones. A loop in a block is not tried, so that nested
    /// loops cost no more than their ops.
    fn loop_blocks(&mut self, id: OpId, depth: Depth) -> Result<(), MilError> {
        let blocks = self.function.op(id).blocks.clone();
        let begin: Vec<Type> = self.function.op(id).operands().map(|v| self.function.value(v).ty.clone()).collect();
        if let (Depth::Body, [_, body]) = (depth, blocks.as_slice()) {
            let mark = self.changed.len();
            if self.try_loop(&blocks, *body, &begin).is_ok_and(|holds| holds) {
                return Ok(());
            }
            for (value, ty) in self.changed.drain(mark..).rev() {
                self.function.values[value.index()].ty = ty;
            }
        }
        blocks.into_iter().try_for_each(|block| self.block(block, Depth::Nested))
    }

    fn try_loop(&mut self, blocks: &[BlockId], body: BlockId, begin: &[Type]) -> Result<bool, MilError> {
        for &block in blocks {
            for (input, ty) in self.function.block(block).inputs.clone().into_iter().zip(begin) {
                self.narrow(input, ty)?;
            }
            self.block(block, Depth::Nested)?;
        }
        let outputs = &self.function.block(body).outputs;
        Ok(outputs.len() == begin.len() && outputs.iter().zip(begin).all(|(v, ty)| self.function.value(*v).ty == *ty))
    }

    /// Gives a value the extents that its op's rule found, where it had none.
    fn narrow(&mut self, id: ValueId, found: &Type) -> Result<(), MilError> {
        let value = self.function.value(id);
        let ty = meet(&value.ty, found).ok_or_else(|| {
            let (name, declared) = (&value.name, &value.ty);
            invalid(format!("with these shapes of the inputs, `{name}` becomes {found}, and is declared {declared}"))
        })?;
        if ty != value.ty {
            let old = std::mem::replace(&mut self.function.values[id.index()].ty, ty);
            self.changed.push((id, old));
        }
        Ok(())
    }

    /// Makes an op a constant if it depends on extents and constants alone.
    fn fold(&mut self, id: OpId) {
        let op = self.function.op(id);
        let [output] = op.outputs[..] else { return };
        let ty = &self.function.value(output).ty;
        if self.outputs.contains(&output) || !op.blocks.is_empty() || !is_foldable(ty) || op.name.starts_with("random_")
        {
            return;
        }
        let Some(value) = self.extents_of(id).or_else(|| self.computed(id)) else { return };
        if ops_agree(ty, &value) {
            let op = &mut self.function.ops[id.index()];
            op.name = op::CONST.into();
            op.args.clear();
            op.attributes.retain(|(name, _)| name == "name");
            self.function.values[output.index()].ty = value.ty();
            op.attributes.insert(0, ("val".into(), value));
            self.from_extents.insert(output);
        }
    }

    /// The extents that a `shape` op gives, if they are known.
    fn extents_of(&self, id: OpId) -> Option<Constant> {
        let op = self.function.op(id);
        if op.name != op::SHAPE {
            return None;
        }
        let extents = self.function.value(self.function.arg_value(op, "x")?).ty.shape()?;
        let extents: Option<Vec<i32>> = extents.into_iter().map(|n| i32::try_from(n).ok()).collect();
        Some(Constant::int32s(&extents?))
    }

    /// The result of an op that reads extents and other constants.
    fn computed(&self, id: OpId) -> Option<Constant> {
        let op = self.function.op(id);
        let reads_extents = op.operands().any(|v| self.from_extents.contains(&v));
        let known = |v: ValueId| self.function.constant(v).is_some() && is_foldable(&self.function.value(v).ty);
        if !reads_extents || !op.operands().all(|v| known(v) || self.is_word(v)) {
            return None;
        }
        let found = self.evaluate.evaluate(&self.function, op, self.opset, self.weights).ok()?;
        let [value] = <[Constant; 1]>::try_from(found).ok()?;
        Some(value)
    }

    /// A constant string, such as the `dtype` of a cast.
    fn is_word(&self, id: ValueId) -> bool {
        self.function.constant(id).is_some_and(|c| c.as_str().is_some())
    }
}

/// A small tensor whose arithmetic is the same under every table of the emulator.
fn is_foldable(ty: &Type) -> bool {
    matches!(ty.dtype(), Some(DataType::Int32 | DataType::Bool | DataType::Fp32))
        && ty.elements().is_some_and(|n| n <= MOST_ELEMENTS)
}

fn ops_agree(ty: &Type, value: &Constant) -> bool {
    matches!(value, Constant::Tensor { .. }) && ops::agree(ty, &value.ty())
}

/// The type that says what both say; `None` if they contradict each other.
fn meet(a: &Type, b: &Type) -> Option<Type> {
    let extent = |x: &Dim, y: &Dim| match (x, y) {
        (Dim::Unknown, d) | (d, Dim::Unknown) => Some(d.clone()),
        (x, y) => (x == y).then(|| x.clone()),
    };
    match (a, b) {
        (Type::Tensor { dtype: d, shape: s }, Type::Tensor { dtype: e, shape: t }) if d == e && s.len() == t.len() => {
            let shape = s.iter().zip(t).map(|(x, y)| extent(x, y)).collect::<Option<_>>()?;
            Some(Type::Tensor { dtype: *d, shape })
        }
        (Type::List { element: e, length: m }, Type::List { element: f, length: n }) => {
            Some(Type::List { element: Box::new(meet(e, f)?), length: extent(m, n)? })
        }
        _ => ops::agree(a, b).then(|| a.clone()),
    }
}
