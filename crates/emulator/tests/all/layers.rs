//! Products, convolutions, attention, normalizations, pools and quantization against plain fp64
//! arithmetic, under both tables.

use ferrane_mil::{Arg, Constant, Conv, DataType, ValueId};

use crate::harness::{BOTH, Tensor, check, close, grid, program, run};

use DataType::{Fp16, Fp32, Int8, Int32};

#[test]
fn normalizations() {
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

/// A convolution by its definition, in fp64.
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
            // A weight known at run time only goes without dilations (coremltools 9.0).
            if !constant && options.dilations.iter().any(|&d| d > 1) {
                continue;
            }
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
fn integer_products_whose_place_is_no_batch() {
    let shape = [2, 3, 2, 2];
    let (x, y) = (Tensor::random(Int32, &[2, 3, 2, 4], 5), Tensor::random(Int32, &[2, 3, 4, 2], 6));
    let inputs = [x.clone(), y.clone()];
    let product = |i: [usize; 4]| -> f64 {
        let batch = i[0] * 3 + i[1];
        (0..4).map(|k| x.values[(batch * 2 + i[2]) * 4 + k] * y.values[(batch * 4 + k) * 2 + i[3]]).sum()
    };
    // The output, whose first axes are swapped, is where the product is to be written.
    let program = program(&inputs, |b, ids| {
        let p = b.op("matmul", "p", [("x", Arg::Value(ids[0])), ("y", Arg::Value(ids[1]))])?;
        let perm = ("perm", Arg::Const(Constant::int32s(&[1, 0, 2, 3])));
        Ok(vec![b.op("transpose", "t", [("x", Arg::Value(p)), perm])?])
    });
    let place = |n: usize| [n / 4 % 2, n / 8, n / 2 % 2, n % 2];
    let wanted: Vec<f64> = (0..shape.iter().product()).map(|n| product(place(n))).collect();
    for numerics in BOTH {
        assert_eq!(run(numerics, &program, &inputs).unwrap()[0].values, wanted);
    }
}

#[test]
fn attention_honors_its_mask() {
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
fn quantized_weights_and_activations() {
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
fn a_palette_of_integers_gives_integers() {
    let raw = |dtype, shape: &[usize], values: &[f64]| {
        Constant::raw(dtype, shape, &Tensor::new(dtype, shape, values.to_vec()).to_bytes())
    };
    let x = Tensor::new(Fp16, &[2, 4], vec![0.5; 8]);
    let wanted = [-3.0, 100.0, 100.0, -3.0, 7.0, 7.0, -128.0, -128.0];
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let indices = Constant::raw(DataType::UInt1, &[2, 4], &[0b0011_0110]);
        let lut = raw(Int8, &[2, 1, 2, 1], &[-3.0, 100.0, -128.0, 7.0]);
        let w = b.op("constexpr_lut_to_dense", "w", [("indices", Arg::Const(indices)), ("lut", Arg::Const(lut))])?;
        let dtype = ("dtype", Arg::Const(Constant::string("fp16")));
        let wide = b.op("cast", "wide", [("x", Arg::Value(w)), dtype])?;
        Ok(vec![w, b.add("y", ids[0], wide)?])
    });
    let moved: Vec<f64> = wanted.iter().map(|w| w + 0.5).collect();
    for numerics in BOTH {
        let found = run(numerics, &program, std::slice::from_ref(&x)).unwrap();
        assert_eq!((found[0].dtype, &found[0].values[..], &found[1].values[..]), (Int8, &wanted[..], &moved[..]));
    }
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
