//! Published numbers through programs: function bits, reductions, edges, special values, quantized
//! codes.

use ferrane_emulator::Rules;
use ferrane_mil::{Arg, Constant, DataType, Program};
use ferrane_testdata::Suite;
use serde_json::Value;

use super::{machine, run, with_rules};
use crate::harness::{self, Tensor, half};

const M1: &str = "m1-macos15-e5rt";
const M5: &str = "m5-macos26-inmem";

fn row(values: &[f64]) -> Tensor {
    Tensor::new(DataType::Fp16, &[1, 1, 1, values.len()], values.to_vec())
}

/// One op with these operands, by MIL's names.
fn op(name: &str, inputs: &[(&str, Tensor)], constants: &[(&str, Constant)]) -> (Program, Vec<Tensor>) {
    let tensors: Vec<Tensor> = inputs.iter().map(|(_, t)| t.clone()).collect();
    let program = harness::program(&tensors, |b, ids| {
        let mut args: Vec<(&str, Arg)> = inputs.iter().zip(ids).map(|((n, _), v)| (*n, Arg::Value(*v))).collect();
        args.extend(constants.iter().map(|(n, c)| (*n, Arg::Const(c.clone()))));
        b.ops(name, "result", args)
    });
    (program, tensors)
}

fn one(profile: &str, name: &str, inputs: &[(&str, Tensor)], constants: &[(&str, Constant)]) -> Vec<f64> {
    let (program, tensors) = op(name, inputs, constants);
    run(&machine(profile), &program, &tensors).unwrap().remove(0).values
}

fn read(name: &str, file: &str) -> Option<(Suite, Value)> {
    let suite = Suite::open(name, &format!("numerics/{file}"))?;
    let text = std::fs::read(suite.folder()).unwrap();
    Some((suite, serde_json::from_slice(&text).unwrap()))
}

#[test]
fn functions_have_the_bits_of_an_m5() {
    let Some((mut suite, data)) = read("emulator: device function bits", "activation_vectors.json") else { return };
    for (name, vectors) in data.as_object().unwrap() {
        let Some(vectors) = vectors.as_array() else { continue };
        let xs: Vec<f64> = vectors.iter().map(|v| v["x"].as_f64().unwrap()).collect();
        let inputs = [row(&xs)];
        let program = harness::program(&inputs, |b, x| {
            let tanh = |b: &mut ferrane_mil::Builder| b.op("tanh", "tanh", [("x", x[0].into())]);
            let sigmoid = |b: &mut ferrane_mil::Builder| b.op("sigmoid", "sigmoid", [("x", x[0].into())]);
            Ok(vec![match name.as_str() {
                "tanh" => tanh(b)?,
                "sigmoid" => sigmoid(b)?,
                _ => {
                    let (tanh, sigmoid) = (tanh(b)?, sigmoid(b)?);
                    b.op("mul", "product", [("x", tanh.into()), ("y", sigmoid.into())])?
                }
            }])
        });
        if !["tanh", "sigmoid", "product_tanh_times_sigmoid"].contains(&name.as_str()) {
            suite.skip(name, "a function that is not known here");
            continue;
        }
        let found = run(&machine(M5), &program, &inputs).unwrap().remove(0).to_bytes();
        for (vector, bytes) in vectors.iter().zip(found.chunks_exact(2)) {
            let wanted = vector["device"].as_str().unwrap().trim_start_matches("0x");
            let found = format!("{:04x}", u16::from_le_bytes([bytes[0], bytes[1]]));
            let result = if found == wanted { Ok(()) } else { Err(format!("{found}, not {wanted}")) };
            suite.case(&format!("{name}({})", vector["x"]), result);
        }
    }
    suite.finish();
}

/// A dot product with ones, as `matmul`, as `linear` and as a convolution.
fn dots(profile: &str, values: &[f64]) -> Vec<f64> {
    let k = values.len();
    let x = Tensor::new(DataType::Fp16, &[1, k], values.to_vec());
    let ones = Tensor::new(DataType::Fp16, &[k, 1], vec![1.0; k]);
    let mut found = one(profile, "matmul", &[("x", x.clone()), ("y", ones)], &[]);
    let weight = Tensor::new(DataType::Fp16, &[1, k], vec![1.0; k]);
    let program = harness::program(std::slice::from_ref(&x), |b, ids| {
        let w = b.weight("w", "@model_path/w.bin", DataType::Fp16, &weight.shape, weight.to_bytes())?;
        Ok(vec![b.op("linear", "y", [("x", ids[0].into()), ("weight", w.into())])?])
    });
    found.extend(run(&machine(profile), &program, &[x]).unwrap().remove(0).values);
    let image = Tensor::new(DataType::Fp16, &[1, k, 1, 1], values.to_vec());
    let kernel = Tensor::new(DataType::Fp16, &[1, k, 1, 1], vec![1.0; k]);
    found.extend(one(profile, "conv", &[("x", image), ("weight", kernel)], &[]));
    found
}

#[test]
fn sums_on_an_m1_lose_what_its_tiles_lose() {
    // Numerics §3.2.
    let mut long = vec![1.0; 1025];
    long[0] = 4096.0;
    assert_eq!(dots(M1, &long), [5116.0; 3]);
    assert_eq!(dots(M1, &vec![1.0; 16000]), [16000.0; 3]);
    for (large, wanted) in
        [(1024.0, 16.0), (3000.0, 16.0), (4090.0, 16.0), (4096.0, 4.0), (8000.0, 4.0), (16000.0, 4.0), (30000.0, 4.0)]
    {
        for rotation in 0..3 {
            let triple = [large, -large, 1.0];
            let values: Vec<f64> = (0..48).map(|i| triple[(i + rotation) % 3]).collect();
            assert_eq!(dots(M1, &values), [wanted; 3], "{large}, rotated by {rotation}");
        }
    }
}

#[test]
fn the_port_ends_below_two_to_the_fifteen() {
    // Numerics §4: independent of the number of terms, and an interior partial is lost even if
    // canceled later.
    for profile in [M1, "m2-pro-macos15-e5rt", "m5-pro-macos27-coreml"] {
        for k in [2, 3, 64, 1000] {
            let mut values = vec![0.0; k];
            (values[0], values[k - 1]) = (16384.0, 16368.0);
            assert_eq!(dots(profile, &values), [32752.0; 3], "{profile}");
            values[k - 1] = 16384.0;
            assert_eq!(dots(profile, &values), [f64::INFINITY; 3], "{profile}");
        }
        let canceled = [20000.0, 20000.0, 0.0, 0.0, -20000.0, -20000.0, 0.0, 0.0];
        assert_eq!(dots(profile, &canceled), [f64::INFINITY; 3], "{profile}");
        // One tap accumulates nothing.
        assert_eq!(dots(profile, &[60000.0]), [60000.0; 3], "{profile}");
    }
}

#[test]
fn width_slices_crop_where_the_family_does() {
    let x = Tensor::new(DataType::Fp16, &[1, 1, 2, 4], vec![1.0, 4094.0, 4096.0, -60000.0, 5000.0, 1.0, 2.0, 3.0]);
    let slice = |profile: &str, begin: [i32; 4], size: [i32; 4]| {
        let constants = [("begin", Constant::int32s(&begin)), ("size", Constant::int32s(&size))];
        one(profile, "slice_by_size", &[("x", x.clone())], &constants)
    };
    let (inf, width) = (f64::INFINITY, [1, 1, 1, 3]);
    for profile in [M1, "m2-macos15-inmem"] {
        assert_eq!(slice(profile, [0, 0, 0, 1], width), [4094.0, inf, -inf]);
        // From 0, and along another axis, nothing is multiplied.
        assert_eq!(slice(profile, [0, 0, 0, 0], width), [1.0, 4094.0, 4096.0]);
        assert_eq!(slice(profile, [0, 0, 1, 0], width), [5000.0, 1.0, 2.0]);
    }
    assert_eq!(slice("m4-macos15-inmem", [0, 0, 0, 1], width), [4094.0, 4096.0, half(-60000.0)]);
}

#[test]
fn special_values_are_the_published_ones() {
    let Some((mut suite, data)) = read("emulator: special values", "special_values.json") else { return };
    for vector in data.as_array().unwrap() {
        let (name, chip) = (vector["op"].as_str().unwrap(), vector["chip"].as_str().unwrap());
        let texts: Vec<&str> = vector["inputs"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
        let id = format!("{chip}: {name}({})", texts.join(", "));
        let values: Option<Vec<f64>> = texts.iter().map(|t| t.parse().ok()).collect();
        let wanted = vector["output"].as_str().unwrap().trim_matches(['[', ']']);
        let wanted: Option<Vec<f64>> = wanted.split(',').map(|t| t.parse().ok()).collect();
        let (Some(values), Some(wanted)) = (values, wanted) else {
            suite.skip(&id, "said in words, no operands");
            continue;
        };
        let profile = match chip {
            "M1" => M1,
            "M5" => M5,
            "M5 Pro" => "m5-pro-macos27-coreml",
            _ => {
                suite.skip(&id, "several chips");
                continue;
            }
        };
        let found = match name {
            "add" | "sub" | "mul" => one(profile, name, &[("x", row(&values[..1])), ("y", row(&values[1..]))], &[]),
            "softmax" => one(profile, name, &[("x", row(&values))], &[("axis", Constant::int32(-1))]),
            "log" | "rsqrt" | "inverse" => {
                // The value itself, with no epsilon added.
                one(profile, name, &[("x", row(&values))], &[("epsilon", Constant::fp16(0.0))])
            }
            "relu" | "sigmoid" | "tanh" | "erf" | "exp" | "sqrt" | "softplus" | "softsign" | "square" | "round"
            | "gelu" | "silu" => one(profile, name, &[("x", row(&values))], &[]),
            _ => {
                suite.skip(&id, "no op of MIL by itself");
                continue;
            }
        };
        let wanted: Vec<f64> = wanted.into_iter().map(half).collect();
        let same = found.iter().zip(&wanted).all(|(f, w)| f.to_bits() == w.to_bits()) && found.len() == wanted.len();
        match (name, chip) {
            ("gelu" | "silu", "M1") if !same => {
                suite.skip(&id, "knots of another table, not published (numerics §6.2)")
            }
            ("softplus", _) if !same && texts == ["11"] => suite.skip(&id, "the quoted onset 11.09 is not reached"),
            _ => suite.case(&id, if same { Ok(()) } else { Err(format!("{found:?}, not {wanted:?}")) }),
        }
    }
    suite.finish();
}

#[test]
fn ties_go_as_the_chip_takes_them() {
    // Numerics §2: 2049 lies between 2048 and 2050.
    let m5 = "m5-macos26-e5rt";
    assert_eq!((dots(M1, &[2048.0, 1.0]), dots(m5, &[2048.0, 1.0])), (vec![2048.0; 3], vec![2050.0; 3]));
    let add = |profile| one(profile, "add", &[("x", row(&[2048.0])), ("y", row(&[1.0]))], &[]);
    assert_eq!((add(M1), add(m5)), (vec![2048.0], vec![2050.0]));
    // A sum of its own: 2049 reads 2050 on M2 Pro and M5 Pro (ANEForge).
    let sum = |profile: &str, count: usize| {
        let axes = [("axes", Constant::int32s(&[-1])), ("keep_dims", Constant::bool(true))];
        one(profile, "reduce_sum", &[("x", row(&vec![1.0; count]))], &axes)
    };
    for profile in ["m2-pro-macos15-e5rt", "m5-pro-macos26-e5rt"] {
        assert_eq!(sum(profile, 2049), [2050.0], "{profile}");
        assert_eq!(sum(profile, 2048), [2048.0], "{profile}");
    }
}

#[test]
fn codes_of_an_eighth_go_half_away() {
    // int8 §2, M5 Pro.
    let x = row(&[0.0625, -0.0625, 0.1875, 100.0]);
    let constants = [("scale", Constant::fp16(0.125)), ("output_dtype", Constant::string("int8"))];
    assert_eq!(one("m5-pro-macos27-coreml", "quantize", &[("input", x)], &constants), [1.0, -1.0, 2.0, 127.0]);
}

#[test]
fn what_only_passes_through_is_no_nan_either() {
    // Numerics §5: NaN becomes infinity at the boundary, also where a program only moves it.
    let x = row(&[f64::NAN, -1.0, f64::NAN, 2.0]);
    let found = one(M1, "transpose", &[("x", x)], &[("perm", Constant::int32s(&[3, 2, 1, 0]))]);
    assert_eq!(found, [f64::INFINITY, -1.0, f64::INFINITY, 2.0]);
    // Subnormals pass element-wise ops and are lost in products (M1).
    let tiny = 2f64.powi(-24);
    assert_eq!(one(M1, "add", &[("x", row(&[tiny])), ("y", row(&[0.0]))], &[]), [tiny]);
    assert_eq!(dots(M1, &[tiny, tiny]), [0.0; 3]);
}

#[test]
fn every_finite_value_is_quantized_half_away() {
    // int8 §2: 63,488 values at scale 1, M5 Pro.
    let values: Vec<f64> =
        (0..=u16::MAX).filter(|b| b & 0x7C00 != 0x7C00).map(|b| ferrane_host::f16::from_bits(b).to_f64()).collect();
    assert_eq!(values.len(), 63_488);
    let scale = ("scale", Constant::fp16(1.0));
    let constants = [scale, ("output_dtype", Constant::string("int8"))];
    let found = one("m5-pro-macos27-coreml", "quantize", &[("input", row(&values))], &constants);
    let wanted: Vec<f64> = values.iter().map(|v| v.round().clamp(-128.0, 127.0)).collect();
    harness::close(&found, &wanted, f64::MIN_POSITIVE, 0.0).unwrap();
}

#[test]
fn a_mask_counts_only_where_the_machine_reads_it() {
    let part = |seed| Tensor::random(DataType::Fp16, &[1, 2, 8, 16], seed);
    let mask = Tensor::new(
        DataType::Fp16,
        &[1, 1, 8, 8],
        (0..64).map(|i| if i % 8 > i / 8 { -30000.0 } else { 0.0 }).collect(),
    );
    let inputs = [("query", part(1)), ("key", part(2)), ("value", part(3)), ("attn_mask", mask)];
    let (masked, with) = op("scaled_dot_product_attention", &inputs, &[]);
    let (plain, without) = op("scaled_dot_product_attention", &inputs[..3], &[]);
    let found = |rules: Rules, program: &Program, tensors: &[Tensor]| {
        run(&with_rules(rules), program, tensors).unwrap().remove(0).values
    };
    let ignored = Rules { attn_mask_ignored: true, ..Rules::published() };
    let bare = found(Rules::published(), &plain, &without);
    assert_eq!(found(ignored, &masked, &with), bare);
    let honored = found(Rules::published(), &masked, &with);
    assert_ne!(honored, bare);
    // The first query sees the first value only.
    assert_eq!(honored[..16], inputs[2].1.values[..16]);
}

#[test]
fn a_product_takes_another_quantization_s_scale() {
    // int8 §2, M5 Pro: y = Q_out(a · Q_1/16(b)) of ones gives 16 times the output's scale.
    let inputs = [row(&[1.0; 8]), row(&[1.0; 8])];
    let scale = |v: f32| ("scale", Arg::Const(Constant::fp16(v)));
    let q = |b: &mut ferrane_mil::Builder, x: Arg, s: f32| {
        let code =
            b.op("quantize", "q", [("input", x), scale(s), ("output_dtype", Constant::string("int8").into())])?;
        b.op("dequantize", "dq", [("input", code.into()), scale(s)])
    };
    let defect = Rules { qdq_defect: true, ..Rules::published() };
    for (out, wanted) in [(1.0 / 16.0, 1.0), (0.125, 2.0), (0.25, 4.0), (0.5, 8.0)] {
        let program = harness::program(&inputs, |b, ids| {
            let right = q(b, ids[1].into(), 1.0 / 16.0)?;
            let product = b.op("mul", "p", [("x", ids[0].into()), ("y", right.into())])?;
            Ok(vec![q(b, product.into(), out)?])
        });
        let found = |rules: &Rules| run(&with_rules(rules.clone()), &program, &inputs).unwrap().remove(0).values;
        assert_eq!(found(&defect), [wanted; 8], "{out}");
        assert_eq!(found(&Rules::published()), [1.0; 8]);
    }
    // Two factors of 2 and 8, both code 4: 4 or 64, by the order, instead of 16.
    for (first, second, wanted) in [((2.0, 0.5), (8.0, 2.0), 4.0), ((8.0, 2.0), (2.0, 0.5), 64.0)] {
        let inputs = [row(&[first.0; 8]), row(&[second.0; 8])];
        let program = harness::program(&inputs, |b, ids| {
            let (x, y) = (q(b, ids[0].into(), first.1)?, q(b, ids[1].into(), second.1)?);
            b.ops("mul", "p", vec![("x", x.into()), ("y", y.into())])
        });
        assert_eq!(run(&with_rules(defect.clone()), &program, &inputs).unwrap()[0].values, [wanted; 8]);
    }
}

#[test]
fn activations_beside_int8_weights_are_cropped() {
    // int8 §3: above 4094 infinite, on M1 Max, M2 Pro and M5 Pro.
    let x = Tensor::new(DataType::Fp16, &[1, 3], vec![4094.0, 1.0, 2.0]);
    let large = Tensor::new(DataType::Fp16, &[1, 3], vec![4100.0, 1.0, 2.0]);
    let program = harness::program(std::slice::from_ref(&x), |b, ids| {
        let args = [
            ("quantized_data", Constant::raw(DataType::Int8, &[1, 3], &[1, 2, 3]).into()),
            ("scale", Constant::fp16(1.0).into()),
            ("zero_point", Constant::raw(DataType::Int8, &[], &[0]).into()),
            ("axis", Constant::int32(0).into()),
        ];
        let weight: ferrane_mil::ValueId = b.op("constexpr_affine_dequantize", "w", args)?;
        b.ops("linear", "y", vec![("x", ids[0].into()), ("weight", weight.into())])
    });
    for profile in ["m1-max-macos15-e5rt", "m5-pro-macos26-e5rt"] {
        let found = |x: &Tensor| run(&machine(profile), &program, std::slice::from_ref(x)).unwrap()[0].values.clone();
        assert_eq!((found(&x), found(&large)), (vec![4104.0], vec![f64::INFINITY]));
    }
}
