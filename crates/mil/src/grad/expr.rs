//! The arithmetic in which rules are written: methods that add MIL ops to the backward program,
//! named after the op that is differentiated.

use super::constants::{ints, zeros};
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use crate::build::{ReducedDims, Transpose};
use crate::op;
use crate::program::{Arg, Constant, DataType, ValueId};

/// Ops in general, and constants.
impl Pullback<'_, '_> {
    pub(super) fn emit<'n>(&mut self, op: &str, args: impl IntoIterator<Item = (&'n str, Arg)>) -> Expr {
        Ok(self.tape.b.op(op, &self.name, args)?)
    }

    pub(super) fn shape(&self, v: ValueId) -> Result<Vec<usize>, GradError> {
        Ok(self.tape.b.shape(v)?)
    }

    pub(super) fn dtype(&self, v: ValueId) -> Option<DataType> {
        self.tape.b.ty(v).dtype()
    }

    pub(super) fn constant(&mut self, value: Constant) -> Expr {
        Ok(self.tape.b.constant(&self.name, value)?)
    }

    /// A tensor of the element type of `like`.
    pub(super) fn tensor_like(&mut self, like: ValueId, shape: &[usize], values: &[f32]) -> Expr {
        let constant = match self.dtype(like) {
            Some(DataType::Fp16) => {
                let halves: Vec<half::f16> = values.iter().map(|v| half::f16::from_f32(*v)).collect();
                Constant::fp16s(shape, &halves)
            }
            _ => Constant::raw(DataType::Fp32, shape, bytemuck::cast_slice(values)),
        };
        self.constant(constant)
    }

    pub(super) fn zeros_like(&mut self, like: ValueId, shape: &[usize]) -> Expr {
        let dtype = self.dtype(like).unwrap_or(DataType::Fp32);
        Ok(zeros(&mut self.tape.b, &self.name, dtype, shape)?)
    }
}

/// Element-wise ops, whose operands broadcast.
impl Pullback<'_, '_> {
    pub(super) fn unary(&mut self, op: &str, x: ValueId) -> Expr {
        self.emit(op, [("x", x.into())])
    }

    pub(super) fn binary(&mut self, op: &str, x: ValueId, y: impl Into<Arg>) -> Expr {
        self.emit(op, [("x", x.into()), ("y", y.into())])
    }

    pub(super) fn add(&mut self, x: ValueId, y: ValueId) -> Expr {
        self.binary(op::ADD, x, y)
    }

    pub(super) fn sub(&mut self, x: ValueId, y: ValueId) -> Expr {
        self.binary(op::SUB, x, y)
    }

    pub(super) fn mul(&mut self, x: ValueId, y: ValueId) -> Expr {
        self.binary(op::MUL, x, y)
    }

    pub(super) fn div(&mut self, x: ValueId, y: ValueId) -> Expr {
        self.binary(op::REAL_DIV, x, y)
    }

    /// An op with a scalar of the element type of `x` on the right.
    pub(super) fn with(&mut self, op: &str, x: ValueId, scalar: f32) -> Expr {
        let scalar = self.tape.b.scalar_like(x, scalar)?;
        self.binary(op, x, scalar)
    }

    pub(super) fn scale(&mut self, x: ValueId, factor: f32) -> Expr {
        if factor == 1.0 { Ok(x) } else { self.with(op::MUL, x, factor) }
    }

    pub(super) fn shift(&mut self, x: ValueId, term: f32) -> Expr {
        if term == 0.0 { Ok(x) } else { self.with(op::ADD, x, term) }
    }

    pub(super) fn neg(&mut self, x: ValueId) -> Expr {
        self.scale(x, -1.0)
    }

    /// `scalar - x`.
    pub(super) fn from(&mut self, scalar: f32, x: ValueId) -> Expr {
        let negative = self.neg(x)?;
        self.shift(negative, scalar)
    }

    /// `scalar / x`, without the epsilon of `inverse`.
    pub(super) fn over(&mut self, scalar: f32, x: ValueId) -> Expr {
        let scalar = self.tape.b.scalar_like(x, scalar)?;
        self.emit(op::REAL_DIV, [("x", scalar.into()), ("y", x.into())])
    }

    /// `1 / √x`.
    pub(super) fn inverse_root(&mut self, x: ValueId) -> Expr {
        let root = self.unary(op::SQRT, x)?;
        self.over(1.0, root)
    }

    /// `x` where `mask` is true, else 0.
    pub(super) fn keep(&mut self, mask: ValueId, x: ValueId) -> Expr {
        let zero = self.tape.b.scalar_like(x, 0.0)?;
        self.emit(op::SELECT, [("cond", mask.into()), ("a", x.into()), ("b", zero.into())])
    }

    pub(super) fn select(&mut self, mask: ValueId, a: impl Into<Arg>, b: impl Into<Arg>) -> Expr {
        self.emit(op::SELECT, [("cond", mask.into()), ("a", a.into()), ("b", b.into())])
    }

    pub(super) fn cast(&mut self, x: ValueId, dtype: DataType) -> Expr {
        self.emit(op::CAST, [("x", x.into()), ("dtype", Constant::string(dtype.name()).into())])
    }

    /// A mask as zeros and ones of the element type of `like`.
    pub(super) fn indicator(&mut self, mask: ValueId, like: ValueId) -> Expr {
        let dtype = self.dtype(like).unwrap_or(DataType::Fp32);
        self.cast(mask, dtype)
    }

    /// `x` in the element type of `like`.
    pub(super) fn cast_like(&mut self, x: ValueId, like: ValueId) -> Expr {
        match (self.dtype(x), self.dtype(like)) {
            (from, Some(to)) if from != Some(to) => self.cast(x, to),
            _ => Ok(x),
        }
    }
}

/// Reductions, products and rearrangements.
impl Pullback<'_, '_> {
    pub(super) fn reduce(&mut self, op: &str, x: ValueId, axes: &[usize], dims: ReducedDims) -> Expr {
        let keep = Constant::bool(dims == ReducedDims::Keep);
        self.emit(op, [("x", x.into()), ("axes", ints(axes).into()), ("keep_dims", keep.into())])
    }

    /// The sum over axes, which are kept with extent 1.
    pub(super) fn sum(&mut self, x: ValueId, axes: &[usize]) -> Expr {
        if axes.is_empty() { Ok(x) } else { self.reduce(op::REDUCE_SUM, x, axes, ReducedDims::Keep) }
    }

    pub(super) fn mean(&mut self, x: ValueId, axes: &[usize]) -> Expr {
        if axes.is_empty() { Ok(x) } else { self.reduce(op::REDUCE_MEAN, x, axes, ReducedDims::Keep) }
    }

    pub(super) fn matmul(&mut self, x: ValueId, y: ValueId, transpose: Transpose) -> Expr {
        Ok(self.tape.b.matmul(&self.name, x, y, transpose)?)
    }

    pub(super) fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Expr {
        if self.shape(x)? == shape {
            return Ok(x);
        }
        if shape.is_empty() {
            let axes: Vec<usize> = (0..self.shape(x)?.len()).collect();
            return self.emit(op::SQUEEZE, [("x", x.into()), ("axes", ints(&axes).into())]);
        }
        self.emit(op::RESHAPE, [("x", x.into()), ("shape", ints(shape).into())])
    }

    pub(super) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Expr {
        if perm.iter().enumerate().all(|(i, p)| i == *p) {
            return Ok(x);
        }
        self.emit(op::TRANSPOSE, [("x", x.into()), ("perm", ints(perm).into())])
    }

    pub(super) fn slice(&mut self, x: ValueId, begin: &[usize], size: &[usize]) -> Expr {
        if self.shape(x)? == size {
            return Ok(x);
        }
        self.emit(op::SLICE_BY_SIZE, [("x", x.into()), ("begin", ints(begin).into()), ("size", ints(size).into())])
    }

    /// A range of one axis.
    pub(super) fn slice_axis(&mut self, x: ValueId, axis: usize, begin: usize, size: usize) -> Expr {
        let mut sizes = self.shape(x)?;
        let mut begins = vec![0; sizes.len()];
        (begins[axis], sizes[axis]) = (begin, size);
        self.slice(x, &begins, &sizes)
    }

    /// Zeros before and after each axis.
    pub(super) fn pad(&mut self, x: ValueId, pads: &[(usize, usize)]) -> Expr {
        self.pad_with(x, pads, 0.0)
    }

    pub(super) fn pad_with(&mut self, x: ValueId, pads: &[(usize, usize)], value: f32) -> Expr {
        if pads.iter().all(|p| *p == (0, 0)) {
            return Ok(x);
        }
        let flat: Vec<usize> = pads.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let value = self.tape.b.scalar_like(x, value)?;
        let mode = Constant::string("constant");
        self.emit(
            op::PAD,
            [("x", x.into()), ("pad", ints(&flat).into()), ("mode", mode.into()), ("constant_val", value.into())],
        )
    }

    /// Zeros before and after one axis.
    pub(super) fn pad_axis(&mut self, x: ValueId, axis: usize, before: usize, after: usize) -> Expr {
        let mut pads = vec![(0, 0); self.shape(x)?.len()];
        pads[axis] = (before, after);
        self.pad(x, &pads)
    }

    pub(super) fn reverse(&mut self, x: ValueId, axes: &[usize]) -> Expr {
        if axes.is_empty() { Ok(x) } else { self.emit(op::REVERSE, [("x", x.into()), ("axes", ints(axes).into())]) }
    }

    /// `step - 1` zeros between the neighbors along an axis: extent `n` becomes `(n - 1) · step +
    /// 1`.
    pub(super) fn dilate(&mut self, x: ValueId, axis: usize, step: usize) -> Expr {
        let mut shape = self.shape(x)?;
        let n = shape[axis];
        if step == 1 || n < 2 {
            return Ok(x);
        }
        let outer = shape[..axis].iter().product();
        let inner = shape[axis + 1..].iter().product();
        let spread = self.reshape(x, &[outer, n, 1, inner])?;
        let spread = self.pad(spread, &[(0, 0), (0, 0), (0, step - 1), (0, 0)])?;
        let spread = self.reshape(spread, &[outer, n * step, inner])?;
        let spread = self.slice(spread, &[0, 0, 0], &[outer, (n - 1) * step + 1, inner])?;
        shape[axis] = (n - 1) * step + 1;
        self.reshape(spread, &shape)
    }

    /// Pads or truncates an axis, so that element `i` moves to `i + offset` of `extent`.
    pub(super) fn place(&mut self, x: ValueId, axis: usize, offset: usize, extent: usize) -> Expr {
        let n = self.shape(x)?[axis];
        let kept = n.min(extent.saturating_sub(offset));
        let cut = self.slice_axis(x, axis, 0, kept)?;
        self.pad_axis(cut, axis, offset, extent.saturating_sub(offset + kept))
    }

    /// The range `[offset, offset + extent)` of an axis, with zeros beyond its end.
    pub(super) fn window(&mut self, x: ValueId, axis: usize, offset: usize, extent: usize) -> Expr {
        let n = self.shape(x)?[axis];
        let longer = self.pad_axis(x, axis, 0, (offset + extent).saturating_sub(n))?;
        self.slice_axis(longer, axis, offset, extent)
    }

    /// Sums over broadcast axes: from the shape of `x` to `wanted`, which broadcasts to it.
    pub(super) fn sum_to(&mut self, x: ValueId, wanted: &[usize]) -> Expr {
        let shape = self.shape(x)?;
        if shape == wanted {
            return Ok(x);
        }
        let lead = shape.len().saturating_sub(wanted.len());
        let axes: Vec<usize> = (0..shape.len())
            .filter(|&i| i < lead || (wanted.get(i - lead) == Some(&1) && shape[i] != 1))
            .filter(|&i| shape[i] != 1)
            .collect();
        let summed = self.sum(x, &axes)?;
        self.reshape(summed, wanted)
    }

    /// Repeated along axes of extent 1 until it has this shape, of the same rank.
    pub(super) fn spread_to(&mut self, x: ValueId, wanted: &[usize]) -> Expr {
        let shape = self.shape(x)?;
        let reps: Vec<usize> = shape.iter().zip(wanted).map(|(n, w)| if *n == 1 { *w } else { 1 }).collect();
        if reps.iter().all(|r| *r == 1) {
            return Ok(x);
        }
        self.emit(op::TILE, [("x", x.into()), ("reps", ints(&reps).into())])
    }
}
