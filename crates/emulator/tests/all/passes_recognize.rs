//! Passes that recognize and decompose, where they fire and where they must stay silent.

use ferrane_mil::{Arg, Builder, Constant, DataType, MilError, ReducedDims, ValueId};

use crate::harness::{Tensor, program};
use crate::passes::{Within, optimize, pipeline, same};
use crate::passes_fire::*;

use DataType::{Fp16, Fp32};

fn number(dtype: DataType, v: f32) -> Constant {
    if dtype == Fp16 { Constant::fp16(v) } else { Constant::fp32(v) }
}

/// The tanh formula, or the erf one, with numbers in different places.
fn gelu(b: &mut Builder, x: ValueId, dtype: DataType, form: usize, half: f32) -> Result<Vec<ValueId>, MilError> {
    let n = |v| number(dtype, v);
    Ok(match form {
        0 => {
            let u = op2(b, "mul", x, n(0.707_106_77))?;
            let e = op1(b, "erf", u)?;
            let e = op2(b, "add", n(1.0), e)?;
            let h = op2(b, "mul", x, n(half))?;
            vec![op2(b, "mul", h, e)?]
        }
        1 => {
            let u = op2(b, "real_div", x, n(std::f32::consts::SQRT_2))?;
            let e = op1(b, "erf", u)?;
            let e = op2(b, "add", e, n(1.0))?;
            let h = op2(b, "mul", e, x)?;
            vec![op2(b, "mul", n(half), h)?]
        }
        2 => {
            let c = op2(b, "pow", x, n(3.0))?;
            let c = op2(b, "mul", c, n(0.044715))?;
            let s = op2(b, "add", x, c)?;
            let s = op2(b, "mul", s, n(0.797_884_6))?;
            let t = op1(b, "tanh", s)?;
            let t = op2(b, "add", t, n(1.0))?;
            let t = op2(b, "mul", t, n(half))?;
            vec![op2(b, "mul", x, t)?]
        }
        3 => {
            let c = op2(b, "mul", x, x)?;
            let c = op2(b, "mul", n(0.044715), c)?;
            let s = op2(b, "add", c, n(1.0))?;
            let u = op2(b, "mul", x, n(0.797_884_6))?;
            let s = op2(b, "mul", u, s)?;
            let t = op1(b, "tanh", s)?;
            let t = op2(b, "add", t, n(1.0))?;
            let h = op2(b, "mul", t, x)?;
            vec![op2(b, "real_div", h, n(1.0 / half))?]
        }
        _ => {
            let u = op2(b, "mul", n(1.702), x)?;
            let s = op1(b, "sigmoid", u)?;
            vec![op2(b, "mul", s, x)?]
        }
    })
}

#[test]
fn activations_are_recognized() {
    floats(|dtype, within| {
        let x = inputs(&[(dtype, &[2, 8])]);
        for form in 0..5 {
            fires("recognize_gelu", &x, &|b, v| gelu(b, v[0], dtype, form, 0.5), &["gelu"], within);
            // A factor of a half that is none (the sigmoid has no half), and a value in between
            // that is an output.
            if form < 4 {
                silent("recognize_gelu", &x, &|b, v| gelu(b, v[0], dtype, form, 0.45));
            }
        }
        silent("recognize_gelu", &x, &|b, v| {
            let u = op2(b, "mul", number(dtype, 1.702), v[0])?;
            let s = op1(b, "sigmoid", u)?;
            Ok(vec![op2(b, "mul", s, v[0])?, s])
        });
        // Of another value.
        silent("recognize_gelu", &inputs(&[(dtype, &[2]), (dtype, &[2])]), &|b, v| {
            let u = op2(b, "mul", v[0], number(dtype, 1.702))?;
            let s = op1(b, "sigmoid", u)?;
            Ok(vec![op2(b, "mul", s, v[1])?])
        });
        fires(
            "recognize_silu",
            &x,
            &|b, v| {
                let s = op1(b, "sigmoid", v[0])?;
                Ok(vec![op2(b, "mul", s, v[0])?])
            },
            &["silu"],
            within,
        );
        silent("recognize_silu", &x, &|b, v| {
            let s = op1(b, "sigmoid", v[0])?;
            Ok(vec![op2(b, "mul", s, v[0])?, op1(b, "relu", s)?])
        });
    });
}

/// x / √(mean(x²) + ε) in one of its spellings.
fn rms(b: &mut Builder, x: ValueId, dtype: DataType, axis: i32, form: usize) -> Result<ValueId, MilError> {
    let n = |v| number(dtype, v);
    let count = b.shape(x)?[axis as usize] as f32;
    let square = match form {
        0 | 3 => op2(b, "mul", x, x)?,
        1 => op1(b, "square", x)?,
        2 => op2(b, "pow", x, n(2.0))?,
        _ => x,
    };
    let mean = match form {
        0 | 1 => b.reduce_mean("m", square, &[axis], ReducedDims::Keep)?,
        4 => {
            let axes = [
                ("x", x.into()),
                ("axes", Constant::int32s(&[axis]).into()),
                ("keep_dims", Constant::bool(true).into()),
            ];
            let s = b.op("reduce_sum_square", "s", axes)?;
            op2(b, "mul", s, n(1.0 / count))?
        }
        3 => {
            let s = b.reduce_sum("s", square, &[axis], ReducedDims::Keep)?;
            op2(b, "mul", s, n(1.0 / count))?
        }
        _ => {
            let s = b.reduce_sum("s", square, &[axis], ReducedDims::Keep)?;
            op2(b, "real_div", s, n(count))?
        }
    };
    let small = n(1e-3);
    match form {
        0 => {
            let r = b.op("rsqrt", "r", [("x", mean.into()), ("epsilon", small.into())])?;
            op2(b, "mul", r, x)
        }
        1 => {
            let v = op2(b, "add", mean, small)?;
            let r = op1(b, "sqrt", v)?;
            op2(b, "real_div", x, r)
        }
        3 => {
            let v = op2(b, "add", mean, small)?;
            let r = op2(b, "pow", v, n(-0.5))?;
            op2(b, "mul", x, r)
        }
        _ => {
            let v = op2(b, "add", small, mean)?;
            let r = op1(b, "sqrt", v)?;
            let r = op2(b, "real_div", n(1.0), r)?;
            op2(b, "mul", x, r)
        }
    }
}

#[test]
fn norms_are_recognized() {
    floats(|dtype, within| {
        let x = inputs(&[(dtype, &[1, 8, 1, 6])]);
        let canonical = ["mul", "reduce_sum", "mul", "add", "pow", "mul"];
        for axis in [1, 3] {
            for form in [0, 1, 2, 4] {
                fires("canonical_rms_norm", &x, &|b, v| Ok(vec![rms(b, v[0], dtype, axis, form)?]), &canonical, within);
            }
            // It is so already.
            silent("canonical_rms_norm", &x, &|b, v| Ok(vec![rms(b, v[0], dtype, axis, 3)?]));
            for form in 0..5 {
                let extents: &[usize] = if axis == 1 { &[1, 8, 1, 1] } else { &[6] };
                let norm = |b: &mut Builder, v: ValueId, over: i32| {
                    let m = b.reduce_mean("mean", v, &[over], ReducedDims::Keep)?;
                    let d = b.op("sub", "d", [("x", v.into()), ("y", m.into())])?;
                    rms(b, d, dtype, axis, form)
                };
                fires(
                    "recognize_layer_norm",
                    &x,
                    &|b, v| {
                        let y = norm(b, v[0], axis)?;
                        let y = op2(b, "mul", random(dtype, extents, 3), y)?;
                        Ok(vec![op2(b, "add", y, random(dtype, extents, 4))?])
                    },
                    &["layer_norm"],
                    within,
                );
                // The mean of another axis; and a scale of another axis stays outside.
                silent("recognize_layer_norm", &x, &|b, v| Ok(vec![norm(b, v[0], 4 - axis)?]));
                let other: &[usize] = if axis == 1 { &[6] } else { &[8, 1, 1] };
                fires(
                    "recognize_layer_norm",
                    &x,
                    &|b, v| {
                        let y = norm(b, v[0], axis)?;
                        Ok(vec![op2(b, "mul", y, random(dtype, other, 3))?])
                    },
                    &["layer_norm", "mul"],
                    within,
                );
            }
        }
        // A mean square that something else reads.
        silent("canonical_rms_norm", &x, &|b, v| {
            let s = op2(b, "mul", v[0], v[0])?;
            let m = b.reduce_mean("m", s, &[1], ReducedDims::Keep)?;
            let r = b.op("rsqrt", "r", [("x", m.into()), ("epsilon", number(dtype, 0.1).into())])?;
            Ok(vec![op2(b, "mul", v[0], r)?, m])
        });
    });
}

#[test]
fn refused_ops_are_decomposed() {
    floats(|dtype, within| {
        let x = inputs(&[(dtype, &[1, 4, 1, 6])]);
        let mode = |m: &str| [("mode", Arg::from(Constant::string(m)))];
        for (m, wanted) in [
            ("EXACT", &["mul", "erf", "add", "mul", "mul"][..]),
            ("TANH_APPROXIMATION", &["mul", "mul", "mul", "add", "mul", "tanh", "add", "mul", "mul"]),
            ("SIGMOID_APPROXIMATION", &["mul", "sigmoid", "mul"]),
        ] {
            let build = |b: &mut Builder, v: &[ValueId]| {
                Ok(vec![b.op("gelu", "g", mode(m).into_iter().chain([("x", v[0].into())]))?])
            };
            fires("decompose", &x, &build, wanted, within);
        }
        fires("decompose", &x, &|b, v| Ok(vec![b.silu("s", v[0])?]), &["sigmoid", "mul"], within);
        let norm = ["reduce_mean", "sub", "mul", "reduce_mean", "add", "pow", "mul", "mul", "add"];
        for (axes, shape) in [(&[1][..], &[4][..]), (&[-1], &[6]), (&[1, -1], &[4, 6])] {
            fires(
                "decompose",
                &x,
                &|b, v| {
                    let g = b.constant("g", random(dtype, shape, 1))?;
                    let k = b.constant("k", random(dtype, shape, 2))?;
                    Ok(vec![b.layer_norm("n", v[0], axes, Some(g), Some(k), 1e-3)?])
                },
                &norm,
                within,
            );
        }
        fires(
            "decompose",
            &x,
            &|b, v| {
                let args = [
                    ("x", v[0].into()),
                    ("mean", random(dtype, &[4], 1).into()),
                    ("variance", full(dtype, &[4], 0.5).into()),
                    ("gamma", random(dtype, &[4], 2).into()),
                ];
                Ok(vec![b.op("batch_norm", "n", args)?])
            },
            &["mul", "add"],
            within,
        );
        // Far enough from multiples of y that the quotient's floor is the same either way.
        let pairs = vec![
            Tensor::new(dtype, &[6], vec![5.3, -5.3, 5.3, -5.3, 0.5, -0.5]),
            Tensor::new(dtype, &[6], vec![3.0, 3.0, -3.0, -3.0, 4.0, 4.0]),
        ];
        fires("decompose", &pairs, &|b, v| Ok(vec![op2(b, "mod", v[0], v[1])?]), &["floor_div", "mul", "sub"], within);
    });
    let bits = vec![
        Tensor::new(DataType::Bool, &[4], vec![0.0, 0.0, 1.0, 1.0]),
        Tensor::new(DataType::Bool, &[4], vec![0.0, 1.0, 0.0, 1.0]),
    ];
    for (op, wanted) in [
        ("logical_and", &["cast", "cast", "mul", "cast"][..]),
        ("logical_or", &["cast", "cast", "maximum", "cast"]),
        ("logical_xor", &["cast", "cast", "not_equal"]),
    ] {
        fires("decompose", &bits, &|b, v| Ok(vec![op2(b, op, v[0], v[1])?]), wanted, Within::Bits);
    }
}

#[test]
fn outputs_become_as_large_as_the_largest() {
    let x = inputs(&[(Fp16, &[1, 4, 1, 8]), (Fp32, &[1, 3, 1, 8]), (Fp16, &[1, 5, 1, 4])]);
    let before = program(&x, |b, v| v.iter().map(|v| op1(b, "relu", *v)).collect());
    let (after, report) = optimize(&pipeline(&["uniform_outputs"]), &before).unwrap();
    same(&before, &after, &x, Within::Bits).unwrap();
    let main = &after.functions[0];
    let shapes: Vec<_> = main.body().outputs.iter().map(|v| main.value(*v).ty.shape().unwrap()).collect();
    // 96 bytes are the largest; slices are of 16, 32 and 8 bytes.
    assert_eq!(shapes, [[1, 6, 1, 8], [1, 3, 1, 8], [1, 12, 1, 4]]);
    let told: Vec<_> = report.padded.iter().map(|p| (p.output.as_str(), p.axis, p.from[1], p.to[1])).collect();
    assert_eq!(told, [("out0", 1, 4, 6), ("out2", 1, 5, 12)]);
    silent("uniform_outputs", &x[..1], &|b, v| Ok(vec![op1(b, "relu", v[0])?, op1(b, "exp", v[0])?]));
    // Slices whose sizes have no small common multiple.
    let odd = inputs(&[(Fp16, &[1, 1, 31]), (Fp16, &[1, 1, 37])]);
    let program = program(&odd, |b, v| v.iter().map(|v| op1(b, "relu", *v)).collect());
    assert!(matches!(optimize(&pipeline(&["uniform_outputs"]), &program), Err(MilError::Shape { .. })));
}
