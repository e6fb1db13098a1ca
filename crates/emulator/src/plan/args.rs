//! Reads the arguments of an op, with the registry's defaults.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::ops::{self, InferContext, Presence};
use ferrane_mil::{Arg, Constant, DataType, Function, MilError, Op, Opset, ValueId, Weights};

use crate::refusal::unsupported;
use crate::tensor_ops::{Data, HeapTensor};

/// The arguments of one op.
pub(super) struct Args<'a> {
    context: InferContext<'a>,
    op: &'a Op,
}

fn invalid(error: &MilError) -> Error {
    Error::new(ErrorKind::InvalidProgram, error.to_string())
}

impl<'a> Args<'a> {
    pub(super) fn new(function: &'a Function, weights: &'a Weights, opset: Opset, op: &'a Op) -> Result<Args<'a>> {
        let def = ops::lookup(&op.name, opset).map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))?;
        let context = InferContext::of(function, weights, def, op);
        Ok(Args { context, op })
    }

    pub(super) fn def(&self) -> &'static ops::OpDef {
        self.context.def
    }

    /// An argument that is an attribute, as those of `constexpr_*` ops are up to iOS 17.
    pub(super) fn attribute(&self, name: &str) -> Option<&'a Constant> {
        self.op.attribute(name).filter(|_| self.op.name.starts_with("constexpr_"))
    }

    pub(super) fn unsupported(&self, reason: impl std::fmt::Display) -> Error {
        unsupported(&self.op.name, reason)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.context.has(name)
    }

    /// The value of an argument that is one value.
    pub(super) fn value(&self, name: &str) -> Option<ValueId> {
        match self.op.arg(name)? {
            Arg::Value(v) => Some(*v),
            Arg::List(v) => v.first().copied().filter(|_| v.len() == 1),
            Arg::Const(_) => None,
        }
    }

    /// The values of a list argument.
    pub(super) fn values(&self, name: &str) -> Vec<ValueId> {
        match self.op.arg(name) {
            Some(Arg::Value(v)) => vec![*v],
            Some(Arg::List(v)) => v.clone(),
            _ => Vec::new(),
        }
    }

    /// The constant that an argument or attribute refers to.
    pub(super) fn constant(&self, name: &str) -> Option<&'a Constant> {
        self.context.constant(name)
    }

    pub(super) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.context.ints(name).map_err(|e| invalid(&e))
    }

    pub(super) fn ints_if(&self, name: &str) -> Result<Option<Vec<i64>>> {
        if self.context.def.param(name).is_none() {
            return Ok(None);
        }
        self.context.ints_if(name).map_err(|e| invalid(&e))
    }

    pub(super) fn int(&self, name: &str) -> Result<i64> {
        self.context.int(name).map_err(|e| invalid(&e))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        self.context.flag(name).map_err(|e| invalid(&e))
    }

    pub(super) fn text(&self, name: &str) -> Result<String> {
        self.context.text(name).map_err(|e| invalid(&e))
    }

    pub(super) fn axis(&self, name: &str, rank: usize) -> Result<usize> {
        self.context.axis(name, rank).map_err(|e| invalid(&e))
    }

    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        self.context.normal_axes(axes, rank).map_err(|e| invalid(&e))
    }

    /// A compile-time float, or its default as the element type of `like` holds it.
    pub(super) fn float(&self, name: &str, like: DataType) -> Result<f32> {
        if let Some(constant) = self.constant(name) {
            return floats(constant, self.context.weights)
                .and_then(|v| v.first().copied())
                .ok_or_else(|| self.unsupported(format!("argument `{name}` has no usable value")));
        }
        let default = match self.context.def.param(name).map(|p| p.presence) {
            Some(Presence::Default(literal)) => literal.constant(like).as_f32(),
            _ => None,
        };
        default.ok_or_else(|| self.unsupported(format!("argument `{name}` must be a compile-time constant")))
    }
}

/// The elements of a numeric constant as floats.
pub(super) fn floats(constant: &Constant, weights: &Weights) -> Option<Vec<f32>> {
    match HeapTensor::from_constant(constant, weights)?.data {
        Data::Floats(values) => Some(values),
        Data::Ints(values) => Some(values.into_iter().map(|v| v as f32).collect()),
        Data::Strings(_) => None,
    }
}
