//! Element-wise instructions by a machine's rules.

use std::sync::{Arc, PoisonError};

use ferrane_arith::{Function as Known, Rules, quantize};
use ferrane_host::{f16, vectorize};

use super::{HALVES, Hardware, index, results};
use crate::ir::{Binary, Elementwise, Instruction, Unary};
use crate::tables::Table;
use crate::tables::elementwise::{exact_unary, run};

impl Hardware {
    /// The results of a function, computed at its first use.
    pub(super) fn function(&self, f: Unary) -> Arc<[f32]> {
        let find = |functions: &[(Unary, Arc<[f32]>)]| functions.iter().find(|(g, _)| *g == f).map(|(_, t)| t.clone());
        if let Some(found) = find(&self.functions.read().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        let made: Arc<[f32]> = tabulate(&self.rules, f).into();
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have computed the same function.
        find(&functions).unwrap_or_else(|| {
            functions.push((f, made.clone()));
            made
        })
    }

    /// Runs one instruction over whole registers, rounding included.
    pub(crate) fn run(&self, table: &Table, instruction: &Instruction, to: &mut [f32], from: [&[f32]; 3]) {
        let rules = &self.rules;
        let [a, b, c] = from;
        match instruction.op {
            Elementwise::Quantize(low, high) => {
                let to: &mut [i32] = bytemuck::cast_slice_mut(to);
                for (((t, &a), &b), &c) in to.iter_mut().zip(a).zip(b).zip(c) {
                    *t = quantize(rules.quantize, a, b, c, low, high);
                }
            }
            // An instruction without rounding is fp32, integer or exact.
            op if !instruction.round => run(table, op, to, from),
            Elementwise::Unary(Unary::Identity) => {
                vectorize!({
                    for (t, &a) in to.iter_mut().zip(a) {
                        *t = rules.rounding.f32(rules.enter(a));
                    }
                });
            }
            Elementwise::Unary(f) if is_short(f) => {
                run(table, instruction.op, to, from);
                self.round(to);
            }
            Elementwise::Unary(f) => self.look_up(f, to, a),
            Elementwise::Binary(Binary::Div) if rules.tables => {
                self.look_up(Unary::Inverse(0.0), to, b);
                vectorize!({
                    for (t, &a) in to.iter_mut().zip(a) {
                        *t = rules.result(a * *t);
                    }
                });
            }
            // Scale and shift are fp16, and each step rounds (numerics §2).
            Elementwise::MulAdd => vectorize!({
                for (((t, &a), &b), &c) in to.iter_mut().zip(a).zip(b).zip(c) {
                    *t = rules.result(rules.result(a * rules.rounding.f32(b)) + rules.rounding.f32(c));
                }
            }),
            op => {
                run(table, op, to, from);
                self.round(to);
            }
        }
    }

    fn look_up(&self, f: Unary, to: &mut [f32], a: &[f32]) {
        let function = self.function(f);
        let function = results(&function);
        vectorize!({
            for (t, &a) in to.iter_mut().zip(a) {
                *t = function[index(a)];
            }
        });
    }
}

/// Functions that one or two operations compute: exact, or rounded once at the end.
fn is_short(f: Unary) -> bool {
    use Unary::*;
    matches!(f, Abs | Sign | Square | Floor | Ceil | Relu | Clip(..) | Threshold(_) | Relu6 | ThresholdedRelu(_))
}

/// The results of a function for every fp16 value.
fn tabulate(rules: &Rules, f: Unary) -> Vec<f32> {
    let mut from = vec![0.0; HALVES];
    for (bits, x) in from.iter_mut().enumerate() {
        *x = rules.enter(f16::from_bits(bits as u16).to_f32());
    }
    let mut to = vec![0.0; HALVES];
    if !matches!(f, Unary::Crop) {
        exact_unary(f, &mut to, &from);
    }
    for (y, &x) in to.iter_mut().zip(&from) {
        *y = known(rules, f, x).unwrap_or_else(|| rules.result(*y));
    }
    to
}

/// A function as the rules compose it. `None` if they only say how its exact result is rounded.
fn known(rules: &Rules, f: Unary, x: f32) -> Option<f32> {
    let r = |x| rules.rounding.f32(x);
    let sum = |x: f32, y: f32| rules.result(x + r(y));
    let scaled = |x: f32, by: f32| rules.result(x * r(by));
    Some(match f {
        Unary::Sigmoid => rules.function(Known::Sigmoid, x)?,
        Unary::Tanh => rules.function(Known::Tanh, x)?,
        Unary::Silu => rules.function(Known::Silu, x)?,
        Unary::Exp => rules.function(Known::Exp, x)?,
        Unary::Exp2 => rules.function(Known::Exp2, x)?,
        Unary::Sqrt => rules.function(Known::Sqrt, x)?,
        Unary::Atan => rules.function(Known::Atan, x)?,
        Unary::Softplus => rules.function(Known::Softplus, x)?,
        Unary::Softsign => rules.function(Known::Softsign, x)?,
        // The table is fitted to the exact form; no other is published (numerics §6.4).
        Unary::GeluExact | Unary::GeluTanh => rules.function(Known::Gelu, x)?,
        Unary::GeluSigmoid => rules.result(x * rules.function(Known::Sigmoid, scaled(x, 1.702))?),
        Unary::Log(epsilon) => rules.function(Known::Log, sum(x, epsilon))?,
        Unary::Rsqrt(epsilon) => rules.function(Known::Rsqrt, sum(x, epsilon))?,
        Unary::Inverse(epsilon) => rules.function(Known::Reciprocal, sum(x, epsilon))?,
        Unary::Elu(_) if x >= 0.0 => x,
        Unary::Elu(alpha) => scaled(rules.result(rules.function(Known::Exp, x)? - 1.0), alpha),
        Unary::ScaledTanh(alpha, beta) => scaled(rules.function(Known::Tanh, scaled(x, beta))?, alpha),
        Unary::Linear(alpha, beta) => sum(scaled(x, alpha), beta),
        Unary::SigmoidHard(alpha, beta) => sum(scaled(x, alpha), beta).clamp(0.0, 1.0),
        Unary::LeakyRelu(_) if x >= 0.0 => x,
        Unary::LeakyRelu(alpha) => scaled(x, alpha),
        Unary::Round => rules.round(x),
        Unary::Crop => rules.crop(x),
        _ => return None,
    })
}
