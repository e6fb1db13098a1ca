//! Each op against plain fp64 arithmetic, under both tables.

use ferrane_emulator::Numerics;
use ferrane_mil::{Arg, Constant, Conv, DataType, ValueId};

use crate::harness::{BOTH, Tensor, close, half, program, run};

use DataType::{Fp16, Fp32, Int8, Int32};

/// Tolerance of one op on fp16 values: `exact` computes in fp32 and rounds into the fp16 surface (half a unit, 2⁻¹¹), `fast`
/// the same plus its functions' errors, which may tip a tie: one unit.
fn grid(numerics: Numerics) -> f64 {
    match numerics {
        Numerics::Exact => 5e-4,
        _ => 1e-3,
    }
}

/// Runs one op under both tables and compares with `wanted`.
fn check(
    op: &str,
    inputs: &[(&str, Tensor)],
    constants: &[(&str, Constant)],
    wanted: &[f64],
    absolute: f64,
    relative: impl Fn(Numerics) -> f64,
) {
    let tensors: Vec<Tensor> = inputs.iter().map(|(_, t)| t.clone()).collect();
    let program = program(&tensors, |b, ids| {
        let mut args: Vec<(&str, Arg)> = inputs.iter().zip(ids).map(|((n, _), v)| (*n, Arg::Value(*v))).collect();
        args.extend(constants.iter().map(|(n, c)| (*n, Arg::Const(c.clone()))));
        b.ops(op, "result", args)
    });
    for numerics in BOTH {
        let found = run(numerics, &program, &tensors).unwrap();
        close(&found[0].values, wanted, absolute, relative(numerics))
            .unwrap_or_else(|e| panic!("{op} {numerics:?}: {e}"));
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn functions_of_one_value() {
    type Function = (&'static str, fn(f64) -> f64);
    let x = Tensor::random(Fp16, &[3, 5, 41], 1);
    let functions: [Function; 17] = [
        ("sigmoid", sigmoid),
        ("silu", |x| x * sigmoid(x)),
        ("tanh", f64::tanh),
        ("exp", f64::exp),
        ("exp2", f64::exp2),
        ("relu", |x| x.max(0.0)),
        ("abs", f64::abs),
        ("square", |x| x * x),
        ("sin", f64::sin),
        ("cos", f64::cos),
        ("atan", f64::atan),
        ("floor", f64::floor),
        ("ceil", f64::ceil),
        ("round", f64::round_ties_even),
        ("softplus", |x| x.exp().ln_1p()),
        ("softsign", |x| x / (1.0 + x.abs())),
        ("sinh", f64::sinh),
    ];
    for (op, f) in functions {
        let wanted: Vec<f64> = x.values.iter().map(|&v| f(v)).collect();
        check(op, &[("x", x.clone())], &[], &wanted, 1e-7, grid);
    }
    let positive = Tensor::new(Fp16, &[200], (1..=200).map(|i| f64::from(i) * 0.03).collect());
    let each = |f: &dyn Fn(f64) -> f64| positive.values.iter().map(|&v| f(v)).collect::<Vec<f64>>();
    check("sqrt", &[("x", positive.clone())], &[], &each(&f64::sqrt), 1e-7, grid);
    check("log", &[("x", positive.clone())], &[], &each(&f64::ln), 1e-6, grid);
    check("rsqrt", &[("x", positive.clone())], &[], &each(&|v| 1.0 / v.sqrt()), 1e-7, grid);
    let gelu = |mode: &str| [("mode", Constant::string(mode))];
    let x = Tensor::random(Fp16, &[2, 300], 2);
    let of = |f: &dyn Fn(f64) -> f64| x.values.iter().map(|&v| f(v)).collect::<Vec<f64>>();
    let root = (2.0 / std::f64::consts::PI).sqrt();
    let tanh = of(&|v| 0.5 * v * (1.0 + (root * (v + 0.044715 * v * v * v)).tanh()));
    check("gelu", &[("x", x.clone())], &gelu("TANH_APPROXIMATION"), &tanh, 1e-7, grid);
    check("gelu", &[("x", x.clone())], &gelu("SIGMOID_APPROXIMATION"), &of(&|v| v * sigmoid(1.702 * v)), 1e-7, grid);
    // The exact form lies within 5e-4 of the tanh form on (-1, 1).
    check("gelu", &[("x", x.clone())], &gelu("EXACT"), &tanh, 5e-4, grid);
}

#[test]
fn functions_of_two_values_broadcast() {
    type Function = (&'static str, fn(f64, f64) -> f64);
    let functions: [Function; 6] = [
        ("add", |a, b| a + b),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
        ("real_div", |a, b| a / b),
        ("maximum", f64::max),
        ("minimum", f64::min),
    ];
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[1, 6, 1, 70], &[1, 6, 1, 70]),
        (&[1, 6, 1, 70], &[1, 6, 1, 1]),
        (&[1, 6, 3, 70], &[1, 1, 1, 70]),
        (&[1, 12, 9, 9], &[1, 1, 9, 9]),
        (&[], &[4, 5]),
        (&[5, 1], &[2, 1, 7]),
    ];
    for (op, f) in functions {
        for (i, (left, right)) in shapes.iter().enumerate() {
            let (x, y) = (Tensor::random(Fp16, left, i as u64), Tensor::random(Fp16, right, 77 + i as u64));
            let wanted = broadcast(&x, &y, f);
            check(op, &[("x", x), ("y", y)], &[], &wanted, 1e-7, grid);
        }
    }
}

fn broadcast(x: &Tensor, y: &Tensor, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let rank = x.shape.len().max(y.shape.len());
    let extent = |t: &Tensor, i: usize| (i + t.shape.len()).checked_sub(rank).map_or(1, |j| t.shape[j]);
    let shape: Vec<usize> = (0..rank).map(|i| extent(x, i).max(extent(y, i))).collect();
    let count: usize = shape.iter().product();
    let pick = |t: &Tensor, index: &[usize]| {
        let at = (0..rank).fold(0, |at, i| at * extent(t, i) + if extent(t, i) == 1 { 0 } else { index[i] });
        t.values[at]
    };
    (0..count)
        .map(|n| {
            let mut index = vec![0; rank];
            let mut rest = n;
            for i in (0..rank).rev() {
                index[i] = rest % shape[i];
                rest /= shape[i];
            }
            f(pick(x, &index), pick(y, &index))
        })
        .collect()
}

#[test]
fn fast_rounds_once_to_nearest_even() {
    // 1 + 2⁻¹¹ is a tie between 1 and 1 + 2⁻¹⁰; even is 1. 1 + 3·2⁻¹¹ goes up to the even neighbour.
    let x = Tensor::new(Fp16, &[2], vec![1.0, 1.0 + 1.0 / 1024.0]);
    let y = Tensor::new(Fp16, &[2], vec![1.0 / 2048.0, 1.0 / 2048.0]);
    let wanted = [1.0, 1.0 + 2.0 / 1024.0];
    check("add", &[("x", x), ("y", y)], &[], &wanted, 0.0, |_| 0.0);
}

#[test]
fn fast_rounds_between_ops_and_exact_does_not() {
    let x = Tensor::new(Fp16, &[1], vec![1.0]);
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let tiny = b.constant("tiny", Constant::fp16(1.0 / 4096.0))?;
        // Each addition vanishes in fp16; eight of them together do not in fp32.
        let mut sum = ids[0];
        for _ in 0..8 {
            sum = b.add("sum", sum, tiny)?;
        }
        Ok(vec![sum])
    });
    assert_eq!(run(Numerics::Fast, &program, std::slice::from_ref(&x)).unwrap()[0].values, [1.0]);
    assert_eq!(run(Numerics::Exact, &program, &[x]).unwrap()[0].values, [1.0 + 8.0 / 4096.0]);
}

#[test]
fn integers_are_exact() {
    let x = Tensor::new(Int32, &[6], vec![7.0, -7.0, 2147483647.0, -5.0, 0.0, 16777217.0]);
    let y = Tensor::new(Int32, &[6], vec![2.0, 2.0, 1.0, -2.0, 3.0, 1.0]);
    let two = [("x", x.clone()), ("y", y.clone())];
    let exactly = |_| 0.0;
    check("add", &two, &[], &[9.0, -5.0, -2147483648.0, -7.0, 3.0, 16777218.0], 0.0, exactly);
    check("floor_div", &two, &[], &[3.0, -4.0, 2147483647.0, 2.0, 0.0, 16777217.0], 0.0, exactly);
    check("mod", &two, &[], &[1.0, 1.0, 0.0, -1.0, 0.0, 0.0], 0.0, exactly);
    check("greater", &two, &[], &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0], 0.0, exactly);
    let rows = Tensor::new(Int32, &[2, 3], vec![16777217.0, 2.0, 3.0, -4.0, 5.0, 6.0]);
    let axes = [("axes", Constant::int32s(&[1])), ("keep_dims", Constant::bool(false))];
    check("reduce_sum", &[("x", rows.clone())], &axes, &[16777222.0, 7.0], 0.0, exactly);
    let square = Tensor::new(Int32, &[3, 1], vec![1.0, 2.0, 3.0]);
    check("matmul", &[("x", rows), ("y", square)], &[], &[16777230.0, 24.0], 0.0, exactly);
}

#[test]
fn casts() {
    let to = |name: &str| [("dtype", Constant::string(name))];
    let x = Tensor::new(Fp16, &[5], vec![-3.7, 3.7, 300.0, -0.0, f64::NAN]);
    check("cast", &[("x", x.clone())], &to("int32"), &[-3.0, 3.0, 300.0, 0.0, 0.0], 0.0, |_| 0.0);
    check("cast", &[("x", x.clone())], &to("bool"), &[1.0, 1.0, 1.0, 0.0, 1.0], 0.0, |_| 0.0);
    // Saturated (mil-text §7).
    check("cast", &[("x", x)], &to("int8"), &[-3.0, 3.0, 127.0, 0.0, 0.0], 0.0, |_| 0.0);
    let wide = Tensor::new(Fp32, &[2], vec![1.0 + 1.0 / 4096.0, 70000.0]);
    check("cast", &[("x", wide)], &to("fp16"), &[1.0, f64::INFINITY], 0.0, |_| 0.0);
    let int = Tensor::new(Int32, &[2], vec![2049.0, -3.0]);
    check("cast", &[("x", int)], &to("fp16"), &[2048.0, -3.0], 0.0, |_| 0.0);
}

#[test]
fn softmax_on_any_axis() {
    let x = Tensor::new(Fp16, &[2, 5, 3], Tensor::random(Fp16, &[2, 5, 3], 9).values.iter().map(|v| v * 9.0).collect());
    for axis in [0usize, 1, 2, 3] {
        let real = if axis == 3 { -1 } else { axis as i32 };
        let axis = axis.min(2);
        let stride: usize = x.shape[axis + 1..].iter().product();
        let wanted: Vec<f64> = (0..30)
            .map(|i| {
                let base = i - i / stride % x.shape[axis] * stride;
                let total: f64 = (0..x.shape[axis]).map(|k| x.values[base + k * stride].exp()).sum();
                x.values[i].exp() / total
            })
            .collect();
        check("softmax", &[("x", x.clone())], &[("axis", Constant::int32(real))], &wanted, 1e-7, grid);
    }
    // The maximum is subtracted (emulator §5).
    let hot = Tensor::new(Fp16, &[4], vec![1000.0, 1.0, 2.0, 3.0]);
    check("softmax", &[("x", hot)], &[("axis", Constant::int32(0))], &[1.0, 0.0, 0.0, 0.0], 0.0, |_| 0.0);
}

#[test]
fn reductions_over_any_axes() {
    let x = Tensor::random(Fp16, &[3, 70, 5, 6], 3);
    let sums: [&[usize]; 5] = [&[1], &[3], &[0, 2], &[1, 3], &[0, 1, 2, 3]];
    for axes in sums {
        let mut wanted = std::collections::BTreeMap::<Vec<usize>, (f64, f64, f64)>::new();
        for n in 0..x.values.len() {
            let mut index = [n / 2100, n / 30 % 70, n / 6 % 5, n % 6];
            axes.iter().for_each(|&a| index[a] = 0);
            let entry = wanted.entry(index.to_vec()).or_insert((0.0, f64::MIN, 0.0));
            entry.0 += x.values[n];
            entry.1 = entry.1.max(x.values[n]);
            entry.2 += x.values[n] * x.values[n];
        }
        let count = x.values.len() as f64 / wanted.len() as f64;
        let list = |f: &dyn Fn(&(f64, f64, f64)) -> f64| wanted.values().map(f).collect::<Vec<f64>>();
        let axes: Vec<i32> = axes.iter().map(|&a| a as i32).collect();
        for keep in [false, true] {
            let constants = [("axes", Constant::int32s(&axes)), ("keep_dims", Constant::bool(keep))];
            let input = [("x", x.clone())];
            // Sums of up to 6300 terms below 1 in fp32: an absolute part for what cancels.
            check("reduce_sum", &input, &constants, &list(&|e| e.0), 2e-5, grid);
            check("reduce_mean", &input, &constants, &list(&|e| e.0 / count), 1e-6, grid);
            check("reduce_max", &input, &constants, &list(&|e| e.1), 0.0, |_| 0.0);
            check("reduce_sum_square", &input, &constants, &list(&|e| e.2), 1e-6, grid);
            check("reduce_l2_norm", &input, &constants, &list(&|e| e.2.sqrt()), 1e-6, grid);
        }
    }
}

#[test]
fn normalisations() {
    let x = Tensor::random(Fp32, &[2, 6, 3, 4], 4);
    let (gamma, beta) = (Tensor::random(Fp32, &[6, 4], 5), Tensor::random(Fp32, &[6, 4], 6));
    let raw = |t: &Tensor| Constant::raw(t.dtype, &t.shape, &t.to_bytes());
    let mut wanted = vec![0.0; 144];
    for n in 0..2 {
        for h in 0..3 {
            let at = |c: usize, w: usize| ((n * 6 + c) * 3 + h) * 4 + w;
            let all: Vec<f64> = (0..24).map(|i| x.values[at(i / 4, i % 4)]).collect();
            let mean = all.iter().sum::<f64>() / 24.0;
            let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 24.0;
            for i in 0..24 {
                wanted[at(i / 4, i % 4)] =
                    (all[i] - mean) / (variance + 1e-3).sqrt() * gamma.values[i] + beta.values[i];
            }
        }
    }
    let constants = [
        ("axes", Constant::int32s(&[1, 3])),
        ("gamma", raw(&gamma)),
        ("beta", raw(&beta)),
        ("epsilon", Constant::fp32(1e-3)),
    ];
    check("layer_norm", &[("x", x.clone())], &constants, &wanted, 1e-5, |_| 1e-5);

    let vector = |seed| Tensor::random(Fp32, &[6], seed);
    let (mean, variance) =
        (vector(7), Tensor::new(Fp32, &[6], vector(8).values.iter().map(|v| v.abs() + 0.1).collect()));
    let wanted: Vec<f64> = (0..144)
        .map(|i| (x.values[i] - mean.values[i / 12 % 6]) / (variance.values[i / 12 % 6] + 1e-5).sqrt())
        .collect();
    let constants = [("mean", raw(&mean)), ("variance", raw(&variance)), ("epsilon", Constant::fp32(1e-5))];
    check("batch_norm", &[("x", x)], &constants, &wanted, 1e-5, |_| 1e-5);
}

/// The plainest convolution.
fn convolve(x: &Tensor, w: &Tensor, o: &Conv, out: &[usize]) -> Vec<f64> {
    let groups = o.groups as usize;
    let per_group = w.shape[0] / groups;
    let mut result = Vec::new();
    for n in 0..out[0] {
        for c in 0..out[1] {
            for i in 0..out[2] {
                for j in 0..out[3] {
                    let mut sum = 0.0;
                    for k in 0..w.shape[1] {
                        for a in 0..w.shape[2] {
                            for b in 0..w.shape[3] {
                                let row = (i as i32 * o.strides[0] + a as i32 * o.dilations[0]) - o.pad[0];
                                let col = (j as i32 * o.strides[1] + b as i32 * o.dilations[1]) - o.pad[2];
                                if row < 0 || col < 0 || row >= x.shape[2] as i32 || col >= x.shape[3] as i32 {
                                    continue;
                                }
                                let channel = c / per_group * w.shape[1] + k;
                                let at = ((n * x.shape[1] + channel) * x.shape[2] + row as usize) * x.shape[3];
                                let weight = ((c * w.shape[1] + k) * w.shape[2] + a) * w.shape[3] + b;
                                sum += x.values[at + col as usize] * w.values[weight];
                            }
                        }
                    }
                    result.push(sum);
                }
            }
        }
    }
    result
}

#[test]
fn convolutions() {
    let custom = |strides, pad: [i32; 4], dilations, groups| Conv {
        pad_type: "custom",
        strides,
        pad: pad.to_vec(),
        dilations,
        groups,
    };
    let cases = [
        (vec![2, 6, 1, 50], vec![7, 6, 1, 1], Conv::default()),
        (vec![1, 6, 9, 8], vec![4, 6, 3, 3], Conv::default()),
        (vec![2, 6, 9, 8], vec![4, 3, 3, 2], custom(vec![2, 1], [1, 0, 2, 1], vec![1, 2], 2)),
        (vec![1, 6, 9, 8], vec![6, 1, 3, 3], custom(vec![1, 1], [1, 1, 1, 1], vec![1, 1], 6)),
        (vec![1, 6, 9, 8], vec![5, 6, 1, 1], custom(vec![2, 2], [0; 4], vec![1, 1], 1)),
    ];
    for (i, (xs, ws, options)) in cases.into_iter().enumerate() {
        let (x, w) = (Tensor::random(Fp16, &xs, i as u64), Tensor::random(Fp16, &ws, 50 + i as u64));
        for constant in [true, false] {
            let inputs = if constant { vec![x.clone()] } else { vec![x.clone(), w.clone()] };
            let mut shape = Vec::new();
            let program = program(&inputs, |b, ids| {
                let weight = match ids.get(1) {
                    Some(w) => *w,
                    None => b.constant("w", Constant::raw(Fp16, &ws, &w.to_bytes()))?,
                };
                let y = b.conv("y", ids[0], weight, None, &options)?;
                shape = b.shape(y)?;
                Ok(vec![y])
            });
            let wanted = convolve(&x, &w, &options, &shape);
            for numerics in BOTH {
                let found = run(numerics, &program, &inputs).unwrap();
                // fp32 sums of a few dozen terms below 1.
                close(&found[0].values, &wanted, 1e-5, grid(numerics))
                    .unwrap_or_else(|e| panic!("{i} {numerics:?}: {e}"));
            }
        }
    }
}

#[test]
fn linear_and_matmul_of_every_rank() {
    let bias = Tensor::random(Fp16, &[4], 3);
    let w = Tensor::random(Fp16, &[4, 6], 2);
    for shape in [vec![6], vec![5, 6], vec![2, 3, 6]] {
        let x = Tensor::random(Fp16, &shape, 1);
        let wanted: Vec<f64> = x
            .values
            .chunks(6)
            .flat_map(|row| {
                (0..4)
                    .map(|o| bias.values[o] + (0..6).map(|i| row[i] * w.values[o * 6 + i]).sum::<f64>())
                    .collect::<Vec<_>>()
            })
            .collect();
        let raw = |t: &Tensor| Constant::raw(t.dtype, &t.shape, &t.to_bytes());
        check("linear", &[("x", x)], &[("weight", raw(&w)), ("bias", raw(&bias))], &wanted, 1e-6, grid);
    }
    let (x, y) = (Tensor::random(Fp16, &[3, 1, 4, 5], 8), Tensor::random(Fp16, &[2, 6, 5], 9));
    let mut wanted = Vec::new();
    for a in 0..3 {
        for b in 0..2 {
            for i in 0..4 {
                for j in 0..6 {
                    wanted.push(
                        (0..5).map(|k| x.values[(a * 4 + i) * 5 + k] * y.values[(b * 6 + j) * 5 + k]).sum::<f64>(),
                    );
                }
            }
        }
    }
    let transposed = [("transpose_y", Constant::bool(true))];
    check("matmul", &[("x", x), ("y", y)], &transposed, &wanted, 1e-6, grid);
    let (x, y) = (Tensor::random(Fp16, &[5], 8), Tensor::random(Fp16, &[5, 3], 9));
    let wanted: Vec<f64> = (0..3).map(|j| (0..5).map(|k| x.values[k] * y.values[k * 3 + j]).sum()).collect();
    check("matmul", &[("x", x), ("y", y)], &[], &wanted, 1e-6, grid);
}

#[test]
fn attention_honours_its_mask() {
    let q = Tensor::random(Fp16, &[1, 2, 3, 4], 1);
    let (k, v) = (Tensor::random(Fp16, &[1, 2, 5, 4], 2), Tensor::random(Fp16, &[1, 2, 5, 6], 3));
    let allowed = |i: usize, j: usize| j <= i + 1;
    let attend = |mask: bool| {
        let mut out = Vec::new();
        for h in 0..2 {
            for i in 0..3 {
                let score = |j: usize| {
                    let dot: f64 = (0..4).map(|d| q.values[(h * 3 + i) * 4 + d] * k.values[(h * 5 + j) * 4 + d]).sum();
                    if mask && !allowed(i, j) { f64::NEG_INFINITY } else { dot / 2.0 }
                };
                let total: f64 = (0..5).map(|j| score(j).exp()).sum();
                for d in 0..6 {
                    out.push((0..5).map(|j| score(j).exp() / total * v.values[(h * 5 + j) * 6 + d]).sum::<f64>());
                }
            }
        }
        out
    };
    let inputs = [("query", q.clone()), ("key", k.clone()), ("value", v.clone())];
    check("scaled_dot_product_attention", &inputs, &[], &attend(false), 1e-6, grid);
    let seen: Vec<f64> = (0..15).map(|n| f64::from(u8::from(allowed(n / 5, n % 5)))).collect();
    let mut masked = inputs.to_vec();
    masked.push(("attn_mask", Tensor::new(DataType::Bool, &[3, 5], seen.clone())));
    check("scaled_dot_product_attention", &masked, &[], &attend(true), 1e-6, grid);
    let added = seen.iter().map(|&s| if s == 1.0 { 0.0 } else { -30000.0 }).collect();
    masked[3].1 = Tensor::new(Fp16, &[1, 1, 3, 5], added);
    check("scaled_dot_product_attention", &masked, &[], &attend(true), 1e-6, grid);
}

#[test]
fn elements_move_without_a_change() {
    let x = Tensor::random(Fp16, &[2, 3, 4], 5);
    let at = |i: usize, j: usize, k: usize| x.values[(i * 3 + j) * 4 + k];
    let exactly = |_| 0.0;
    let ints = Constant::int32s;
    let input = [("x", x.clone())];
    let over = |a: usize, b: usize, c: usize, f: &dyn Fn(usize, usize, usize) -> f64| {
        (0..a * b * c).map(|n| f(n / (b * c), n / c % b, n % c)).collect::<Vec<f64>>()
    };
    check("transpose", &input, &[("perm", ints(&[2, 0, 1]))], &over(4, 2, 3, &|i, j, k| at(j, k, i)), 0.0, exactly);
    check("reverse", &input, &[("axes", ints(&[0, 2]))], &over(2, 3, 4, &|i, j, k| at(1 - i, j, 3 - k)), 0.0, exactly);
    check("tile", &input, &[("reps", ints(&[1, 2, 3]))], &over(2, 6, 12, &|i, j, k| at(i, j % 3, k % 4)), 0.0, exactly);
    let by_index = [("begin", ints(&[1, 0, -1])), ("end", ints(&[2, 3, 0])), ("stride", ints(&[1, 2, -2]))];
    check("slice_by_index", &input, &by_index, &over(1, 2, 2, &|_, j, k| at(1, 2 * j, 3 - 2 * k)), 0.0, exactly);
    let pad = |mode: &str| [("pad", ints(&[1, 2, 2, 1])), ("mode", Constant::string(mode))];
    let mirror = |i: i64, n: i64| if i < 0 { -i } else if i >= n { 2 * n - 2 - i } else { i } as usize;
    let reflected = over(2, 6, 7, &|i, j, k| at(i, mirror(j as i64 - 1, 3), mirror(k as i64 - 2, 4)));
    check("pad", &input, &pad("reflect"), &reflected, 0.0, exactly);
    let edge = |i: i64, n: i64| i.clamp(0, n - 1) as usize;
    let replicated = over(2, 6, 7, &|i, j, k| at(i, edge(j as i64 - 1, 3), edge(k as i64 - 2, 4)));
    check("pad", &input, &pad("replicate"), &replicated, 0.0, exactly);
    let filled = over(2, 6, 7, &|i, j, k| {
        if (1..4).contains(&j) && (2..6).contains(&k) { at(i, j - 1, k - 2) } else { 0.5 }
    });
    let constant = [&pad("constant")[..], &[("constant_val", Constant::fp16(0.5))]].concat();
    check("pad", &input, &constant, &filled, 0.0, exactly);
    let indices = Tensor::new(Int32, &[2, 2], vec![2.0, 0.0, -1.0, 1.0]);
    let pick = [2, 0, 2, 1];
    let gathered: Vec<f64> = (0..32).map(|n| at(n / 16, pick[n / 4 % 4], n % 4)).collect();
    let with = [("x", x.clone()), ("indices", indices)];
    check("gather", &with, &[("axis", Constant::int32(1))], &gathered, 0.0, exactly);
    let along = Tensor::new(Int32, &[2, 1, 4], vec![2.0, 0.0, -1.0, 1.0, 0.0, 0.0, 1.0, 2.0]);
    let chosen = [[2, 0, 2, 1], [0, 0, 1, 2]];
    let wanted = over(2, 1, 4, &|i, _, k| at(i, chosen[i][k], k));
    check("gather_along_axis", &[("x", x), ("indices", along)], &[("axis", Constant::int32(1))], &wanted, 0.0, exactly);
}

#[test]
fn concat_stack_and_split_in_every_form() {
    let (x, y) = (Tensor::random(Fp16, &[2, 3, 4], 5), Tensor::random(Fp16, &[2, 3, 4], 6));
    for axis in 0..3usize {
        for interleave in [false, true] {
            let inputs = [x.clone(), y.clone()];
            let program = program(&inputs, |b, ids| {
                // Operands that are computed, so that they are written in place, and one that is not.
                let doubled = b.add("doubled", ids[0], ids[0])?;
                let args: [(&str, Arg); 3] = [
                    ("values", Arg::List(vec![doubled, ids[1]])),
                    ("axis", Constant::int32(axis as i32).into()),
                    ("interleave", Constant::bool(interleave).into()),
                ];
                let joined = b.op("concat", "joined", args)?;
                let halves = b.split("halves", joined, &[1, 2 * x.shape[axis] as i32 - 1], axis as i32)?;
                let stack: [(&str, Arg); 2] =
                    [("values", Arg::List(vec![ids[1], doubled])), ("axis", Constant::int32(axis as i32).into())];
                let stacked = b.op("stack", "stacked", stack)?;
                Ok(vec![joined, halves[1], doubled, stacked])
            });
            let n = x.shape[axis];
            let inner: usize = x.shape[axis + 1..].iter().product();
            let pick = |outer: usize, i: usize, k: usize| {
                let (second, at) = match interleave {
                    true => (i % 2 == 1, i / 2),
                    false => (i >= n, i % n),
                };
                let at = (outer * n + at) * inner + k;
                if second { y.values[at] } else { half(2.0 * x.values[at]) }
            };
            let outer = 24 / n / inner;
            let joined: Vec<f64> = (0..48).map(|m| pick(m / inner / (2 * n), m / inner % (2 * n), m % inner)).collect();
            let tail: Vec<f64> = (0..outer * (2 * n - 1) * inner)
                .map(|m| pick(m / inner / (2 * n - 1), m / inner % (2 * n - 1) + 1, m % inner))
                .collect();
            let block = n * inner;
            let stacked: Vec<f64> = (0..48)
                .map(|m| {
                    let at = m / (2 * block) * block + m % block;
                    if (m / block).is_multiple_of(2) { y.values[at] } else { 2.0 * x.values[at] }
                })
                .collect();
            for numerics in BOTH {
                let found = run(numerics, &program, &inputs).unwrap();
                assert_eq!(found[0].values, joined, "{axis} {interleave} {numerics:?}");
                assert_eq!(found[1].values, tail, "{axis} {interleave} {numerics:?}");
                assert_eq!(found[3].values, stacked, "{axis} {numerics:?}");
            }
        }
    }
}

#[test]
fn a_value_may_stand_twice_in_a_concat() {
    let x = Tensor::random(Fp16, &[2, 3, 4], 5);
    for axis in 0..3 {
        for interleave in [false, true] {
            let build = |through: bool| {
                program(std::slice::from_ref(&x), |b, ids| {
                    // Computed, so that its first place is its home; through the input there is nothing to gain.
                    let v = if through { b.relu("v", ids[0])? } else { ids[0] };
                    let args: [(&str, Arg); 3] = [
                        ("values", Arg::List(vec![v, v, v])),
                        ("axis", Constant::int32(axis).into()),
                        ("interleave", Constant::bool(interleave).into()),
                    ];
                    let joined = b.op("concat", "joined", args)?;
                    Ok(vec![if through { joined } else { b.relu("after", joined)? }])
                })
            };
            for numerics in BOTH {
                let found =
                    [true, false].map(|t| run(numerics, &build(t), std::slice::from_ref(&x)).unwrap().remove(0));
                assert_eq!(found[0], found[1], "{axis} {interleave} {numerics:?}");
            }
        }
    }
}

#[test]
fn quantised_weights_and_activations() {
    let exactly = |_| 0.0;
    let x = Tensor::new(Fp16, &[1, 2, 1, 4], vec![0.0, 0.25, -0.75, 100.0, 0.5, -100.0, 0.375, 1.0]);
    let scalar = [("scale", Constant::fp16(0.5)), ("output_dtype", Constant::string("int8"))];
    // round(x / 0.5), ties to even, saturated.
    check("quantize", &[("input", x)], &scalar, &[0.0, 0.0, -2.0, 127.0, 1.0, -128.0, 1.0, 2.0], 0.0, exactly);
    let q = Tensor::new(Int8, &[2, 3], vec![-128.0, 0.0, 127.0, 1.0, 2.0, 3.0]);
    let per_row = [
        ("scale", Constant::raw(Fp16, &[2], &Tensor::new(Fp16, &[2], vec![0.5, 2.0]).to_bytes())),
        ("zero_point", Constant::raw(Int8, &[2], &[1, 0xFF])),
        ("axis", Constant::int32(0)),
    ];
    check("dequantize", &[("input", q)], &per_row, &[-64.5, -0.5, 63.0, 4.0, 6.0, 8.0], 0.0, exactly);

    let x = Tensor::random(Fp16, &[1, 3, 1, 8], 2);
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let args: [(&str, Arg); 4] = [
            ("quantized_data", Constant::raw(Int8, &[2, 3, 1, 1], &[1, 0xFE, 3, 4, 5, 0xFA]).into()),
            ("scale", Constant::raw(Fp16, &[2], &Tensor::new(Fp16, &[2], vec![0.5, 0.25]).to_bytes()).into()),
            ("zero_point", Constant::raw(Int8, &[2], &[1, 0]).into()),
            ("axis", Constant::int32(0).into()),
        ];
        let w = b.op("constexpr_affine_dequantize", "w", args)?;
        Ok(vec![b.conv("y", ids[0], w, None, &Conv::default())?])
    });
    let w = [[0.0, -1.5, 1.0], [1.0, 1.25, -1.5]];
    let wanted: Vec<f64> = (0..16).map(|n| (0..3).map(|c| w[n / 8][c] * x.values[c * 8 + n % 8]).sum()).collect();
    for numerics in BOTH {
        close(&run(numerics, &program, std::slice::from_ref(&x)).unwrap()[0].values, &wanted, 1e-6, grid(numerics))
            .unwrap();
    }
}

#[test]
fn palettes_and_blocks() {
    let raw = |dtype, shape: &[usize], values: &[f64]| {
        Constant::raw(dtype, shape, &Tensor::new(dtype, shape, values.to_vec()).to_bytes())
    };
    // Two palettes (rows), 1-bit indices: 0b0110 and 0b0011 from the lowest bit on.
    let constants = [
        ("indices", Constant::raw(DataType::UInt1, &[2, 4], &[0b0011_0110])),
        ("lut", raw(Fp16, &[2, 1, 2, 1], &[1.0, 2.0, -1.0, -2.0])),
    ];
    let x = Tensor::new(Fp16, &[2, 4], vec![0.0; 8]);
    let added = |op: &str, constants: &[(&str, Constant)], wanted: &[f64]| {
        let program = program(std::slice::from_ref(&x), |b, ids| {
            let args: Vec<(&str, Arg)> = constants.iter().map(|(n, c)| (*n, Arg::Const(c.clone()))).collect();
            let w: ValueId = b.op(op, "w", args)?;
            Ok(vec![b.add("y", ids[0], w)?])
        });
        for numerics in BOTH {
            assert_eq!(run(numerics, &program, std::slice::from_ref(&x)).unwrap()[0].values, wanted, "{op}");
        }
    };
    added("constexpr_lut_to_dense", &constants, &[1.0, 2.0, 2.0, 1.0, -2.0, -2.0, -1.0, -1.0]);
    let constants = [
        ("data", Constant::raw(DataType::Int4, &[2, 4], &[0x21, 0x43, 0xFE, 0x87])),
        ("scale", raw(Fp16, &[2, 2], &[1.0, 0.5, 2.0, 4.0])),
        ("offset", raw(Fp16, &[2, 2], &[0.0, 1.0, 0.0, -1.0])),
    ];
    added("constexpr_blockwise_shift_scale", &constants, &[1.0, 2.0, 1.0, 1.5, -4.0, -2.0, 32.0, -28.0]);
}

#[test]
fn pools() {
    let x = Tensor::random(Fp16, &[1, 2, 5, 4], 3);
    let options = |pad: &str, exclude: Option<bool>| {
        let mut list = vec![
            ("kernel_sizes", Constant::int32s(&[3, 2])),
            ("strides", Constant::int32s(&[2, 1])),
            ("pad_type", Constant::string(pad)),
        ];
        if pad == "custom" {
            list.push(("pad", Constant::int32s(&[1, 1, 0, 1])));
        }
        list.extend(exclude.map(|e| ("exclude_padding_from_average", Constant::bool(e))));
        list
    };
    let pool = |columns: usize, f: &dyn Fn(&[f64]) -> f64| {
        (0..2 * 3 * columns)
            .map(|n| {
                let (c, i, j) = (n / (3 * columns), n / columns % 3, n % columns);
                let mut seen = Vec::new();
                for a in 0..3 {
                    for b in 0..2 {
                        let (row, col) = ((2 * i + a) as i64 - 1, j + b);
                        if (0..5).contains(&row) && col < 4 {
                            seen.push(x.values[(c * 5 + row as usize) * 4 + col]);
                        }
                    }
                }
                f(&seen)
            })
            .collect::<Vec<f64>>()
    };
    let input = [("x", x.clone())];
    let max = pool(4, &|v| v.iter().copied().fold(f64::MIN, f64::max));
    check("max_pool", &input, &options("custom", None), &max, 0.0, |_| 0.0);
    let mean = pool(4, &|v| v.iter().sum::<f64>() / v.len() as f64);
    check("avg_pool", &input, &options("custom", Some(true)), &mean, 1e-7, grid);
    check("avg_pool", &input, &options("custom", Some(false)), &pool(4, &|v| v.iter().sum::<f64>() / 6.0), 1e-7, grid);
}
