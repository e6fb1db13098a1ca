//! A position in a function that is being edited: the op there, what it reads, and insertion of ops
//! before it.
//!
//! Queries return `None` if a rule does not apply, so that a rule is a chain of `?`. Ops are
//! checked against the registry as they are inserted, and their result types are inferred;
//! inserting an op that the opset does not have, or that does not fit, returns `None` too.

use super::draft::FunctionDraft;
use crate::build::check_constant;
use crate::op;
use crate::ops::{self, InferContext, Presence};
use crate::opset::Opset;
use crate::program::{Arg, BlockId, Constant, DataType, Function, Op, OpId, Payload, Type, ValueDef, ValueId};
use crate::weights::{Weights, blob};

/// Constants of more bytes than this are stored in the weights instead of inline.
const INLINE: usize = 1024;
/// The blob file of computed constants.
const FOLDED: &str = "@model_path/weights/folded.bin";

/// A position in a function.
pub(crate) struct Cursor<'a> {
    draft: &'a mut FunctionDraft,
    weights: &'a mut Weights,
    block: BlockId,
    at: Option<OpId>,
    inserted: Vec<OpId>,
}

impl<'a> Cursor<'a> {
    /// Before `at`, or at the end of the block.
    pub(super) fn new(
        draft: &'a mut FunctionDraft,
        weights: &'a mut Weights,
        block: BlockId,
        at: Option<OpId>,
    ) -> Cursor<'a> {
        Cursor { draft, weights, block, at, inserted: Vec::new() }
    }

    /// Removes the ops that were inserted.
    pub(super) fn undo(&mut self) {
        for op in std::mem::take(&mut self.inserted).into_iter().rev() {
            self.draft.remove_dead(op);
        }
    }

    /// The function that is being edited; the links of the draft hold the order of ops.
    pub(super) fn function(&self) -> &Function {
        self.draft.function()
    }

    pub(super) fn weights(&self) -> &Weights {
        self.weights
    }

    /// The opset at this position; `None` if the tag names none.
    pub(super) fn opset(&self) -> Option<Opset> {
        self.draft.opset(self.block)
    }

    pub(super) fn block(&self) -> BlockId {
        self.block
    }

    /// The id of the op at this position.
    pub(super) fn id(&self) -> Option<OpId> {
        self.at
    }

    /// The name of the first result of the op here, after which its replacements are named.
    pub(super) fn label(&self) -> String {
        self.result().map_or_else(String::new, |v| self.function().value(v).name.clone())
    }

    /// The blocks that contain the op here, innermost first.
    pub(super) fn blocks_around(&self) -> Vec<BlockId> {
        self.draft.blocks_around(self.block)
    }

    /// The block that contains another op; `None` if it was removed.
    pub(super) fn block_of(&self, op: OpId) -> Option<BlockId> {
        self.draft.block_of(op)
    }

    /// The op here, if it has that name.
    pub(super) fn is(&self, name: &str) -> Option<&Op> {
        let op = self.function().op(self.at?);
        (op.name == name).then_some(op)
    }

    /// The op at this position, `None` at the end of a block.
    pub(super) fn op(&self) -> Option<&Op> {
        Some(self.function().op(self.at?))
    }

    /// The first result of the op here.
    pub(super) fn result(&self) -> Option<ValueId> {
        self.op()?.outputs.first().copied()
    }

    /// The op that computes a value.
    pub(super) fn def(&self, value: ValueId) -> Option<&Op> {
        match self.function().value(value).def {
            ValueDef::Op(op, _) => Some(self.function().op(op)),
            _ => None,
        }
    }

    /// The op that computes a value, if it has that name.
    pub(super) fn def_of(&self, value: ValueId, name: &str) -> Option<&Op> {
        self.def(value).filter(|op| op.name == name)
    }

    /// True if exactly one op reads the value, once.
    pub(super) fn sole(&self, value: ValueId) -> bool {
        self.draft.uses(value) == 1 && !self.draft.is_returned(value)
    }

    /// How often ops read a value.
    pub(super) fn uses(&self, value: ValueId) -> usize {
        self.draft.uses(value)
    }

    /// True if a block returns the value.
    pub(super) fn is_returned(&self, value: ValueId) -> bool {
        self.draft.is_returned(value)
    }

    /// The type of a value.
    pub(super) fn ty(&self, value: ValueId) -> &Type {
        &self.function().value(value).ty
    }

    /// The extents of a value, if all are known.
    pub(super) fn shape(&self, value: ValueId) -> Option<Vec<usize>> {
        self.ty(value).shape()
    }

    /// The value of an argument that is one value.
    pub(super) fn arg(&self, op: &Op, name: &str) -> Option<ValueId> {
        self.function().arg_value(op, name)
    }

    /// The compile-time value of an argument.
    pub(super) fn constant_arg<'b>(&'b self, op: &'b Op, name: &str) -> Option<&'b Constant> {
        self.function().arg_constant(op, name)
    }

    /// The one element of a compile-time argument, whatever its rank.
    pub(super) fn scalar(&self, op: &Op, name: &str) -> Option<f32> {
        let constant = self.constant_arg(op, name)?;
        match self.floats(constant)?.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// The elements of a constant of fp16, fp32 or integers as fp32, inline or in the weights.
    pub(super) fn floats(&self, constant: &Constant) -> Option<Vec<f32>> {
        let ty = constant.ty();
        let bytes = constant.bytes(self.weights)?;
        match ty.dtype()? {
            DataType::Fp16 => {
                Some(bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect())
            }
            DataType::Fp32 => {
                Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            dtype => {
                let ints = Constant::raw(dtype, &ty.shape()?, bytes).as_ints()?;
                Some(ints.into_iter().map(|v| v as f32).collect())
            }
        }
    }

    /// The arguments of an op with the registry's defaults.
    pub(super) fn args<'b>(&'b self, op: &'b Op) -> Option<InferContext<'b>> {
        let def = ops::find(&op.name, self.opset()?)?;
        let function = self.function();
        Some(InferContext::of(function, self.weights, def, op))
    }

    /// Compile-time integers, or their default.
    pub(super) fn ints(&self, op: &Op, name: &str) -> Option<Vec<i64>> {
        self.args(op)?.ints(name).ok()
    }

    /// Axes as sorted indices below `rank`; `default` if the argument is absent.
    pub(super) fn axes(&self, op: &Op, name: &str, rank: usize, default: Vec<usize>) -> Option<Vec<usize>> {
        let args = self.args(op)?;
        let mut axes = match args.ints_if(name).ok()? {
            Some(axes) => args.normal_axes(&axes, rank).ok()?,
            None => default,
        };
        axes.sort_unstable();
        Some(axes)
    }

    /// Inserts a constant. Large ones are stored in the weights.
    pub(super) fn constant(&mut self, label: &str, mut constant: Constant) -> Option<ValueId> {
        if let Constant::Tensor { ty, payload: Payload::Bytes(bytes) } = &constant
            && bytes.len() > INLINE
            && let Some(dtype) = ty.dtype().filter(|d| blob::code(*d).is_some())
        {
            let record = self.weights.add_packed(FOLDED, dtype, ty.elements()?, bytes.clone());
            constant = Constant::Tensor { ty: ty.clone(), payload: Payload::Weight(record) };
        }
        check_constant(label, &constant, self.weights).ok()?;
        let name = self.draft.unique(label);
        let attributes = vec![("name".into(), Constant::string(&name)), ("val".into(), constant.clone())];
        let results = vec![(name, constant.ty())];
        Some(self.push(op::CONST, Vec::new(), attributes, results)[0])
    }

    /// Inserts an op with one result. Literal arguments become constants.
    pub(super) fn insert<'n>(
        &mut self,
        op: &str,
        label: &str,
        args: impl IntoIterator<Item = (&'n str, Arg)>,
    ) -> Option<ValueId> {
        let def = ops::find(op, self.opset()?)?;
        let mut args: Vec<(String, Arg)> = args.into_iter().map(|(n, a)| (n.to_string(), a)).collect();
        let like = args.iter().find(|(n, _)| n == "x").and_then(|(_, a)| match a {
            Arg::Value(v) => self.ty(*v).dtype(),
            _ => None,
        });
        for param in def.params.iter().filter(|p| p.spelled) {
            if let Presence::Default(value) = param.presence
                && !args.iter().any(|(n, _)| n == param.name)
            {
                args.push((param.name.into(), Arg::Const(value.constant(like.unwrap_or(DataType::Fp16)))));
            }
        }
        let context = InferContext {
            function: self.function(),
            weights: self.weights,
            def,
            args: &args,
            attributes: &[],
            blocks: &[],
        };
        let types = ops::infer(&context).ok()?;
        let [ty] = types.as_slice() else { return None };
        let label = self.draft.unique(label);
        for (name, arg) in &mut args {
            if let Arg::Const(c) = arg {
                *arg = Arg::Value(self.constant(&format!("{label}_{name}"), c.clone())?);
            }
        }
        let attributes = vec![("name".into(), Constant::string(&label))];
        Some(self.push(op, args, attributes, vec![(label, ty.clone())])[0])
    }

    fn push(
        &mut self,
        op: &str,
        args: Vec<(String, Arg)>,
        attributes: Vec<(String, Constant)>,
        results: Vec<(String, Type)>,
    ) -> Vec<ValueId> {
        let op = Op { name: op.into(), args, attributes, outputs: Vec::new(), blocks: Vec::new(), span: None };
        let (id, outputs) = self.draft.add(op, results, self.block, self.at);
        self.inserted.push(id);
        outputs
    }

    /// Replaces the results of the op here by values, and removes the op and what only it read.
    /// Does nothing if one value cannot replace its result: its type differs, or it would become an
    /// output and is not computed in this block.
    pub(super) fn replace_all(&mut self, with: &[ValueId]) -> Option<()> {
        let id = self.at?;
        let outputs = self.function().op(id).outputs.clone();
        if outputs.len() != with.len() || !outputs.iter().zip(with).all(|(old, new)| self.draft.can_replace(*old, *new))
        {
            return None;
        }
        for (old, new) in outputs.iter().zip(with) {
            self.draft.replace(*old, *new);
        }
        self.draft.remove_dead(id);
        Some(())
    }

    /// [`Cursor::replace_all`] for an op with one result.
    pub(super) fn replace(&mut self, with: ValueId) -> Option<()> {
        self.replace_all(&[with])
    }

    /// Removes the op here, and what only it read, if no op reads its results and it has no
    /// effects. Returns the number of ops removed.
    pub(super) fn remove_dead(&mut self) -> usize {
        self.at.map_or(0, |op| self.draft.remove_dead(op))
    }

    /// A scalar constant of an element type: fp16 (rounded to nearest even), fp32 or int32.
    pub(super) fn scalar_of(dtype: DataType, value: f32) -> Option<Constant> {
        match dtype {
            DataType::Fp16 => Some(Constant::fp16(value)),
            DataType::Fp32 => Some(Constant::fp32(value)),
            DataType::Int32 => Some(Constant::int32(value as i32)),
            _ => None,
        }
    }
}
