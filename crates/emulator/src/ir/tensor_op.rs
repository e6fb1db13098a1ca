//! Calls of tensor ops.

use std::sync::Arc;

use ferrane_mil::{DataType, Opset, Type, ops};

use crate::tensor_ops::{HeapTensor, TensorOp};

/// A call of a tensor op.
#[derive(Clone, Debug)]
pub(crate) struct TensorOpStep {
    pub routine: TensorOp,
    pub def: &'static ops::OpDef,
    pub opset: Opset,
    pub operands: Vec<(&'static str, Vec<TensorOperand>)>,
    /// The declared types of all results.
    pub results: Vec<Type>,
    /// For each write, the index of its result.
    pub kept: Vec<usize>,
}

/// An operand of a tensor op.
#[derive(Clone, Debug)]
pub(crate) enum TensorOperand {
    /// A read of the step, and its element type.
    Read(usize, DataType),
    /// A value that is known when the plan is made.
    Known(Arc<HeapTensor>),
}
