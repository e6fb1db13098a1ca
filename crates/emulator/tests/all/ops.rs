//! Arithmetic, reductions and moves against plain fp64 arithmetic, under both tables.

use ferrane_emulator::Numerics;
use ferrane_mil::{Arg, Constant, DataType};

use crate::harness::{BOTH, Tensor, check, grid, half, program, run};

use DataType::{Fp16, Fp32, Int32};

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
    // 1 + 2⁻¹¹ is a tie between 1 and 1 + 2⁻¹⁰; even is 1. 1 + 3·2⁻¹¹ goes up to the even neighbor.
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
    // The maximum is subtracted (numerics §5).
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
                // Operands that are computed, so that they are written in place, and one that is
                // not.
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
fn scalars_make_a_vector() {
    // coremltools 9.0: n scalars are concatenated to [n].
    let inputs = [Tensor::new(Fp16, &[2], vec![3.0, -5.0])];
    for (wanted, interleave) in [(&[3.0, -5.0, 9.0][..], false), (&[3.0, -5.0, 9.0], true), (&[3.0], false)] {
        let program = program(&inputs, |b, ids| {
            let mut values = Vec::new();
            for (name, at) in [("first", 0), ("second", 1)] {
                let one = b.slice_by_size(&format!("{name}_vector"), ids[0], &[at], &[1])?;
                values.push(b.squeeze(name, one, &[0])?);
            }
            values.push(b.op("square", "third", [("x", values[0].into())])?);
            values.truncate(wanted.len());
            let values = Arg::List(values);
            let args = [
                ("values", values),
                ("axis", Constant::int32(0).into()),
                ("interleave", Constant::bool(interleave).into()),
            ];
            Ok(vec![b.op("concat", "joined", args)?])
        });
        for numerics in BOTH {
            assert_eq!(run(numerics, &program, &inputs).unwrap()[0].values, wanted, "{numerics:?}");
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
                    // Computed, so that its first place is its home; through the input there is
                    // nothing to gain.
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
