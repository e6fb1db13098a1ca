//! `decompose`: rewrites ops that the in-memory compiler refuses as ops that it accepts (mil-text
//! §4, §7).
//!
//! | op | becomes |
//! |---|---|
//! | `silu` | x · sigmoid(x) |
//! | `gelu` | ½ · x · (1 + erf(x/√2)), or the formula of its mode |
//! | `layer_norm` | d = x − mean(x); d · (mean(d²) + ε)^(−½) · γ + β |
//! | `batch_norm` | x · s + t with constants computed by the evaluator |
//! | `mod` | x − floor_div(x, y) · y |
//! | `logical_and`, `logical_or`, `logical_xor` | product, maximum, inequality of fp16 casts |
//! | `rsqrt`, `log`, `inverse` without `epsilon` | the same with its default written out |
//!
//! *Holds*: extents of a `layer_norm` and the parameters of a `batch_norm` are known. *Numbers*:
//! each intermediate value is rounded, while the original op rounded once; the square of
//! `layer_norm` overflows in fp16 where |d| > 255. An `epsilon` is written in fp32 from ios17 on;
//! before, it has the type of x, where 1e-12 is 0 in fp16. Logic is exact.

use super::compute::{Compute, reshaped};
use super::conv_batch_norm::{Affine, affine};
use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use super::product::epsilon;
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Arg, Constant, DataType, Op, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "decompose",
    doc: "writes silu, gelu, norms, mod, logic and default epsilons in ops that the in-memory compiler takes",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, context: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| {
        let op = c.op()?;
        let parts = match op.name.as_str() {
            op::SILU
            | op::GELU
            | op::LAYER_NORM
            | op::BATCH_NORM
            | op::MOD
            | op::LOGICAL_AND
            | op::LOGICAL_OR
            | op::LOGICAL_XOR => {
                let op = op.clone();
                Parts { label: c.label(), x: c.arg(&op, "x")?, c }.decompose(&op, context)
            }
            op::RSQRT | op::LOG | op::INVERSE if op.arg("epsilon").is_none() => {
                let op = op.clone();
                spelled(c, &op)
            }
            _ => None,
        }?;
        c.replace(parts)
    }))
}

/// The op with its default epsilon written out.
fn spelled(c: &mut Cursor<'_>, op: &Op) -> Option<ValueId> {
    let default = match op.name.as_str() {
        op::RSQRT => 1e-12,
        op::LOG => 1e-45,
        _ => 1e-4,
    };
    let x = c.arg(op, "x")?;
    let dtype = if c.opset()? >= Opset::IOS17 { DataType::Fp32 } else { c.ty(x).dtype()? };
    let small = Cursor::scalar_of(dtype, default)?;
    let label = c.label();
    c.insert(&op.name, &label, [("x", x.into()), ("epsilon", small.into())])
}

/// An op that is being decomposed.
struct Parts<'a, 'b> {
    label: String,
    x: ValueId,
    c: &'a mut Cursor<'b>,
}

impl Parts<'_, '_> {
    fn decompose(mut self, op: &Op, context: &Context<'_>) -> Option<ValueId> {
        let x = self.x;
        match op.name.as_str() {
            op::SILU => {
                let gate = self.unary(op::SIGMOID, x)?;
                self.last(op::MUL, x, gate)
            }
            op::GELU => self.gelu(op),
            op::LAYER_NORM => self.layer_norm(op),
            op::BATCH_NORM => self.batch_norm(op, context),
            op::MOD => {
                let y = op.arg("y")?.clone();
                let whole = self.binary(op::FLOOR_DIV, x, y.clone())?;
                let multiple = self.binary(op::MUL, whole, y)?;
                self.last(op::SUB, x, multiple)
            }
            name => {
                let y = self.c.arg(op, "y")?;
                let (a, b) = (self.cast(x, DataType::Fp16)?, self.cast(y, DataType::Fp16)?);
                match name {
                    op::LOGICAL_XOR => self.last(op::NOT_EQUAL, a, b),
                    _ => {
                        let both =
                            self.binary(if name == op::LOGICAL_AND { op::MUL } else { op::MAXIMUM }, a, b.into())?;
                        self.cast(both, DataType::Bool)
                    }
                }
            }
        }
    }

    fn gelu(&mut self, op: &Op) -> Option<ValueId> {
        let (x, mode) = (self.x, self.c.args(op)?.text("mode").ok()?);
        let curve = match mode.as_str() {
            "SIGMOID_APPROXIMATION" => {
                let scaled = self.scale(x, 1.702)?;
                let gate = self.unary(op::SIGMOID, scaled)?;
                return self.last(op::MUL, x, gate);
            }
            "TANH_APPROXIMATION" => {
                let square = self.binary(op::MUL, x, x.into())?;
                let cube = self.binary(op::MUL, square, x.into())?;
                let small = self.scale(cube, 0.044_715)?;
                let sum = self.binary(op::ADD, x, small.into())?;
                let scaled = self.scale(sum, 0.797_884_6)?;
                self.unary(op::TANH, scaled)?
            }
            _ => {
                let scaled = self.scale(x, std::f32::consts::FRAC_1_SQRT_2)?;
                self.unary(op::ERF, scaled)?
            }
        };
        let one = self.number(1.0)?;
        let gate = self.binary(op::ADD, curve, one.into())?;
        let half = self.scale(x, 0.5)?;
        self.last(op::MUL, half, gate)
    }

    fn layer_norm(&mut self, op: &Op) -> Option<ValueId> {
        let x = self.x;
        let shape = self.c.shape(x)?;
        let all = (0..shape.len() as i64).collect();
        let args = self.c.args(op)?;
        let axes = args.normal_axes(&args.ints_if("axes").ok()?.unwrap_or(all), shape.len()).ok()?;
        // γ and β follow the axes as they are written; only in their order can they be given other
        // extents.
        if !axes.is_sorted() {
            return None;
        }
        let along: Vec<usize> = (0..shape.len()).map(|a| if axes.contains(&a) { shape[a] } else { 1 }).collect();
        let small = self.number(epsilon(self.c, op, 1e-5))?;
        let mean = self.mean(x, &axes)?;
        let centered = self.binary(op::SUB, x, mean.into())?;
        let squares = self.binary(op::MUL, centered, centered.into())?;
        let variance = self.mean(squares, &axes)?;
        let shifted = self.binary(op::ADD, variance, small.into())?;
        let power = self.number(-0.5)?;
        let reciprocal = self.binary(op::POW, shifted, power.into())?;
        let mut y = self.binary(op::MUL, centered, reciprocal.into())?;
        for (argument, with) in [("gamma", op::MUL), ("beta", op::ADD)] {
            if op.arg(argument).is_some() {
                let constant = reshaped(self.c.constant_arg(op, argument)?, &along)?;
                y = self.binary(with, y, constant.into())?;
            }
        }
        Some(y)
    }

    fn mean(&mut self, x: ValueId, axes: &[usize]) -> Option<ValueId> {
        let axes: Vec<i32> = axes.iter().map(|&a| a as i32).collect();
        let args =
            [("x", x.into()), ("axes", Constant::int32s(&axes).into()), ("keep_dims", Constant::bool(true).into())];
        self.c.insert(op::REDUCE_MEAN, &self.label, args)
    }

    fn batch_norm(&mut self, op: &Op, context: &Context<'_>) -> Option<ValueId> {
        let x = self.x;
        let (shape, dtype) = (self.c.shape(x)?, self.c.ty(x).dtype()?);
        let mut along = vec![1; shape.len()];
        *along.get_mut(1)? = *shape.get(1)?;
        let mut compute = Compute::new(context.evaluate, self.c.opset()?, self.c.weights());
        let Affine { scale, shift } = affine(self.c, &mut compute, op)?;
        let mut constant = |value| {
            let narrow = compute.cast(value, dtype)?;
            reshaped(&compute.take(narrow)?, &along)
        };
        let (scale, shift) = (constant(scale)?, constant(shift)?);
        let scaled = self.binary(op::MUL, x, scale.into())?;
        self.binary(op::ADD, scaled, shift.into())
    }

    fn unary(&mut self, op: &str, x: ValueId) -> Option<ValueId> {
        self.c.insert(op, &self.label, [("x", x.into())])
    }

    fn binary(&mut self, op: &str, x: ValueId, y: Arg) -> Option<ValueId> {
        self.c.insert(op, &self.label, [("x", x.into()), ("y", y)])
    }

    fn last(&mut self, op: &str, x: ValueId, y: ValueId) -> Option<ValueId> {
        self.binary(op, x, y.into())
    }

    fn scale(&mut self, x: ValueId, factor: f32) -> Option<ValueId> {
        let factor = self.number(factor)?;
        self.binary(op::MUL, x, factor.into())
    }

    fn cast(&mut self, x: ValueId, dtype: DataType) -> Option<ValueId> {
        self.c.insert(op::CAST, &self.label, [("x", x.into()), ("dtype", Constant::string(dtype.name()).into())])
    }

    /// A number of the element type of x.
    fn number(&self, value: f32) -> Option<Constant> {
        Cursor::scalar_of(self.c.ty(self.x).dtype()?, value)
    }
}
