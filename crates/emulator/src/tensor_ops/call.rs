//! One call of a tensor op: its operands by name, with the registry's defaults.

use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::ops::{OpDef, Presence};
use ferrane_mil::program::Type;
use ferrane_mil::{Constant, DataType, Opset};

use super::HeapTensor;

/// The routine of a tensor op: computes the results of one call.
pub(crate) type TensorOp = fn(&Call<'_>) -> Result<Vec<HeapTensor>>;

/// The operands of one op. Compile-time arguments are operands, too.
pub(crate) struct Call<'a> {
    /// The op's signature in the registry.
    pub def: &'static OpDef,
    /// The opset of the program: the meaning of some ops depends on it.
    pub opset: Opset,
    /// Operands by argument; several for a list argument.
    pub operands: Vec<(&'a str, Vec<Arc<HeapTensor>>)>,
    /// The declared types of the results; extents may be unknown.
    pub results: &'a [Type],
    /// Sums accumulate in fp64.
    pub wide: bool,
}

impl Call<'_> {
    /// An error about this op.
    pub(crate) fn fail(&self, reason: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Evaluate, format!("op `{}`: {reason}", self.def.name))
    }

    /// An argument, if it is given.
    pub(crate) fn maybe(&self, name: &str) -> Option<&HeapTensor> {
        self.list(name).first().map(|t| &**t)
    }

    /// An argument that must be given.
    pub(crate) fn tensor(&self, name: &str) -> Result<&HeapTensor> {
        self.maybe(name).ok_or_else(|| self.fail(format!("needs the argument `{name}`")))
    }

    /// The values of a list argument; empty if it is not given.
    pub(crate) fn list(&self, name: &str) -> &[Arc<HeapTensor>] {
        self.operands.iter().find(|(n, _)| *n == name).map_or(&[], |(_, v)| v)
    }

    fn default(&self, name: &str) -> Option<Constant> {
        match self.def.param(name)?.presence {
            Presence::Default(literal) => Some(literal.constant(DataType::Fp32)),
            _ => None,
        }
    }

    fn missing(&self, name: &str) -> Error {
        self.fail(format!("needs a value for `{name}`"))
    }

    /// Integers, or their default.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        match self.maybe(name) {
            Some(t) => Ok((0..t.len()).map(|i| t.int(i)).collect()),
            None => self.default(name).and_then(|c| c.as_ints()).ok_or_else(|| self.missing(name)),
        }
    }

    /// Integers; `None` if the argument is not given.
    pub(crate) fn ints_if(&self, name: &str) -> Option<Vec<i64>> {
        self.maybe(name).map(|t| (0..t.len()).map(|i| t.int(i)).collect())
    }

    /// One integer, or its default.
    pub(crate) fn int(&self, name: &str) -> Result<i64> {
        self.ints(name)?.first().copied().ok_or_else(|| self.missing(name))
    }

    /// One bool, or its default.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.maybe(name) {
            Some(t) if t.len() == 1 => Ok(t.int(0) != 0),
            Some(_) => Err(self.missing(name)),
            None => self.default(name).and_then(|c| c.as_bool()).ok_or_else(|| self.missing(name)),
        }
    }

    /// One float, or its default.
    pub(crate) fn float(&self, name: &str) -> Result<f32> {
        match self.maybe(name) {
            Some(t) if t.len() == 1 => Ok(t.float(0)),
            Some(_) => Err(self.missing(name)),
            None => self.default(name).and_then(|c| c.as_f32()).ok_or_else(|| self.missing(name)),
        }
    }

    /// One string, or its default.
    pub(crate) fn text(&self, name: &str) -> Result<String> {
        let given = self.maybe(name).map(|t| match &t.data {
            super::Data::Strings(s) => s.first().cloned(),
            _ => None,
        });
        given
            .unwrap_or_else(|| self.default(name).and_then(|c| c.as_str().map(str::to_string)))
            .ok_or_else(|| self.missing(name))
    }

    /// An axis argument as an index below `rank`; negative ones count from the end.
    pub(crate) fn axis(&self, name: &str, rank: usize) -> Result<usize> {
        self.normal_axis(self.int(name)?, rank)
    }

    /// An axis as an index below `rank`.
    pub(crate) fn normal_axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let n = rank as i64;
        if axis < -n || axis >= n {
            return Err(self.fail(format!("axis {axis} is out of range for rank {rank}")));
        }
        Ok(if axis < 0 { axis + n } else { axis } as usize)
    }

    /// The element type that result `i` is declared with.
    pub(crate) fn dtype(&self, i: usize) -> Result<DataType> {
        self.results.get(i).and_then(Type::dtype).ok_or_else(|| self.fail("has no such result"))
    }
}
