//! Bounds of values, by interval arithmetic over a program.
//!
//! The analysis is a forward pass: inputs have the bounds that a user gives (or the range of their
//! type), functions the range of their results, sums and products the range of their operands, and
//! products with constant matrices are bounded row by row. Constants are read only if the other
//! operand is bounded. A bound is infinite if nothing is known. Rounding is ignored: bounds are
//! accurate to the precision of fp16, which suffices for the limits that they are compared with.

use std::collections::HashMap;

use ferrane_mil::{Arg, Constant, DataType, Op, Type, ValueId, Weights};

use crate::options::InputBounds;
use crate::select::Unit;
use crate::view::FunctionView;

/// An interval of values, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lower bound, possibly negative infinity.
    pub lo: f64,
    /// The upper bound, possibly infinity.
    pub hi: f64,
}

impl Range {
    /// The interval of all values: nothing is known.
    pub const ALL: Range = Range { lo: f64::NEG_INFINITY, hi: f64::INFINITY };

    /// The interval between two numbers; all values if one is NaN or they are out of order.
    pub fn new(lo: f64, hi: f64) -> Range {
        if lo <= hi { Range { lo, hi } } else { Range::ALL }
    }

    /// The largest magnitude in the interval.
    pub fn magnitude(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    /// True if both bounds are finite.
    pub fn is_bounded(self) -> bool {
        self.magnitude().is_finite()
    }

    /// True if every value has at least the magnitude `limit`.
    pub fn beyond(self, limit: f64) -> bool {
        self.lo >= limit || self.hi <= -limit
    }

    /// True if a value may have at least the magnitude `limit`, and the bound on that side is
    /// finite.
    pub fn reaches(self, limit: f64) -> bool {
        (self.hi.is_finite() && self.hi >= limit) || (self.lo.is_finite() && self.lo <= -limit)
    }

    fn or(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    fn map(self, f: impl Fn(f64) -> f64) -> Range {
        Range::new(f(self.lo), f(self.hi))
    }

    fn add(self, other: Range) -> Range {
        Range::new(self.lo + other.lo, self.hi + other.hi)
    }

    fn negated(self) -> Range {
        Range { lo: -self.hi, hi: -self.lo }
    }

    fn times(self, other: Range) -> Range {
        let all = [self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi];
        // Zero times an unbounded value is unknown.
        if all.iter().any(|v| v.is_nan()) {
            return Range::ALL;
        }
        Range::new(
            all.iter().copied().fold(f64::INFINITY, f64::min),
            all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        )
    }

    fn scaled(self, n: f64) -> Range {
        self.times(Range { lo: n, hi: n })
    }
}

/// Bounds of the sums of a product, and whether one sum is certainly beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// Bounds of all sums.
    pub all: Range,
    /// The largest lower bound and the smallest upper bound of a single row.
    pub surest: Range,
}

/// Larger constants are not read, to keep the analysis fast.
const ELEMENTS: usize = 1 << 24;

/// The bounds of the values of a function.
#[derive(Debug, Default)]
pub struct Ranges {
    values: Vec<Range>,
    sums: HashMap<ValueId, Sums>,
    /// Which values are constants that were read.
    read: Vec<bool>,
    /// Results of a softmax along the last axis: their rows add up to one.
    rows: Vec<ValueId>,
}

impl Ranges {
    /// Computes the bounds for a view, with bounds of inputs by name.
    pub(crate) fn of(view: &FunctionView<'_>, weights: &Weights, bounds: &[InputBounds]) -> Ranges {
        let count = view.function.values.len();
        let (values, read) = (vec![Range::ALL; count], vec![false; count]);
        let mut ranges = Ranges { values, read, ..Ranges::default() };
        for input in view.inputs() {
            let value = view.function.value(input);
            let given = bounds.iter().find(|b| b.name == value.name);
            let range = given.map_or_else(|| of_type(&value.ty), |b| Range::new(b.low.into(), b.high.into()));
            ranges.set(input, range);
        }
        for (id, op) in view.ops() {
            if view.selection.unit(id) != Some(Unit::Folded) {
                ranges.op(view, weights, op);
            }
        }
        ranges
    }

    /// The bounds of a value; a constant has them only if the analysis read it.
    pub fn get(&self, value: ValueId) -> Range {
        self.values.get(value.index()).copied().unwrap_or(Range::ALL)
    }

    /// The bounds of the sums of a product, by its result.
    pub fn sums(&self, value: ValueId) -> Option<Sums> {
        self.sums.get(&value).copied()
    }

    fn set(&mut self, value: ValueId, range: Range) {
        if let Some(slot) = self.values.get_mut(value.index()) {
            *slot = range;
        }
    }

    /// The bounds of a constant, which is read once.
    fn constant(&mut self, value: ValueId, constant: &Constant, weights: &Weights) -> Range {
        if self.read.get_mut(value.index()).is_some_and(|read| !std::mem::replace(read, true)) {
            self.set(value, extremes(constant, weights));
        }
        self.get(value)
    }

    /// The bounds of an argument; reads a constant if necessary.
    fn arg(&mut self, view: &FunctionView<'_>, weights: &Weights, op: &Op, name: &str) -> Range {
        match op.arg(name) {
            Some(Arg::Const(c)) => extremes(c, weights),
            Some(Arg::Value(v)) => match view.function.constant(*v) {
                Some(c) => self.constant(*v, c, weights),
                None => self.get(*v),
            },
            _ => Range::ALL,
        }
    }

    /// The bounds of both operands; constants are read only if the other operand is bounded.
    fn pair(&mut self, view: &FunctionView<'_>, weights: &Weights, op: &Op) -> (Range, Range) {
        let constant = ["x", "y"].map(|n| view.constant_arg(op, n));
        if constant[0] {
            let y = self.arg(view, weights, op, "y");
            return if y == Range::ALL { (y, y) } else { (self.arg(view, weights, op, "x"), y) };
        }
        let x = self.arg(view, weights, op, "x");
        // A scalar is cheap to read, and may bound the result even if the other operand is
        // unbounded.
        if x == Range::ALL { (x, x) } else { (x, self.arg(view, weights, op, "y")) }
    }

    fn op(&mut self, view: &FunctionView<'_>, weights: &Weights, op: &Op) {
        let Some(&result) = op.outputs.first() else { return };
        let known = view.ty(result).dtype() == Some(DataType::Bool);
        let range = if known { Range::new(0.0, 1.0) } else { self.result(view, weights, op, result) };
        if range != Range::ALL {
            for &output in &op.outputs {
                self.set(output, range);
            }
        }
    }

    fn result(&mut self, view: &FunctionView<'_>, weights: &Weights, op: &Op, result: ValueId) -> Range {
        let unit = Range::new(0.0, 1.0);
        let mut x = || self.arg(view, weights, op, "x");
        match op.name.as_str() {
            "softmax" => {
                let rank = view.ty(result).rank().unwrap_or(0);
                if rank > 0 && (op.arg("axis").is_none() || view.axis(op, "axis", rank) == Some(rank - 1)) {
                    self.rows.push(result);
                }
                unit
            }
            "sigmoid" | "sigmoid_hard" => unit,
            "tanh" | "erf" | "softsign" | "sin" | "cos" => Range::new(-1.0, 1.0),
            "relu6" => Range::new(0.0, 6.0),
            "relu" => x().map(|v| v.max(0.0)),
            // The minima of the two functions.
            "silu" => Range { lo: -0.2785, hi: x().hi.max(0.0) },
            "gelu" => Range { lo: -0.1701, hi: x().hi.max(0.0) },
            "softplus" => Range { lo: 0.0, hi: x().hi.max(0.0) + 0.7 },
            "exp" => x().map(f64::exp),
            "sqrt" => x().map(|v| v.max(0.0).sqrt()),
            "abs" => {
                let x = x();
                let least = if x.lo <= 0.0 && x.hi >= 0.0 { 0.0 } else { x.lo.abs().min(x.hi.abs()) };
                Range::new(least, x.magnitude())
            }
            "square" => {
                let x = x();
                let least = if x.lo <= 0.0 && x.hi >= 0.0 { 0.0 } else { x.lo.abs().min(x.hi.abs()) };
                Range::new(least * least, x.magnitude() * x.magnitude())
            }
            "floor" => x().map(f64::floor),
            "ceil" => x().map(f64::ceil),
            "round" => x().map(f64::round),
            "clip" => {
                let x = x();
                let ends = ["alpha", "beta"].map(|n| view.function.arg_constant(op, n).and_then(Constant::as_f32));
                let lo = x.lo.max(ends[0].map_or(f64::NEG_INFINITY, f64::from));
                Range::new(lo, x.hi.min(ends[1].map_or(f64::INFINITY, f64::from)))
            }
            "identity" | "reshape" | "reshape_like" | "transpose" | "expand_dims" | "squeeze" | "flatten2d"
            | "slice_by_size" | "slice_by_index" | "split" | "reverse" | "tile" | "gather" | "gather_along_axis"
            | "depth_to_space" | "space_to_depth" | "pixel_shuffle" | "pixel_unshuffle" | "reduce_max"
            | "reduce_min" | "reduce_mean" | "max_pool" | "crop" => x(),
            // A cast to fewer bits clamps; a cast to floats keeps the bounds.
            "cast" if view.ty(result).dtype().is_some_and(DataType::is_float) => x(),
            "pad" => x().or(Range::new(0.0, 0.0)),
            "concat" | "stack" => {
                let mut all: Option<Range> = None;
                for &v in view.list(op, "values") {
                    let one = match view.function.constant(v) {
                        Some(c) if all.is_none_or(|a| a != Range::ALL) => self.constant(v, c, weights),
                        _ => self.get(v),
                    };
                    all = Some(all.map_or(one, |a| a.or(one)));
                }
                all.unwrap_or(Range::ALL)
            }
            "select" => self.arg(view, weights, op, "a").or(self.arg(view, weights, op, "b")),
            "add" => {
                let (x, y) = self.pair(view, weights, op);
                x.add(y)
            }
            "sub" => {
                let (x, y) = self.pair(view, weights, op);
                x.add(y.negated())
            }
            "mul" => {
                // A square is not negative.
                let same = view.arg(op, "x").is_some() && view.arg(op, "x") == view.arg(op, "y");
                let (x, y) = self.pair(view, weights, op);
                let product = if x == Range::ALL { x } else { x.times(y) };
                if same { Range { lo: product.lo.max(0.0), hi: product.hi } } else { product }
            }
            "real_div" => {
                let (x, y) = self.pair(view, weights, op);
                match y.lo > 0.0 || y.hi < 0.0 {
                    true => x.times(Range::new(1.0 / y.hi, 1.0 / y.lo)),
                    false => Range::ALL,
                }
            }
            "maximum" | "minimum" => {
                let (x, y) = (self.arg(view, weights, op, "x"), self.arg(view, weights, op, "y"));
                let pick = if op.name == "maximum" { f64::max } else { f64::min };
                Range::new(pick(x.lo, y.lo), pick(x.hi, y.hi))
            }
            "reduce_sum" => {
                let x = x();
                let count = |ty: &Type| ty.elements().map(|n| n.max(1) as f64);
                let of = view.arg_ty(op, "x").as_ref().and_then(count).zip(count(view.ty(result)));
                of.map_or(Range::ALL, |(from, to)| x.scaled(from / to))
            }
            "matmul" | "linear" | "conv" => self.product(view, weights, op, result),
            _ => Range::ALL,
        }
    }

    fn product(&mut self, view: &FunctionView<'_>, weights: &Weights, op: &Op, result: ValueId) -> Range {
        let (a, b) = if op.name == "matmul" { ("x", "y") } else { ("x", "weight") };
        if op.name == "matmul" && view.constant_arg(op, "x") {
            return Range::ALL;
        }
        let mut x = self.arg(view, weights, op, a);
        if !x.is_bounded() {
            return Range::ALL;
        }
        // Padding adds zeros.
        let padded =
            view.function.arg_constant(op, "pad_type").and_then(Constant::as_str).is_some_and(|t| t != "valid");
        if op.name == "conv" && padded {
            x = x.or(Range::new(0.0, 0.0));
        }
        let sums = match view.function.arg_constant(op, b) {
            Some(c) => rows(view, op, c, weights, x),
            None => {
                let y = self.arg(view, weights, op, b);
                let shape = view.shape(op, a);
                let back = if view.flag(op, "transpose_x") && op.name == "matmul" { 2 } else { 1 };
                let inner = match op.name.as_str() {
                    "conv" => view.shape(op, b).map(|w| w.iter().skip(1).map(|n| *n as f64).product()),
                    _ => shape.and_then(|s| s.len().checked_sub(back).map(|i| s[i] as f64)),
                };
                let averages =
                    op.name == "matmul" && back == 1 && view.arg(op, a).is_some_and(|v| self.rows.contains(&v));
                // Rows that add up to one give averages.
                let all = if averages { y } else { inner.map_or(Range::ALL, |n| x.times(y).scaled(n)) };
                Some(Sums { all, surest: all })
            }
        };
        let Some(sums) = sums.filter(|s| s.all != Range::ALL) else { return Range::ALL };
        self.sums.insert(result, sums);
        let bias = if op.arg("bias").is_some() { self.arg(view, weights, op, "bias") } else { Range::new(0.0, 0.0) };
        sums.all.add(bias)
    }
}

fn of_type(ty: &Type) -> Range {
    match ty.dtype() {
        Some(DataType::Bool) => Range::new(0.0, 1.0),
        Some(DataType::UInt8) => Range::new(0.0, 255.0),
        Some(DataType::Int8) => Range::new(-128.0, 127.0),
        _ => Range::ALL,
    }
}

/// The elements of a constant of floats or int8, if there are not too many.
fn elements(constant: &Constant, weights: &Weights) -> Option<Vec<f32>> {
    let ty = constant.ty();
    if ty.elements()? > ELEMENTS {
        return None;
    }
    let bytes = constant.bytes(weights)?;
    match ty.dtype()? {
        DataType::Fp16 => {
            Some(bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect())
        }
        DataType::Fp32 => Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        DataType::Int8 => Some(bytes.iter().map(|b| f32::from(*b as i8)).collect()),
        DataType::Int32 => {
            Some(bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32).collect())
        }
        _ => None,
    }
}

fn extremes(constant: &Constant, weights: &Weights) -> Range {
    let Some(values) = elements(constant, weights).filter(|v| !v.is_empty() && v.iter().all(|v| !v.is_nan())) else {
        return Range::ALL;
    };
    let (lo, hi) = values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)));
    Range::new(lo.into(), hi.into())
}

/// The sums of a bounded operand with each row of a constant matrix, or each column of one that is
/// not transposed.
fn rows(view: &FunctionView<'_>, op: &Op, matrix: &Constant, weights: &Weights, x: Range) -> Option<Sums> {
    let shape = matrix.ty().shape()?;
    let values = elements(matrix, weights)?;
    let (rows, inner, step, stride) = match op.name.as_str() {
        "matmul" => {
            let [k, n] = *shape.last_chunk::<2>()?;
            match view.flag(op, "transpose_y") {
                // `k` is the outer one of the two extents in either case.
                true => (k, n, 1, n),
                false => (n, k, n, 1),
            }
        }
        _ => {
            let (first, rest) = shape.split_first()?;
            let inner = rest.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
            (*first, inner, 1, inner)
        }
    };
    let mut sums: Option<Sums> = None;
    // Other matrices of a batch follow the first.
    let one = rows.checked_mul(inner).filter(|n| *n > 0)?;
    for matrix in values.chunks_exact(one) {
        for row in 0..rows {
            let (mut lo, mut hi) = (0.0, 0.0);
            for i in 0..inner {
                let w = f64::from(*matrix.get(row * stride + i * step)?);
                let ends = (w * x.lo, w * x.hi);
                lo += ends.0.min(ends.1);
                hi += ends.0.max(ends.1);
            }
            let this = Range { lo, hi };
            sums = Some(match sums {
                None => Sums { all: this, surest: this },
                Some(s) => {
                    Sums { all: s.all.or(this), surest: Range { lo: s.surest.lo.max(lo), hi: s.surest.hi.min(hi) } }
                }
            });
        }
    }
    sums.filter(|s| s.all.lo <= s.all.hi)
}
