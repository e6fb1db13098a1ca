//! The state of one reverse pass: the forward values that exist in the backward program, the
//! cotangents so far, and the values that a chosen input can reach.
//!
//! Forward values are copied on demand, operands first, without recursion, because a chain of ops
//! can be as long as a program.

use super::constants::zeros;
use super::error::GradError;
use super::pullback::Pullback;
use super::rule::{Lookup, Rule};
use crate::build::Builder;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Function, Op, OpId, Type, ValueDef, ValueId};
use crate::weights::Weights;

/// True for tensors of fp16 or fp32, the values that have cotangents.
pub(super) fn is_float(ty: &Type) -> bool {
    matches!(ty, Type::Tensor { dtype: DataType::Fp16 | DataType::Fp32, .. })
}

pub(super) struct Tape<'s> {
    pub(super) source: &'s Function,
    pub(super) weights: &'s Weights,
    pub(super) opset: Opset,
    /// Finds the rule of an op.
    rules: Lookup,
    pub(super) b: Builder,
    /// Values of the backward program, by value of the source.
    forward: Vec<Option<ValueId>>,
    /// Values copied, in order, so that those of a nested block can be forgotten.
    copied: Vec<ValueId>,
    /// Cotangents, by value of the source.
    adjoint: Vec<Option<ValueId>>,
    /// A chosen input reaches the value through ops that pass cotangents.
    active: Vec<bool>,
}

impl<'s> Tape<'s> {
    pub(super) fn new(
        source: &'s Function,
        weights: &'s Weights,
        opset: Opset,
        inputs: &[ValueId],
        rules: Lookup,
    ) -> Tape<'s> {
        let count = source.values.len();
        let mut active = vec![false; count];
        inputs.iter().for_each(|v| active[v.index()] = true);
        spread(source, &source.body().ops, rules, &mut active);
        let b = Builder::over(&source.name, opset, weights.clone());
        let (forward, adjoint) = (vec![None; count], vec![None; count]);
        Tape { source, weights, opset, rules, b, forward, copied: Vec::new(), adjoint, active }
    }

    pub(super) fn is_active(&self, value: ValueId) -> bool {
        self.active[value.index()]
    }

    pub(super) fn adjoint(&self, value: ValueId) -> Option<ValueId> {
        self.adjoint[value.index()]
    }

    /// Removes and returns the cotangent of a value.
    pub(super) fn take_adjoint(&mut self, value: ValueId) -> Option<ValueId> {
        self.adjoint[value.index()].take()
    }

    pub(super) fn set_adjoint(&mut self, value: ValueId, adjoint: Option<ValueId>) {
        self.adjoint[value.index()] = adjoint;
    }

    /// The cotangent of a value, or zeros of its type.
    pub(super) fn adjoint_or_zeros(&mut self, value: ValueId) -> Result<ValueId, GradError> {
        if let Some(adjoint) = self.adjoint(value) {
            return Ok(adjoint);
        }
        let value = self.source.value(value);
        let (dtype, shape) = (value.ty.dtype().unwrap_or(DataType::Fp16), value.ty.shape().unwrap_or_default());
        Ok(zeros(&mut self.b, &format!("d_{}", value.name), dtype, &shape)?)
    }

    pub(super) fn set_forward(&mut self, value: ValueId, here: ValueId) {
        self.forward[value.index()] = Some(here);
        self.copied.push(value);
    }

    /// The number of copies, for [`Tape::forget`].
    pub(super) fn copies(&self) -> usize {
        self.copied.len()
    }

    pub(super) fn forget(&mut self, copies: usize) {
        for value in self.copied.drain(copies.min(self.copied.len())..) {
            self.forward[value.index()] = None;
        }
    }

    /// The value of the backward program that corresponds to a value of the source.
    pub(super) fn forward(&mut self, value: ValueId) -> Result<ValueId, GradError> {
        let mut open = vec![value];
        while let Some(&top) = open.last() {
            if let Some(here) = self.forward[top.index()] {
                open.pop();
                if open.is_empty() {
                    return Ok(here);
                }
                continue;
            }
            let Some(op) = producer(self.source, top) else {
                let name = self.source.value(top).name.clone();
                return Err(GradError::Value { name, reason: "is known inside of its block only".into() });
            };
            let before = open.len();
            open.extend(reads(self.source, op).into_iter().filter(|v| self.forward[v.index()].is_none()));
            if open.len() == before {
                self.copy(op)?;
            }
        }
        Err(GradError::Value { name: self.source.value(value).name.clone(), reason: "cannot be computed".into() })
    }

    fn copy(&mut self, op: &Op) -> Result<(), GradError> {
        if let Some(reason) = unrepeatable(self.source, op) {
            return Err(refusal(self.source, op, format!("{reason}; it can be given as a tap")));
        }
        let first = self.copied.len();
        self.b.copy(self.source, op, &mut self.forward, &mut self.copied)?;
        // Values of a nested block are not visible here.
        let inner = self.copied.split_off(first);
        for value in inner {
            match op.outputs.contains(&value) {
                true => self.copied.push(value),
                false => self.forward[value.index()] = None,
            }
        }
        Ok(())
    }

    /// Adds a cotangent of the value's own type.
    pub(super) fn accumulate(&mut self, value: ValueId, cotangent: ValueId) -> Result<(), GradError> {
        let sum = match self.adjoint(value) {
            None => cotangent,
            Some(before) => self.b.add(&format!("d_{}", self.source.value(value).name), before, cotangent)?,
        };
        self.adjoint[value.index()] = Some(sum);
        Ok(())
    }

    /// Runs the rules of these ops of one block, the last first.
    pub(super) fn reverse(&mut self, ops: &[OpId]) -> Result<(), GradError> {
        let source = self.source;
        for &id in ops.iter().rev() {
            let op = source.op(id);
            let reached = op.outputs.iter().any(|v| self.adjoint(*v).is_some());
            if !reached || !reads(source, op).iter().any(|v| self.is_active(*v)) {
                continue;
            }
            match (self.rules)(&op.name) {
                Rule::Zero(_) => {}
                Rule::No(reason) => return Err(refusal(source, op, reason.into())),
                Rule::Vjp(vjp) => {
                    crate::verify::check_op(source, op, self.opset, self.weights)?;
                    vjp(&mut Pullback::new(self, op)?)?;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn refusal(source: &Function, op: &Op, reason: String) -> GradError {
    let value = op.outputs.first().map_or(String::new(), |v| source.value(*v).name.clone());
    GradError::Op { op: op.name.clone(), value, reason }
}

/// The op that defines a value, if one does.
fn producer(source: &Function, value: ValueId) -> Option<&Op> {
    match source.value(value).def {
        ValueDef::Op(op, _) => Some(source.op(op)),
        _ => None,
    }
}

/// The values that an op reads: operands, and captures of its blocks.
pub(super) fn reads(source: &Function, op: &Op) -> Vec<ValueId> {
    let mut found: Vec<ValueId> = op.operands().collect();
    let mut blocks = op.blocks.clone();
    let (mut inner, mut used) = (std::collections::HashSet::new(), Vec::new());
    while let Some(block) = blocks.pop() {
        let block = source.block(block);
        inner.extend(block.inputs.iter().copied());
        used.extend(block.outputs.iter().copied());
        for &op in &block.ops {
            let op = source.op(op);
            inner.extend(op.outputs.iter().copied());
            used.extend(op.operands());
            blocks.extend_from_slice(&op.blocks);
        }
    }
    for value in used {
        if inner.insert(value) {
            found.push(value);
        }
    }
    found
}

/// Marks the values that marked values reach, in these ops and their nested blocks.
fn spread(source: &Function, ops: &[OpId], rules: Lookup, active: &mut [bool]) {
    for &id in ops {
        let op = source.op(id);
        if matches!(rules(&op.name), Rule::Zero(_)) {
            continue;
        }
        let reached = reads(source, op).iter().any(|v| active[v.index()]);
        for &block in &op.blocks {
            let block = source.block(block);
            block.inputs.iter().for_each(|v| active[v.index()] |= reached && is_float(&source.value(*v).ty));
            spread(source, &block.ops, rules, active);
        }
        if reached {
            op.outputs.iter().for_each(|v| active[v.index()] |= is_float(&source.value(*v).ty));
        }
    }
}

/// Why recomputing an op would not give the same value, if it would not.
fn unrepeatable(source: &Function, op: &Op) -> Option<&'static str> {
    let own = match op.name.as_str() {
        name if name.starts_with("random_") => Some("computed again it would draw other numbers"),
        op::READ_STATE | op::COREML_UPDATE_STATE | op::WRITE_STATE => {
            Some("computed again it would meet another value of the state")
        }
        _ => None,
    };
    let inner = || {
        let ops = op.blocks.iter().flat_map(|b| &source.block(*b).ops);
        ops.into_iter().find_map(|id| unrepeatable(source, source.op(*id)))
    };
    own.or_else(inner)
}
