//! Passes that write what an engine computes wrongly, or lowers badly, in another form.

use ferrane_mil::{Arg, Builder, Constant, DataType, MilError, ValueId};

use crate::harness::Tensor;
use crate::passes::Within;
use crate::passes_fire::{fires, floats, full, inputs, op1, op2, random, silent};

use DataType::{Fp16, Fp32};

/// A mask of four rows of which the last elements are hidden.
fn mask(dtype: DataType, hidden: f64) -> Constant {
    let shape = [1, 1, 4, 4];
    let values = (0..16).map(|i| if i % 4 > i / 4 { hidden } else { 0.0 }).collect();
    Constant::raw(dtype, &shape, &Tensor::new(dtype, &shape, values).to_bytes())
}

/// A scalar of an element type.
fn number(dtype: DataType, value: f32) -> Constant {
    if dtype == Fp16 { Constant::fp16(value) } else { Constant::fp32(value) }
}

fn softmax(b: &mut Builder, x: ValueId) -> Result<ValueId, MilError> {
    b.op("softmax", "p", [("x", x.into()), ("axis", Constant::int32(-1).into())])
}

#[test]
fn masks_become_finite() {
    floats(|dtype, _| {
        let x = inputs(&[(dtype, &[1, 1, 4, 4])]);
        let masked = |hidden: f64| {
            move |b: &mut Builder, v: &[ValueId]| {
                let s = op2(b, "add", v[0], mask(dtype, hidden))?;
                let s = b.op("reshape", "r", [("x", s.into()), ("shape", Constant::int32s(&[1, 4, 4]).into())])?;
                Ok(vec![softmax(b, s)?])
            }
        };
        // exp(−40000) is exactly 0, too.
        fires("finite_masks", &x, &masked(f64::NEG_INFINITY), &["add", "reshape", "softmax"], Within::Bits);
        silent("finite_masks", &x, &masked(-40000.0));
        silent("finite_masks", &x, &|b, v| Ok(vec![op2(b, "maximum", v[0], mask(dtype, f64::NEG_INFINITY))?]));
        // A sum that no softmax reads keeps its −inf.
        silent("finite_masks", &x, &|b, v| Ok(vec![op2(b, "add", v[0], mask(dtype, f64::NEG_INFINITY))?]));
    });
    let hidden = inputs(&[(Fp16, &[1, 1, 4, 4])]);
    let select = |b: &mut Builder, v: &[ValueId]| {
        let hide = op2(b, "greater", v[0], Constant::fp16(0.5))?;
        let low: Arg = Constant::fp16(f32::NEG_INFINITY).into();
        let s = b.op("select", "s", [("cond", hide.into()), ("a", low), ("b", v[0].into())])?;
        Ok(vec![softmax(b, s)?])
    };
    fires("finite_masks", &hidden, &select, &["greater", "select", "softmax"], Within::Bits);
}

#[test]
fn functions_become_sigmoids() {
    floats(|dtype, within| {
        let x = inputs(&[(dtype, &[2, 16])]);
        let one = |op: &'static str| move |b: &mut Builder, v: &[ValueId]| Ok(vec![op1(b, op, v[0])?]);
        fires("sigmoid_forms", &x, &one("silu"), &["sigmoid", "mul"], within);
        fires("sigmoid_forms", &x, &one("tanh"), &["mul", "sigmoid", "mul", "sub"], within);
        silent("sigmoid_forms", &x, &one("gelu"));
    });
}

#[test]
fn softplus_does_not_overflow() {
    floats(|dtype, within| {
        let x = vec![Tensor::new(dtype, &[1, 6], vec![-20.0, -1.0, 0.0, 1.0, 12.0, 60.0])];
        let wanted = ["maximum", "abs", "mul", "softplus", "add"];
        let softplus = |b: &mut Builder, v: &[ValueId]| Ok(vec![op1(b, "softplus", v[0])?]);
        fires("stable_softplus", &x, &softplus, &wanted, within);
        silent("stable_softplus", &x, &|b, v| {
            let magnitude = op1(b, "abs", v[0])?;
            let minus = number(dtype, -2.0);
            let negative = op2(b, "mul", minus, magnitude)?;
            Ok(vec![op1(b, "softplus", negative)?])
        });
    });
}

#[test]
fn argmax_is_taken_in_fp32() {
    // Equal elements: the first one wins before and after.
    let x = vec![Tensor::new(Fp16, &[2, 4], vec![1.0, 3.0, 3.0, -1.0, 0.5, 0.5, 0.25, 0.5])];
    let arg = |op: &'static str| {
        move |b: &mut Builder, v: &[ValueId]| {
            let args =
                [("x", v[0].into()), ("axis", Constant::int32(1).into()), ("keep_dims", Constant::bool(false).into())];
            Ok(vec![b.op(op, "i", args)?])
        }
    };
    fires("wide_argmax", &x, &arg("reduce_argmax"), &["cast", "reduce_argmax"], Within::Bits);
    fires("wide_argmax", &x, &arg("reduce_argmin"), &["cast", "reduce_argmin"], Within::Bits);
    silent("wide_argmax", &inputs(&[(Fp32, &[2, 4])]), &arg("reduce_argmax"));
}

#[test]
fn hard_swish_of_a_flat_product_gets_rank_4() {
    floats(|dtype, within| {
        let number = move |value: f32| number(dtype, value);
        let x = inputs(&[(dtype, &[2, 8])]);
        let linear = move |b: &mut Builder, v: &[ValueId]| {
            let (w, bias) = (random(dtype, &[4, 8], 3), full(dtype, &[4], 0.5));
            b.op("linear", "p", [("x", v[0].into()), ("weight", w.into()), ("bias", bias.into())])
        };
        let hard = move |b: &mut Builder, v: &[ValueId]| {
            let p = linear(b, v)?;
            let args = [("x", p.into()), ("alpha", number(0.125).into()), ("beta", number(0.5).into())];
            let gate = b.op("sigmoid_hard", "g", args)?;
            Ok(vec![op2(b, "mul", p, gate)?])
        };
        let wanted = ["reshape", "matmul", "add", "sigmoid_hard", "mul", "reshape"];
        fires("rank4_hard_swish", &x, &hard, &wanted, within);
        let six = move |b: &mut Builder, v: &[ValueId]| {
            let args = [("x", v[0].into()), ("y", random(dtype, &[8, 4], 5).into())];
            let p = b.op("matmul", "p", args)?;
            let shifted = op2(b, "add", p, number(3.0))?;
            let gate = op1(b, "relu6", shifted)?;
            let product = op2(b, "mul", p, gate)?;
            Ok(vec![op2(b, "mul", product, number(0.125))?])
        };
        let wanted = ["reshape", "matmul", "add", "relu6", "mul", "mul", "reshape"];
        fires("rank4_hard_swish", &x, &six, &wanted, within);
        silent("rank4_hard_swish", &x, &move |b, v| {
            let p = linear(b, v)?;
            Ok(vec![op1(b, "relu", p)?])
        });
    });
}
