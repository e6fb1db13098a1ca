//! The arguments of a rule: one op, its operands and results as values of the backward program, and
//! the cotangents of its results.

use super::error::GradError;
use super::tape::{Tape, refusal};
use crate::ops::{self, InferContext, Presence};
use crate::opset::Opset;
use crate::program::{Arg, DataType, Op, ValueId};

/// A value of the backward program.
pub(super) type Expr = Result<ValueId, GradError>;

pub(super) struct Pullback<'t, 's> {
    pub(super) tape: &'t mut Tape<'s>,
    pub(super) op: &'s Op,
    /// The op's arguments by the signature, defaults included.
    pub(super) c: InferContext<'s>,
    /// The name of ops that the rule adds: `d_<first result>`.
    pub(super) name: String,
}

impl<'t, 's> Pullback<'t, 's> {
    pub(super) fn new(tape: &'t mut Tape<'s>, op: &'s Op) -> Result<Pullback<'t, 's>, GradError> {
        let def = ops::lookup(&op.name, tape.opset)?;
        let (function, weights) = (tape.source, tape.weights);
        let (args, attributes, blocks) = (&op.args, &op.attributes, &op.blocks);
        let c = InferContext { function, weights, def, args, attributes, blocks };
        let name = op.outputs.first().map_or("d".to_string(), |v| format!("d_{}", function.value(*v).name));
        Ok(Pullback { tape, op, c, name })
    }

    pub(super) fn opset(&self) -> Opset {
        self.tape.opset
    }

    /// An error about this op.
    pub(super) fn refuse(&self, reason: impl Into<String>) -> GradError {
        refusal(self.tape.source, self.op, reason.into())
    }

    fn operand(&self, argument: &str) -> Option<ValueId> {
        match self.op.arg(argument)? {
            Arg::Value(v) => Some(*v),
            Arg::List(vs) => vs.first().copied().filter(|_| vs.len() == 1),
            Arg::Const(_) => None,
        }
    }

    /// The operands of a list argument, as values of the source.
    pub(super) fn operands(&self, argument: &str) -> Vec<ValueId> {
        match self.op.arg(argument) {
            Some(Arg::Value(v)) => vec![*v],
            Some(Arg::List(vs)) => vs.clone(),
            _ => Vec::new(),
        }
    }

    /// True if the argument is given and is a value that a chosen input reaches.
    pub(super) fn wants(&self, argument: &str) -> bool {
        self.operand(argument).is_some_and(|v| self.tape.is_active(v))
    }

    /// An argument of one value.
    pub(super) fn x(&mut self, argument: &str) -> Expr {
        match self.op.arg(argument) {
            Some(Arg::Value(v)) => self.tape.forward(*v),
            Some(Arg::Const(c)) => Ok(self.tape.b.constant(&format!("{}_{argument}", self.name), c.clone())?),
            _ => Err(self.refuse(format!("has no argument `{argument}`"))),
        }
    }

    /// Result `i`.
    pub(super) fn y(&mut self, i: usize) -> Expr {
        match self.op.outputs.get(i) {
            Some(&v) => self.tape.forward(v),
            None => Err(self.refuse(format!("has no result {i}"))),
        }
    }

    /// The cotangent of the first result. Ops of one result have it when their rule runs.
    pub(super) fn dy(&self) -> Expr {
        self.cotangent(0).ok_or_else(|| self.refuse("has no cotangent"))
    }

    /// The cotangent of result `i`; none means zero.
    pub(super) fn cotangent(&self, i: usize) -> Option<ValueId> {
        self.op.outputs.get(i).and_then(|v| self.tape.adjoint(*v))
    }

    /// Extents of a value of the source program.
    pub(super) fn source_shape(&self, value: ValueId) -> Result<Vec<usize>, GradError> {
        let ty = &self.tape.source.value(value).ty;
        ty.shape().ok_or_else(|| self.refuse(format!("the extents of {ty} are not known")))
    }

    /// Extents of an operand.
    pub(super) fn shape_of(&self, argument: &str) -> Result<Vec<usize>, GradError> {
        match self.c.types(argument).first() {
            Some(ty) => ty.shape().ok_or_else(|| self.refuse(format!("the extents of {ty} are not known"))),
            None => Err(self.refuse(format!("has no argument `{argument}`"))),
        }
    }

    /// Extents of result `i`.
    pub(super) fn result_shape(&self, i: usize) -> Result<Vec<usize>, GradError> {
        match self.op.outputs.get(i) {
            Some(&v) => self.source_shape(v),
            None => Err(self.refuse(format!("has no result {i}"))),
        }
    }

    /// A compile-time number of any float type, or its default.
    pub(super) fn float(&self, argument: &str) -> Result<f32, GradError> {
        let given = match self.c.has(argument) {
            true => self.c.constant(argument).cloned(),
            false => match self.c.def.param(argument).map(|p| p.presence) {
                Some(Presence::Default(literal)) => Some(literal.constant(DataType::Fp32)),
                _ => None,
            },
        };
        let number = given.as_ref().and_then(|c| {
            let inline = c.as_f32();
            inline.or_else(|| {
                let ty = c.ty();
                crate::program::Constant::raw(ty.dtype()?, &ty.shape()?, c.bytes(self.tape.weights)?).as_f32()
            })
        });
        number.ok_or_else(|| self.refuse(format!("`{argument}` is not a compile-time number")))
    }

    /// Adds a cotangent to an operand, if a chosen input reaches it: summed over broadcast axes and
    /// cast to the operand's element type.
    pub(super) fn give(&mut self, argument: &str, cotangent: ValueId) -> Result<(), GradError> {
        match self.operand(argument) {
            Some(v) => self.give_value(v, cotangent),
            None => Ok(()),
        }
    }

    /// Adds a cotangent to a value of the source, as [`Pullback::give`].
    pub(super) fn give_value(&mut self, value: ValueId, cotangent: ValueId) -> Result<(), GradError> {
        if !self.tape.is_active(value) {
            return Ok(());
        }
        let wanted = self.source_shape(value)?;
        let mut cotangent = self.sum_to(cotangent, &wanted)?;
        let dtype = self.tape.source.value(value).ty.dtype();
        if let Some(dtype) = dtype.filter(|d| Some(*d) != self.dtype(cotangent)) {
            cotangent = self.cast(cotangent, dtype)?;
        }
        self.tape.accumulate(value, cotangent)
    }
}
