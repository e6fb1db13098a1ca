//! Lowers tensor ops: one step each, which calls the op's routine on whole tensors.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_mil::{Arg, Constant, Op, ValueId};

use super::args::Args;
use super::build::Lowering;
use crate::ir::{MAX_READS, MAX_WRITES, StepKind, TensorOpStep, TensorOperand, View};
use crate::refusal::unsupported;
use crate::tensor_ops::{HeapTensor, TensorOp};

/// Elements of a result that is not stored one by one.
const LARGE: usize = 4 << 10;

/// True if elements next to each other along the last axis are neighbors in memory.
fn has_rows(view: &View) -> bool {
    let last = view.shape.iter().zip(&view.strides).rev().find(|(extent, _)| **extent > 1);
    last.is_none_or(|(_, stride)| *stride == 1)
}

impl<'a> Lowering<'a> {
    /// Lowers a tensor op.
    pub(super) fn tensor_op(&mut self, op: &'a Op, args: &Args<'a>, routine: TensorOp) -> Result<()> {
        let def = args.def();
        let mut reads: Vec<View> = Vec::new();
        let mut operands = Vec::new();
        for param in def.params {
            let given = match op.arg(param.name) {
                None => match args.attribute(param.name) {
                    Some(constant) => vec![self.known(constant)?],
                    None => continue,
                },
                Some(Arg::Const(constant)) => vec![self.known(constant)?],
                Some(Arg::Value(value)) => vec![self.tensor_operand(*value, &mut reads)?],
                Some(Arg::List(values)) => {
                    values.iter().map(|v| self.tensor_operand(*v, &mut reads)).collect::<Result<_>>()?
                }
            };
            operands.push((param.name, given));
        }
        let results = op.outputs.iter().map(|&v| self.function.value(v).ty.clone()).collect();
        let kept: Vec<usize> = (0..op.outputs.len()).filter(|&i| self.uses[op.outputs[i].index()] > 0).collect();
        if reads.len() > MAX_READS || kept.len() > MAX_WRITES {
            let reason = format!("has {} operands and {} results, which are too many", reads.len(), kept.len());
            return Err(unsupported(&op.name, reason));
        }
        let mut writes = Vec::new();
        for &i in &kept {
            let wanted = self.result(op.outputs[i])?;
            // Neighbors that would not be neighbors in memory are stored dense, and copied from
            // there in blocks.
            let scattered = wanted.elements() >= LARGE && !has_rows(&wanted);
            let taken: Vec<View> = reads.iter().chain(&writes).cloned().collect();
            writes.push(if scattered {
                self.fresh(wanted.storage, &wanted.shape, None)
            } else {
                self.apart(&wanted, &taken)
            });
        }
        let step = TensorOpStep { routine, def, opset: self.opset, operands, results, kept: kept.clone() };
        self.push(StepKind::TensorOp(Box::new(step)), reads, writes.clone())?;
        kept.into_iter().zip(writes).try_for_each(|(i, at)| self.settle(op.outputs[i], at))
    }

    fn tensor_operand(&mut self, value: ValueId, reads: &mut Vec<View>) -> Result<TensorOperand> {
        if let Some(constant) = self.function.constant(value) {
            return self.known(constant);
        }
        reads.push(self.view(value)?);
        Ok(TensorOperand::Read(reads.len() - 1, self.dtype(value)?))
    }

    fn known(&mut self, constant: &Constant) -> Result<TensorOperand> {
        let tensor = HeapTensor::from_constant(constant, self.weights)
            .ok_or_else(|| self.fail(format!("has a constant of type {} that cannot be read", constant.ty())))?;
        self.stated += tensor.bytes();
        Ok(TensorOperand::Known(Arc::new(tensor)))
    }
}
