//! Each pass where it fires and where it must stay silent.

use ferrane_mil::{Arg, Builder, Constant, DataType, MilError, Program, ReducedDims, Transpose, ValueId, print};

use crate::harness::{Tensor, program};
use crate::passes::{Within, optimize, pipeline, same};

use DataType::{Fp16, Fp32, Int8, Int16, Int32};

pub type Build<'a> = &'a dyn Fn(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, MilError>;

/// The ops of the body in order, without constants.
pub fn ops(program: &Program) -> Vec<&str> {
    let main = &program.functions[0];
    main.body().ops.iter().map(|&op| main.op(op).name.as_str()).filter(|n| *n != "const").collect()
}

pub fn inputs(types: &[(DataType, &[usize])]) -> Vec<Tensor> {
    types.iter().enumerate().map(|(i, (dtype, shape))| Tensor::random(*dtype, shape, 7 + i as u64)).collect()
}

pub fn fires(pass: &str, inputs: &[Tensor], build: Build<'_>, wanted: &[&str], within: Within) {
    let before = program(inputs, |b, v| build(b, v));
    let (after, report) = optimize(&pipeline(&[pass]), &before).unwrap();
    assert!(report.changes() > 0, "{pass} is silent on\n{}", print(&before));
    assert_eq!(ops(&after), wanted, "{pass}:\n{}", print(&after));
    same(&before, &after, inputs, within).unwrap_or_else(|e| panic!("{pass}: {e}\n{}", print(&after)));
}

pub fn silent(pass: &str, inputs: &[Tensor], build: Build<'_>) {
    let before = program(inputs, |b, v| build(b, v));
    let (after, report) = optimize(&pipeline(&[pass]), &before).unwrap();
    assert_eq!(report.changes(), 0, "{pass} made\n{}", print(&after));
    assert_eq!(print(&after), print(&before));
}

/// Both float types, with what a handful of roundings of each may move: eight units of fp16
/// (constants are rounded too), or 1e-5.
pub fn floats(test: impl Fn(DataType, Within)) {
    test(Fp16, Within::Part(4e-3));
    test(Fp32, Within::Part(1e-5));
}

pub fn full(dtype: DataType, shape: &[usize], value: f64) -> Constant {
    let count = shape.iter().product();
    Constant::raw(dtype, shape, &Tensor::new(dtype, shape, vec![value; count]).to_bytes())
}

pub fn random(dtype: DataType, shape: &[usize], seed: u64) -> Constant {
    Constant::raw(dtype, shape, &Tensor::random(dtype, shape, seed).to_bytes())
}

pub fn op2(b: &mut Builder, op: &str, x: impl Into<Arg>, y: impl Into<Arg>) -> Result<ValueId, MilError> {
    b.op(op, "v", [("x", x.into()), ("y", y.into())])
}

pub fn op1(b: &mut Builder, op: &str, x: ValueId) -> Result<ValueId, MilError> {
    b.op(op, "v", [("x", x.into())])
}

#[test]
fn identities_go_and_the_sign_of_zero_stays() {
    let x = vec![Tensor::new(Fp16, &[1, 2, 1, 3], vec![-0.0, 0.0, 1.5, -2.0, 65504.0, -6e-8])];
    let with = |op: &'static str, c: Constant, swap: bool| {
        move |b: &mut Builder, v: &[ValueId]| {
            let r = b.op("sign", "s", [("x", v[0].into())])?;
            let r = op2(b, "mul", r, v[0])?;
            let (p, q): (Arg, Arg) = if swap { (c.clone().into(), r.into()) } else { (r.into(), c.clone().into()) };
            let y = op2(b, op, p, q)?;
            Ok(vec![op1(b, "abs", y)?, y])
        }
    };
    let half = |v| Constant::fp16(v);
    for (op, c, swap) in [
        ("mul", half(1.0), false),
        ("mul", half(1.0), true),
        ("real_div", half(1.0), false),
        ("sub", half(0.0), false),
        ("add", half(-0.0), false),
        ("add", full(Fp16, &[1, 2, 1, 3], -0.0), true),
        ("mul", full(Fp16, &[2, 1, 1], 1.0), false),
    ] {
        fires("identity", &x, &with(op, c, swap), &["sign", "mul", "abs"], Within::Bits);
    }
    for (op, c, swap) in [
        ("add", half(0.0), false),
        ("sub", half(-0.0), false),
        ("sub", half(0.0), true),
        ("real_div", half(1.0), true),
        // Broadcasts to another shape.
        ("mul", full(Fp16, &[2, 2, 1, 1], 1.0), false),
        ("mul", Constant::raw(Fp16, &[3], &[0, 0x3c, 0, 0x3c, 1, 0x3c]), false),
    ] {
        silent("identity", &x, &with(op, c, swap));
    }
    // What cannot be −0, and integers.
    fires(
        "identity",
        &x,
        &|b, v| {
            let a = op1(b, "abs", v[0])?;
            let y = op2(b, "add", a, Constant::fp16(0.0))?;
            Ok(vec![op1(b, "sqrt", y)?])
        },
        &["abs", "sqrt"],
        Within::Bits,
    );
    fires(
        "identity",
        &inputs(&[(Int32, &[4])]),
        &|b, v| {
            let a = op2(b, "mul", v[0], v[0])?;
            Ok(vec![op2(b, "add", a, Constant::int32(0))?])
        },
        &["mul"],
        Within::Bits,
    );
}

#[test]
fn moves_that_move_nothing_go() {
    let x = inputs(&[(Fp16, &[1, 4, 1, 4])]);
    let ints = |v: &[i32]| Arg::from(Constant::int32s(v));
    let whole: &[(&str, Vec<(&str, Arg)>)] = &[
        ("identity", vec![]),
        ("cast", vec![("dtype", Constant::string("fp16").into())]),
        ("reshape", vec![("shape", ints(&[1, 4, -1, 4]))]),
        ("transpose", vec![("perm", ints(&[2, 1, 0, 3]))]),
        ("slice_by_size", vec![("begin", ints(&[0; 4])), ("size", ints(&[1, -1, 1, 4]))]),
        ("slice_by_index", vec![("begin", ints(&[0; 4])), ("end", ints(&[1, 4, 1, 9]))]),
        ("pad", vec![("pad", ints(&[0; 4])), ("mode", Constant::string("reflect").into())]),
        ("tile", vec![("reps", ints(&[1; 4]))]),
    ];
    let with = |op: &'static str, args: Vec<(&'static str, Arg)>| {
        move |b: &mut Builder, v: &[ValueId]| {
            let r = op1(b, "relu", v[0])?;
            let y = b.op(op, "y", args.iter().cloned().chain([("x", r.into())]))?;
            Ok(vec![y])
        }
    };
    for (op, args) in whole.iter().cloned() {
        fires("identity", &x, &with(op, args), &["relu"], Within::Bits);
    }
    fires(
        "identity",
        &x,
        &|b, v| {
            let r = op1(b, "relu", v[0])?;
            let r = b.concat("c", &[r], 1)?;
            b.split("s", r, &[4], 1)
        },
        &["relu"],
        Within::Bits,
    );
    // Same extents, other places.
    silent("identity", &x, &with("transpose", vec![("perm", ints(&[0, 3, 2, 1]))]));
    let backwards = vec![
        ("begin", ints(&[0, -1, 0, 0])),
        ("end", ints(&[1, 0, 1, 4])),
        ("stride", ints(&[1, -1, 1, 1])),
        ("end_mask", Constant::raw(DataType::Bool, &[4], &[0, 1, 0, 0]).into()),
    ];
    silent("identity", &x, &with("slice_by_index", backwards));
    // An output that is an input needs a copy.
    silent("identity", &x, &|b, v| Ok(vec![op1(b, "identity", v[0])?]));
}

#[test]
fn casts_go_where_nothing_was_lost() {
    let chain = |through: DataType, to: DataType| {
        move |b: &mut Builder, v: &[ValueId]| {
            let a = b.op("identity", "i", [("x", v[0].into())])?;
            let m = b.cast("m", a, through)?;
            Ok(vec![b.cast("y", m, to)?])
        }
    };
    let wide = vec![Tensor::new(Fp32, &[4], vec![1.0 + 1e-6f32 as f64, 1e30, -0.1f32 as f64, -0.0])];
    fires("cast_pairs", &inputs(&[(Fp16, &[2, 3])]), &chain(Fp32, Fp16), &["identity"], Within::Bits);
    fires("cast_pairs", &inputs(&[(Int8, &[9])]), &chain(Fp16, Int8), &["identity"], Within::Bits);
    fires("cast_pairs", &inputs(&[(Int8, &[9])]), &chain(Int32, Int16), &["identity", "cast"], Within::Bits);
    silent("cast_pairs", &wide, &chain(Fp16, Fp32));
    silent("cast_pairs", &inputs(&[(Fp16, &[3])]), &chain(Int32, Fp16));
    silent("cast_pairs", &inputs(&[(Fp16, &[3])]), &chain(Fp32, Int32));
}

#[test]
fn transposes_join_and_cancel() {
    let x = inputs(&[(Fp16, &[2, 3, 4, 5]), (Fp16, &[2, 3, 4, 5])]);
    fires(
        "transposes",
        &x,
        &|b, v| {
            let t = b.transpose("t", v[0], &[0, 2, -1, 1])?;
            Ok(vec![b.transpose("u", t, &[3, 1, 0, 2])?, op1(b, "relu", v[1])?])
        },
        &["transpose", "relu"],
        Within::Bits,
    );
    // After element-wise ops, over two operands and a number.
    fires(
        "transposes",
        &x,
        &|b, v| {
            let (t, u) = (b.transpose("t", v[0], &[0, 3, 1, 2])?, b.transpose("u", v[1], &[0, 3, 1, 2])?);
            let s = op2(b, "sub", t, u)?;
            let s = op2(b, "mul", full(Fp16, &[1, 1, 1, 1], 0.5), s)?;
            let s = op1(b, "tanh", s)?;
            Ok(vec![b.transpose("y", s, &[0, 2, 3, 1])?])
        },
        &["sub", "mul", "tanh"],
        Within::Bits,
    );
    // Another axis; a constant with places; a value in between that is read twice.
    silent("transposes", &x, &|b, v| {
        let (t, u) = (b.transpose("t", v[0], &[0, 3, 1, 2])?, b.transpose("u", v[1], &[0, 3, 1, 2])?);
        let s = op2(b, "sub", t, u)?;
        let y = b.transpose("y", s, &[0, 3, 1, 2])?;
        let r = b.transpose("r", v[0], &[0, 1, 3, 2])?;
        let r = op2(b, "mul", r, random(Fp16, &[4], 3))?;
        let z = b.transpose("z", r, &[0, 1, 3, 2])?;
        let q = b.transpose("q", v[0], &[0, 1, 3, 2])?;
        let q = op1(b, "relu", q)?;
        let w = b.transpose("w", q, &[0, 1, 3, 2])?;
        Ok(vec![y, z, w, q])
    });
}

#[test]
fn reshapes_join_and_cancel() {
    let x = inputs(&[(Fp16, &[2, 6])]);
    fires(
        "reshapes",
        &x,
        &|b, v| {
            let a = op1(b, "relu", v[0])?;
            let r = b.reshape("r", a, &[3, 4])?;
            let r = b.expand_dims("e", r, &[0, 2])?;
            let s = b.reshape("s", a, &[12])?;
            let s = b.reshape("t", s, &[2, 6])?;
            Ok(vec![r, op1(b, "abs", s)?])
        },
        &["relu", "reshape", "abs"],
        Within::Bits,
    );
    silent("reshapes", &x, &|b, v| {
        let r = b.reshape("r", v[0], &[3, 4])?;
        let t = b.transpose("t", r, &[1, 0])?;
        Ok(vec![b.reshape("s", t, &[2, 6])?])
    });
}

#[test]
fn what_is_computed_twice_is_shared() {
    let x = inputs(&[(Fp16, &[3, 3]), (Fp16, &[3, 3])]);
    let flag = |f| Arg::from(Constant::bool(f));
    fires(
        "common_subexpressions",
        &x,
        &|b, v| {
            let m = b.matmul("m", v[0], v[1], Transpose::Y)?;
            let args =
                [("y", v[1].into()), ("x", v[0].into()), ("transpose_y", flag(true)), ("transpose_x", flag(false))];
            let n = b.op("matmul", "n", args)?;
            Ok(vec![op2(b, "add", m, n)?, n])
        },
        &["matmul", "add"],
        Within::Bits,
    );
    silent("common_subexpressions", &inputs(&[(Fp16, &[3, 3])]), &|b, v| {
        let m = op2(b, "sub", v[0], Constant::fp16(0.0))?;
        let n = op2(b, "sub", v[0], Constant::fp16(-0.0))?;
        let s = b.reduce_sum("s", v[0], &[0], ReducedDims::Keep)?;
        let u = b.reduce_sum("u", v[0], &[0, 1], ReducedDims::Drop)?;
        Ok(vec![m, n, s, u])
    });
}

#[test]
fn constants_fold_but_do_not_grow() {
    let x = inputs(&[(Fp16, &[1, 4])]);
    fires(
        "constant_folding",
        &x,
        &|b, v| {
            let w = b.constant("w", random(Fp16, &[4, 400], 1))?;
            let t = b.transpose("t", w, &[1, 0])?;
            let h = op2(b, "mul", t, Constant::fp16(0.5))?;
            let y = b.matmul("y", v[0], h, Transpose::Y)?;
            Ok(vec![y])
        },
        &["matmul"],
        Within::Bits,
    );
    silent("constant_folding", &x, &|b, v| {
        let w = b.constant("w", random(Fp16, &[1, 4], 1))?;
        let large = b.tile("t", w, &[400, 1])?;
        let y = op2(b, "add", v[0], large)?;
        let z = b.constant("z", random(Fp16, &[2], 1))?;
        Ok(vec![y, op1(b, "exp", z)?])
    });
}

pub fn conv(b: &mut Builder, x: ValueId, dtype: DataType, bias: bool) -> Result<ValueId, MilError> {
    let w = b.constant("w", random(dtype, &[5, 3, 2, 2], 4))?;
    let bias = if bias { Some(b.constant("b", random(dtype, &[5], 5))?) } else { None };
    b.conv("c", x, w, bias, &Default::default())
}

#[test]
fn biases_and_batch_norms_go_into_the_product() {
    floats(|dtype, within| {
        let x = inputs(&[(dtype, &[2, 3, 4, 4])]);
        for bias in [false, true] {
            for (op, shape, swap) in [
                ("add", &[1, 5, 1, 1][..], false),
                ("add", &[5, 1, 1], true),
                ("sub", &[5, 1, 1], false),
                ("sub", &[], false),
                ("add", &[1, 1, 1], true),
            ] {
                let k = random(dtype, shape, 6);
                fires(
                    "conv_bias",
                    &x,
                    &|b, v| {
                        let c = conv(b, v[0], dtype, bias)?;
                        let k = Arg::from(k.clone());
                        let (p, q) = if swap { (k, c.into()) } else { (c.into(), k) };
                        let y = op2(b, op, p, q)?;
                        Ok(vec![y])
                    },
                    &["conv"],
                    within,
                );
            }
            let batch_norm = |b: &mut Builder, c: ValueId, gamma: bool| {
                let mut args: Vec<(&str, Arg)> = vec![
                    ("x", c.into()),
                    ("mean", random(dtype, &[5], 8).into()),
                    ("variance", full(dtype, &[5], 0.25).into()),
                ];
                if gamma {
                    args.push(("gamma", random(dtype, &[5], 9).into()));
                    args.push(("beta", random(dtype, &[5], 10).into()));
                }
                b.op("batch_norm", "n", args)
            };
            for gamma in [false, true] {
                fires(
                    "conv_batch_norm",
                    &x,
                    &|b, v| {
                        let c = conv(b, v[0], dtype, bias)?;
                        Ok(vec![batch_norm(b, c, gamma)?])
                    },
                    &["conv"],
                    within,
                );
            }
            silent("conv_batch_norm", &x, &|b, v| {
                let c = conv(b, v[0], dtype, bias)?;
                Ok(vec![batch_norm(b, c, true)?, c])
            });
        }
        // The wrong axis, a product that is subtracted, a product that is an output.
        silent("conv_bias", &x, &|b, v| {
            let c = conv(b, v[0], dtype, false)?;
            let d = conv(b, v[0], dtype, true)?;
            let e = conv(b, v[0], dtype, false)?;
            Ok(vec![
                op2(b, "add", c, random(dtype, &[3], 1))?,
                op2(b, "sub", random(dtype, &[5, 1, 1], 1), d)?,
                op2(b, "add", e, random(dtype, &[5, 1, 1], 1))?,
                e,
            ])
        });
        fires(
            "conv_bias",
            &inputs(&[(dtype, &[2, 3])]),
            &|b, v| {
                let w = b.constant("w", random(dtype, &[4, 3], 1))?;
                let y = b.linear("l", v[0], w, None)?;
                Ok(vec![op2(b, "add", y, random(dtype, &[4], 2))?])
            },
            &["linear"],
            within,
        );
    });
}

#[test]
fn linear_becomes_a_convolution() {
    floats(|dtype, within| {
        for (shape, wanted) in [
            (&[2, 7, 3][..], &["transpose", "expand_dims", "conv", "squeeze", "transpose"][..]),
            (&[7, 3], &["expand_dims", "transpose", "expand_dims", "conv", "squeeze", "transpose", "squeeze"]),
            (&[3], &["expand_dims", "transpose", "expand_dims", "conv", "squeeze", "transpose", "squeeze"]),
        ] {
            for bias in [false, true] {
                fires(
                    "linear_to_conv",
                    &inputs(&[(dtype, shape)]),
                    &|b, v| {
                        let w = b.constant("w", random(dtype, &[4, 3], 1))?;
                        let k = if bias { Some(b.constant("k", random(dtype, &[4], 2))?) } else { None };
                        Ok(vec![b.linear("l", v[0], w, k)?])
                    },
                    wanted,
                    within,
                );
            }
        }
    });
}
