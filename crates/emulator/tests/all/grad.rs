//! Backward programs of `ferrane_mil::grad`: every op against central differences of its forward in
//! the `exact` table, the large ones against PyTorch, and the two tables against each other.

use ferrane_emulator::Numerics;
use ferrane_mil::grad::{GradError, Support, VjpOptions, differentiable, lift_constant, vjp};
use ferrane_mil::{
    Builder, Constant, DataType, Opset, Program, ReducedDims, Transpose, Type, ValueId, check, parse, print,
};

use crate::grad_case::*;
use crate::harness::{Tensor, close, emulator};

use DataType::{Bool, Fp16, Fp32};

/// A loaded program with its surfaces.
#[test]
fn unary_ops() {
    // Away from kinks by more than two steps: the even number of values leaves a gap around zero.
    let ranges: &[(f64, f64, &[&str])] = &[
        (-2.0, 2.0, &["abs", "square", "exp", "exp2", "erf", "sin", "cos", "sinh", "cosh", "atan", "identity"]),
        (-2.0, 2.0, &["sigmoid", "tanh", "relu", "silu", "softplus", "softsign", "softmax", "gelu"]),
        (0.4, 3.0, &["sqrt"]),
        (-1.2, 1.2, &["tan"]),
        (-0.8, 0.8, &["asin", "acos", "atanh"]),
        (-3.0, 9.0, &["relu6"]),
    ];
    for (low, high, ops) in ranges {
        for op in *ops {
            case(op, &[("x", spaced(&[2, 3, 4], *low, *high, 3))], &[]).verify();
        }
    }
    let positive = spaced(&[2, 3, 4], 0.4, 3.0, 4);
    for op in ["log", "rsqrt", "inverse"] {
        case(op, &[("x", positive.clone())], &[("epsilon", Constant::fp32(0.05))]).verify();
        case(op, &[("x", positive.clone())], &[]).opset("ios15").verify();
    }
    let x = spaced(&[2, 3, 4], -2.0, 2.0, 5);
    for mode in ["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"] {
        case("gelu", &[("x", x.clone())], &[("mode", Constant::string(mode))]).verify();
    }
    for axis in [0, 1, -1] {
        case("softmax", &[("x", x.clone())], &[("axis", Constant::int32(axis))]).verify();
    }
    let alpha = |v: f32| ("alpha", Constant::fp32(v));
    let beta = |v: f32| ("beta", Constant::fp32(v));
    // The bounds lie between two of the 24 values.
    case("clip", &[("x", x.clone())], &[alpha(-1.0), beta(4.0 / 3.0)]).verify();
    case("threshold", &[("x", x.clone())], &[alpha(1.0 / 3.0)]).verify();
    case("thresholded_relu", &[("x", x.clone())], &[alpha(1.0)]).verify();
    for (op, a) in [("elu", 0.7), ("leaky_relu", 0.2)] {
        case(op, &[("x", x.clone())], &[alpha(a)]).verify();
    }
    case("clamped_relu", &[("x", x.clone())], &[alpha(0.25), beta(1.0)]).verify();
    case("linear_activation", &[("x", x.clone())], &[alpha(-1.5), beta(0.5)]).verify();
    case("scaled_tanh", &[("x", x.clone())], &[alpha(1.5), beta(0.75)]).verify();
    case("sigmoid_hard", &[("x", x)], &[alpha(0.5), beta(1.0 / 3.0)]).verify();
}

#[test]
fn binary_ops_and_broadcasting() {
    let shapes: [(&[usize], &[usize]); 5] =
        [(&[2, 3, 4], &[2, 3, 4]), (&[2, 3, 4], &[4]), (&[3, 1], &[2, 1, 4]), (&[1, 3], &[2, 3]), (&[2, 3], &[])];
    for (i, (a, b)) in shapes.iter().enumerate() {
        let seed = i as u64;
        for op in ["add", "sub", "mul"] {
            case(op, &[("x", random(a, seed)), ("y", random(b, seed + 9))], &[]).verify();
        }
        let y = spaced(b, 0.8, 2.0, seed + 20);
        case("real_div", &[("x", random(a, seed)), ("y", y.clone())], &[]).verify();
        case("pow", &[("x", spaced(a, 0.5, 2.0, seed)), ("y", y)], &[]).verify();
    }
    let (x, y) = (spaced(&[4, 5], -2.0, 2.0, 3), spaced(&[4, 5], -1.9, 2.05, 8));
    let apart = x.values.iter().zip(&y.values).filter(|(a, b)| (*a - *b).abs() < 0.04).count();
    assert_eq!(apart, 0, "choose other seeds");
    for op in ["maximum", "minimum"] {
        case(op, &[("x", x.clone()), ("y", y.clone())], &[]).verify();
    }
    // Quotients away from whole numbers.
    let x = Tensor::new(Fp32, &[4], vec![3.5, 2.25, -1.5, 0.5]);
    case("mod", &[("x", x), ("y", Tensor::new(Fp32, &[4], vec![1.0, 1.5, 1.0, 2.0]))], &[]).verify();
    let cond = Tensor::new(Bool, &[3, 1], vec![1.0, 0.0, 1.0]);
    case("select", &[("cond", cond), ("a", random(&[3, 4], 1)), ("b", random(&[4], 2))], &[]).verify();
}

/// Where a function has a kink, the subgradient is PyTorch's (2.7.1, `torch.autograd.grad` of the
/// sum).
#[test]
fn kinks_are_as_in_pytorch() {
    let run = |op: &'static str, inputs: &[(&str, Tensor)], constants: &[(&'static str, Constant)]| {
        let case = case(op, inputs, constants);
        let program = case.program();
        let wrt: Vec<&str> = inputs.iter().map(|(n, _)| *n).collect();
        let backward = vjp(&program, "main", &["result0"], &wrt, &VjpOptions::default()).unwrap();
        let loaded = Loaded::new(&emulator(Numerics::Exact), &backward);
        let forward = Loaded::new(&emulator(Numerics::Exact), &program).run(&case.inputs);
        let ones = Tensor::new(Fp32, &forward[0].1.shape, vec![1.0; forward[0].1.values.len()]);
        let mut values = case.inputs.clone();
        values.push(("d_result0".into(), ones));
        loaded.run(&values).into_iter().map(|(_, t)| t.values).collect::<Vec<_>>()
    };
    let x = Tensor::new(Fp32, &[4], vec![0.0, 1.0, 1.0, -1.0]);
    assert_eq!(run("relu", &[("x", x.clone())], &[]), [[0.0, 1.0, 1.0, 0.0]]);
    assert_eq!(run("abs", &[("x", x.clone())], &[]), [[0.0, 1.0, 1.0, -1.0]]);
    assert_eq!(run("reduce_max", &[("x", x.clone())], &[("axes", Constant::int32s(&[0]))]), [[0.0, 0.5, 0.5, 0.0]]);
    let bounds = [("alpha", Constant::fp32(-1.0)), ("beta", Constant::fp32(0.5))];
    assert_eq!(run("clip", &[("x", x.clone())], &bounds), [[1.0, 0.0, 0.0, 1.0]]);
    let y = Tensor::new(Fp32, &[4], vec![0.0, 1.0, 2.0, -2.0]);
    let both = run("maximum", &[("x", x.clone()), ("y", y)], &[]);
    assert_eq!(both, [[0.5, 0.5, 0.0, 1.0], [0.5, 0.5, 1.0, 0.0]]);
    let zeros = Tensor::new(Fp32, &[3], vec![0.0; 3]);
    assert_eq!(run("reduce_l2_norm", &[("x", zeros)], &[("axes", Constant::int32s(&[0]))]), [[0.0; 3]]);
    let factors = Tensor::new(Fp32, &[3], vec![0.0, 2.0, 3.0]);
    assert_eq!(run("reduce_prod", &[("x", factors)], &[("axes", Constant::int32s(&[0]))]), [[6.0, 0.0, 0.0]]);
    let flat = Tensor::new(Fp32, &[1, 1, 4], vec![0.0, 2.0, 2.0, 2.0]);
    let window = [("kernel_sizes", Constant::int32s(&[3])), ("pad_type", Constant::string("valid"))];
    assert_eq!(run("max_pool", &[("x", flat)], &window), [[0.0, 2.0, 0.0, 0.0]]);
}

#[test]
fn reductions() {
    for axes in [&[0][..], &[1], &[-1, 0], &[0, 1, 2]] {
        for keep in [true, false] {
            let constants = [("axes", Constant::int32s(axes)), ("keep_dims", Constant::bool(keep))];
            let x = spaced(&[2, 3, 4], 0.3, 2.5, 6);
            for op in [
                "reduce_sum",
                "reduce_mean",
                "reduce_max",
                "reduce_min",
                "reduce_sum_square",
                "reduce_l1_norm",
                "reduce_l2_norm",
                "reduce_log_sum",
                "reduce_log_sum_exp",
            ] {
                case(op, &[("x", x.clone())], &constants).verify();
            }
            case("reduce_prod", &[("x", spaced(&[2, 3, 4], 0.7, 1.3, 6))], &constants).verify();
        }
    }
    case("reduce_sum", &[("x", random(&[2, 3], 1))], &[]).verify();
}

#[test]
fn products() {
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[3, 4], &[4, 5]),
        (&[2, 1, 3, 4], &[1, 1, 4, 5]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[2, 3, 4], &[4, 5]),
        (&[2, 1, 3, 4], &[3, 4, 2]),
        (&[4], &[4, 5]),
        (&[2, 3, 4], &[4]),
        (&[4], &[4]),
    ];
    let swapped = |s: &[usize]| {
        let mut s = s.to_vec();
        let n = s.len();
        if n > 1 {
            s.swap(n - 1, n - 2);
        }
        s
    };
    for (x, y) in shapes {
        for bits in 0..4 {
            let (tx, ty) = (bits & 1 != 0, bits & 2 != 0);
            let x = if tx { swapped(x) } else { x.to_vec() };
            let y = if ty { swapped(y) } else { y.to_vec() };
            let flags = [("transpose_x", Constant::bool(tx)), ("transpose_y", Constant::bool(ty))];
            case("matmul", &[("x", random(&x, 1)), ("y", random(&y, 2))], &flags).verify();
        }
    }
    for shape in [&[4][..], &[3, 4], &[2, 3, 4]] {
        let weights = [("weight", random(&[5, 4], 3)), ("bias", random(&[5], 4))];
        case("linear", &[("x", random(shape, 1))], &[]).weights(&weights).verify();
    }
    let heads = |n, e, seed| random(&[1, 2, n, e], seed);
    let plain = [("query", heads(3, 4, 1)), ("key", heads(5, 4, 2)), ("value", heads(5, 6, 3))];
    case("scaled_dot_product_attention", &plain, &[]).verify();
    let mut masked = plain.to_vec();
    masked.push(("attn_mask", random(&[3, 5], 4)));
    case("scaled_dot_product_attention", &masked, &[]).verify();
    let seen = (0..15).map(|i| f64::from(u8::from(i % 5 <= i / 5 + 1))).collect();
    masked[3] = ("attn_mask", Tensor::new(Bool, &[3, 5], seen));
    case("scaled_dot_product_attention", &masked, &[]).verify();
}

/// Options of a convolution or pool, one number for each spatial axis (two for `pad`).
fn window(strides: &[i32], pad: Option<&[i32]>, rest: &[(&'static str, Constant)]) -> Vec<(&'static str, Constant)> {
    let mut options = vec![("strides", Constant::int32s(strides))];
    options.push(("pad_type", Constant::string(if pad.is_some() { "custom" } else { "valid" })));
    options.extend(pad.map(|p| ("pad", Constant::int32s(p))));
    options.extend_from_slice(rest);
    options
}

/// Extents of x and weight, and the other arguments.
type ConvCase = (Vec<usize>, Vec<usize>, Vec<(&'static str, Constant)>);
/// Extents of x, the kernel, and the other arguments.
type PoolCase<'a> = (Vec<usize>, &'a [i32], Vec<(&'static str, Constant)>);

pub fn conv_cases() -> Vec<ConvCase> {
    let groups = |n| ("groups", Constant::int32(n));
    let same = |mode| vec![("strides", Constant::int32s(&[2, 2])), ("pad_type", Constant::string(mode))];
    vec![
        (vec![2, 3, 2, 3], vec![4, 3, 1, 1], window(&[1, 1], None, &[])),
        (vec![1, 2, 5, 4], vec![3, 2, 3, 2], window(&[1, 1], None, &[])),
        (vec![2, 4, 5, 6], vec![4, 2, 3, 2], window(&[2, 1], Some(&[1, 0, 2, 1]), &[groups(2)])),
        (vec![1, 4, 5, 5], vec![4, 1, 3, 3], window(&[1, 1], Some(&[1, 1, 1, 1]), &[groups(4)])),
        (vec![1, 2, 6, 5], vec![3, 2, 2, 2], window(&[3, 2], None, &[])),
        (vec![2, 3, 9], vec![2, 3, 3], window(&[2], Some(&[2, 1]), &[])),
        (vec![1, 2, 5, 6], vec![3, 2, 3, 3], same("same")),
        (vec![1, 2, 5, 6], vec![3, 2, 3, 3], same("same_lower")),
        (vec![1, 2, 3, 4, 3], vec![2, 2, 2, 2, 2], window(&[1, 2, 1], None, &[])),
    ]
}

#[test]
fn convolutions() {
    for (xs, ws, options) in conv_cases() {
        let (x, weight) = (random(&xs, 1), random(&ws, 2));
        let mut dilated = options.clone();
        let steps: Vec<i32> = (2..xs.len()).map(|i| if i == 2 { 2 } else { 1 }).collect();
        dilated.push(("dilations", Constant::int32s(&steps)));
        let bias = ("bias", random(&ws[..1], 3));
        case("conv", &[("x", x.clone()), ("weight", weight.clone())], &options)
            .weights(std::slice::from_ref(&bias))
            .verify();
        if options.iter().all(|(n, _)| *n != "pad_type") || xs[2] > 2 * (ws[2] - 1) {
            let fixed = case("conv", &[("x", x.clone())], &dilated).weights(&[("weight", weight.clone()), bias]);
            fixed.clone().verify();
        }
        let old = !options.iter().any(|(_, c)| c.as_str() == Some("same_lower"));
        if old {
            case("conv", &[("x", x), ("weight", weight)], &options).opset("ios15").verify();
        }
    }
}

#[test]
fn normalizations() {
    let x = random(&[2, 3, 4, 2], 1);
    let epsilon = ("epsilon", Constant::fp32(0.1));
    for axes in [&[-1i32][..], &[1, 3], &[0, 1, 2, 3]] {
        let extents: Vec<usize> = axes.iter().map(|a| x.shape[a.rem_euclid(4) as usize]).collect();
        let weights = [("gamma", random(&extents, 2)), ("beta", random(&extents, 3))];
        let constants = [("axes", Constant::int32s(axes)), epsilon.clone()];
        case("layer_norm", &[("x", x.clone())], &constants).weights(&weights).verify();
        case("layer_norm", &[("x", x.clone())], &constants).verify();
    }
    let vector = |seed| random(&[3], seed);
    let (gamma, beta) = (("gamma", vector(2)), ("beta", vector(3)));
    let constants = [epsilon.clone()];
    case("instance_norm", &[("x", x.clone())], &constants).weights(&[gamma.clone(), beta.clone()]).verify();
    let variance = ("variance", spaced(&[3], 0.5, 1.5, 4));
    let weights = [("mean", vector(5)), variance, gamma, beta];
    case("batch_norm", &[("x", x.clone())], &constants).weights(&weights).verify();
    case("batch_norm", &[("x", x.clone())], &constants).weights(&weights[..2]).verify();
    case("l2_norm", &[("x", x)], &constants).verify();
}

#[test]
fn arrangements() {
    let x = random(&[2, 3, 4], 1);
    let ints = |name, values: &[i32]| (name, Constant::int32s(values));
    let int = |name, value| (name, Constant::int32(value));
    let one = |op, constants: &[(&'static str, Constant)]| case(op, &[("x", x.clone())], constants).verify();
    one("reshape", &[ints("shape", &[4, -1])]);
    one("transpose", &[ints("perm", &[2, 0, 1])]);
    one("expand_dims", &[ints("axes", &[0, 2])]);
    one("reverse", &[ints("axes", &[0, 2])]);
    one("reverse", &[]);
    one("tile", &[ints("reps", &[2, 1, 3])]);
    one("split", &[int("num_splits", 3), int("axis", 1)]);
    one("split", &[ints("split_sizes", &[1, 3]), int("axis", -1)]);
    case("squeeze", &[("x", random(&[1, 3, 1], 1))], &[ints("axes", &[0])]).verify();
    case("squeeze", &[("x", random(&[1, 1], 1))], &[]).verify();
    let parts = [("values0", random(&[2, 3], 1)), ("values1", random(&[2, 3], 2)), ("values2", random(&[2, 3], 3))];
    for axis in [0, 1] {
        case("stack", &parts, &[int("axis", axis)]).verify();
        case("concat", &parts, &[int("axis", axis), ("interleave", Constant::bool(false))]).verify();
        case("concat", &parts, &[int("axis", axis), ("interleave", Constant::bool(true))]).verify();
    }
    for mode in ["constant", "reflect", "replicate"] {
        let mode = ("mode", Constant::string(mode));
        one("pad", &[ints("pad", &[2, 1, 0, 3]), mode.clone()]);
        one("pad", &[ints("pad", &[1, 2]), mode]);
    }
    one("pad", &[ints("pad", &[1, 0, 0, 2, 1, 1]), ("constant_val", Constant::fp32(0.5))]);
    one("slice_by_size", &[ints("begin", &[0, 1, -2]), ints("size", &[1, 2, -1])]);
    one("slice_by_index", &[ints("begin", &[0, 1, 0]), ints("end", &[2, 3, 4]), ints("stride", &[1, 1, 2])]);
    one("slice_by_index", &[ints("begin", &[1, -1, 3]), ints("end", &[2, -4, 0]), ints("stride", &[1, -1, -2])]);
    let masks = |name, v: [u8; 3]| (name, Constant::raw(Bool, &[3], &v));
    one(
        "slice_by_index",
        &[
            ints("begin", &[5, 1, 1]),
            ints("end", &[0, 2, 3]),
            ints("stride", &[-1, 1, 1]),
            masks("begin_mask", [1, 0, 0]),
            masks("end_mask", [1, 0, 1]),
            masks("squeeze_mask", [0, 1, 0]),
        ],
    );
}

#[test]
fn pools() {
    let flag = |name, on| (name, Constant::bool(on));
    let text = |mode| ("pad_type", Constant::string(mode));
    let cases: Vec<PoolCase<'_>> = vec![
        (vec![2, 2, 5, 4], &[2, 2], window(&[2, 2], None, &[])),
        (vec![1, 2, 5, 5], &[3, 2], window(&[1, 2], Some(&[1, 1, 0, 1]), &[])),
        (vec![1, 2, 5, 6], &[3, 3], vec![("strides", Constant::int32s(&[2, 2])), text("same")]),
        (vec![1, 2, 5, 6], &[2, 2], window(&[2, 2], None, &[flag("ceil_mode", true)])),
        (vec![1, 3, 7], &[3], vec![text("valid")]),
        (vec![1, 2, 3, 4, 3], &[2, 2, 2], window(&[1, 2, 1], None, &[])),
    ];
    for (shape, kernel, options) in cases {
        let mut options = options.clone();
        options.push(("kernel_sizes", Constant::int32s(kernel)));
        let x = spaced(&shape, -3.0, 3.0, 2);
        case("max_pool", &[("x", x.clone())], &options).verify();
        // coremltools 9.0: at most two spatial axes.
        if shape.len() < 5 {
            case("l2_pool", &[("x", x.clone())], &options).verify();
        }
        for exclude in [true, false] {
            let mut options = options.clone();
            options.push(flag("exclude_padding_from_average", exclude));
            case("avg_pool", &[("x", x.clone())], &options).verify();
        }
    }
}

/// Numbers that other programs make alike: `sin(0.37 i + seed)`.
pub fn wave(shape: &[usize], seed: f64) -> Tensor {
    let count = shape.iter().product::<usize>();
    Tensor::new(Fp32, shape, (0..count).map(|i| f64::from((0.37 * i as f64 + seed).sin() as f32)).collect())
}

/// A gradient in four numbers: weighted by cosines, by size, its first and its last value.
fn digest(t: &Tensor) -> [f64; 4] {
    let cosines = t.values.iter().enumerate().map(|(i, v)| v * (0.11 * i as f64).cos()).sum();
    [cosines, t.values.iter().map(|v| v.abs()).sum(), t.values[0], t.values[t.values.len() - 1]]
}

/// Digests of PyTorch 2.7.1's gradients in fp64. Ours are sums of some hundred terms in fp32.
fn as_in_pytorch(label: &str, found: &[(String, Tensor)], wanted: &[[f64; 4]]) {
    assert_eq!(found.len(), wanted.len());
    for ((name, gradient), wanted) in found.iter().zip(wanted) {
        close(&digest(gradient), wanted, 1e-4, 1e-5).unwrap_or_else(|e| panic!("{label}: d_{name}: {e}"));
    }
}

pub fn op_as_in_pytorch(case: &Case, wanted: &[[f64; 4]]) {
    let wrt: Vec<String> =
        case.inputs.iter().chain(&case.weights).filter(|(_, t)| t.dtype == Fp32).map(|(n, _)| n.clone()).collect();
    as_in_pytorch(case.op, &gradients(&case.program(), &case.inputs, &wrt), wanted);
}

#[test]
fn ops_as_in_pytorch() {
    let text = |name, value| (name, Constant::string(value));
    let ints = |name, values: &[i32]| (name, Constant::int32s(values));
    let int = |name, value| (name, Constant::int32(value));
    let options = [
        ints("strides", &[2, 1]),
        text("pad_type", "custom"),
        ints("pad", &[1, 1, 2, 2]),
        ints("dilations", &[1, 2]),
        int("groups", 2),
    ];
    let weights = [("weight", wave(&[6, 2, 3, 2], 2.0)), ("bias", wave(&[6], 3.0))];
    op_as_in_pytorch(
        &case("conv", &[("x", wave(&[2, 4, 7, 6], 1.0))], &options).weights(&weights),
        &[
            [3.724312, 83.420293, 0.203580, -0.021885],
            [3.945311, 116.612360, 2.687417, -3.101311],
            [92.229718, 97.622892, 17.809081, 17.945570],
        ],
    );
    let weights = [("gamma", wave(&[5], 2.0)), ("beta", wave(&[5], 3.0))];
    op_as_in_pytorch(
        &case("layer_norm", &[("x", wave(&[3, 5], 1.0))], &[ints("axes", &[-1])]).weights(&weights),
        &[
            [0.374518, 17.833432, 3.645250, 0.614921],
            [2.165712, 2.244344, 0.259924, 0.609520],
            [4.025869, 8.982220, 3.093840, 0.260942],
        ],
    );
    let inputs = [
        ("query", wave(&[1, 2, 3, 4], 1.0)),
        ("key", wave(&[1, 2, 5, 4], 2.0)),
        ("value", wave(&[1, 2, 5, 4], 3.0)),
        ("attn_mask", wave(&[3, 5], 4.0)),
    ];
    op_as_in_pytorch(
        &case("scaled_dot_product_attention", &inputs, &[]),
        &[
            [-0.279202, 2.960146, 0.013415, 0.251565],
            [-0.032217, 3.244964, -0.049093, -0.018670],
            [0.309318, 11.879414, 0.175893, 0.222584],
            [-0.188163, 3.329894, -0.227749, -0.064442],
        ],
    );
    op_as_in_pytorch(
        &case("softmax", &[("x", wave(&[3, 5], 1.0))], &[int("axis", 1)]),
        &[[0.121751, 1.815368, 0.118329, 0.043746]],
    );
    let mut options = vec![
        ints("kernel_sizes", &[3, 2]),
        ints("strides", &[2, 1]),
        text("pad_type", "custom"),
        ints("pad", &[1, 1, 1, 1]),
    ];
    let x = [("x", wave(&[1, 2, 6, 5], 1.0))];
    op_as_in_pytorch(&case("max_pool", &x, &options), &[[3.683130, 20.185902, 0.894218, 0.0]]);
    options.push(("exclude_padding_from_average", Constant::bool(true)));
    op_as_in_pytorch(&case("avg_pool", &x, &options), &[[2.571839, 17.935789, 0.736933, 0.523352]]);
}

/// `linear → gelu → linear`, weights constant.
fn mlp() -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let raw = |t: Tensor| Constant::raw(t.dtype, &t.shape, &t.to_bytes());
    let x = b.input("x", Type::tensor(Fp32, &[2, 4])).unwrap();
    let w1 = b.constant("w1", raw(wave(&[6, 4], 2.0))).unwrap();
    let b1 = b.constant("b1", raw(wave(&[6], 3.0))).unwrap();
    let w2 = b.constant("w2", raw(wave(&[3, 6], 4.0))).unwrap();
    let h = b.linear("h", x, w1, Some(b1)).unwrap();
    let g = b.op("gelu", "g", [("x", h.into()), ("mode", Constant::string("EXACT").into())]).unwrap();
    let y = b.linear("y", g, w2, None).unwrap();
    b.finish(&[("y", y)]).unwrap()
}

const MLP: [[f64; 4]; 4] = [
    [2.081746, 3.430533, -0.132242, -0.459030],
    [-2.343637, 6.197701, 0.306293, -0.000155],
    [1.715406, 2.083802, 0.768496, -0.049374],
    [7.818498, 11.369440, 1.237877, -0.175119],
];

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

#[test]
fn an_mlp_as_in_pytorch() {
    let mut inputs = vec![("x".to_string(), wave(&[2, 4], 1.0))];
    let wrt = named(&["x", "w1", "b1", "w2"]);
    as_in_pytorch("constant weights", &gradients(&mlp(), &inputs, &wrt), &MLP);
    let mut lifted = mlp();
    for (name, tensor) in [("w1", wave(&[6, 4], 2.0)), ("w2", wave(&[3, 6], 4.0)), ("b1", wave(&[6], 3.0))] {
        lifted = lift_constant(&lifted, "main", name).unwrap();
        inputs.push((name.to_string(), tensor));
    }
    let main = &lifted.functions[0];
    assert!(check(main, &lifted.weights).is_empty());
    let names: Vec<&str> = main.inputs.iter().map(|v| main.value(*v).name.as_str()).collect();
    assert_eq!(names, ["x", "w1", "w2", "b1"]);
    as_in_pytorch("lifted weights", &gradients(&lifted, &inputs, &wrt), &MLP);
}

/// RMSNorm, one head of attention, output projection, residual; weights are inputs.
#[test]
fn an_attention_block_as_in_pytorch() {
    let mut b = Builder::new("main", Opset::IOS18);
    let shapes: [(&str, &[usize]); 6] =
        [("x", &[3, 4]), ("wq", &[4, 4]), ("wk", &[4, 4]), ("wv", &[4, 4]), ("wo", &[4, 4]), ("g", &[4])];
    let ids: Vec<ValueId> = shapes.iter().map(|(n, s)| b.input(n, Type::tensor(Fp32, s)).unwrap()).collect();
    let build = |b: &mut Builder| -> Result<ValueId, ferrane_mil::MilError> {
        let squares = b.mul("squares", ids[0], ids[0])?;
        let mean = b.reduce_mean("mean", squares, &[-1], ReducedDims::Keep)?;
        let root = b.op("rsqrt", "root", [("x", mean.into()), ("epsilon", Constant::fp32(1e-5).into())])?;
        let unit = b.mul("unit", ids[0], root)?;
        let normed = b.mul("normed", unit, ids[5])?;
        let q = b.matmul("q", normed, ids[1], Transpose::Y)?;
        let k = b.matmul("k", normed, ids[2], Transpose::Y)?;
        let v = b.matmul("v", normed, ids[3], Transpose::Y)?;
        let scores = b.matmul("scores", q, k, Transpose::Y)?;
        let scores = b.scale("scaled", scores, 0.5)?;
        let probs = b.softmax("probs", scores, -1)?;
        let mixed = b.matmul("mixed", probs, v, Transpose::Neither)?;
        let out = b.matmul("out", mixed, ids[4], Transpose::Y)?;
        b.add("y", ids[0], out)
    };
    let y = build(&mut b).unwrap();
    let program = b.finish(&[("y", y)]).unwrap();
    let inputs: Vec<(String, Tensor)> =
        shapes.iter().enumerate().map(|(i, (n, s))| (n.to_string(), wave(s, i as f64 + 1.0))).collect();
    let wrt = named(&["x", "wq", "wk", "wv", "wo", "g"]);
    let wanted = [
        [3.487172, 6.301233, -0.213361, 0.794573],
        [-0.747080, 3.871599, 0.254300, 0.393561],
        [-0.715536, 1.754783, 0.010166, 0.524156],
        [-5.675841, 8.524636, -0.384124, -0.198716],
        [0.634475, 9.730067, -1.105583, 0.013886],
        [6.873584, 8.227826, -0.565084, 2.504398],
    ];
    as_in_pytorch("block", &gradients(&program, &inputs, &wrt), &wanted);
}

fn input_names(program: &Program) -> Vec<&str> {
    let main = &program.functions[0];
    main.inputs.iter().map(|v| main.value(*v).name.as_str()).collect()
}

#[test]
fn taps_replace_what_is_computed_again() {
    let program = mlp();
    let options = VjpOptions { taps: named(&["h", "g"]), outputs: false, prune_inputs: true };
    let backward = vjp(&program, "main", &["y"], &["x", "w2"], &options).unwrap();
    assert_eq!(input_names(&backward), ["h", "g", "d_y"]);
    assert!(backward.functions[0].ops.iter().all(|op| op.name != "linear" && op.name != "gelu"));
    let x = vec![("x".to_string(), wave(&[2, 4], 1.0))];
    let whole = VjpOptions { outputs: true, ..VjpOptions::default() };
    // The forward's intermediate values, by way of a backward program that returns them.
    let all = vjp(&program, "main", &["h", "g", "y"], &["x"], &whole).unwrap();
    let zeros =
        |name: &str, shape: &[usize]| (name.to_string(), Tensor::new(Fp32, shape, vec![0.0; shape.iter().product()]));
    let mut given = x.clone();
    given.extend([zeros("d_h", &[2, 6]), zeros("d_g", &[2, 6]), zeros("d_y", &[2, 3])]);
    let values = Loaded::new(&emulator(Numerics::Exact), &all).run(&given);
    assert_eq!(values.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["h", "g", "y", "d_x"]);
    assert!(values[3].1.values.iter().all(|v| *v == 0.0));
    let mut given: Vec<(String, Tensor)> = values[..2].to_vec();
    given.push(("d_y".into(), cotangent(&values[2].1, 0)));
    let found = Loaded::new(&emulator(Numerics::Exact), &backward).run(&given);
    as_in_pytorch("taps", &found, &[MLP[0], MLP[3]]);
}

#[test]
fn an_input_that_no_output_depends_on_has_zeros() {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp32, &[3])).unwrap();
    let z = b.input("z", Type::tensor(Fp16, &[2, 2])).unwrap();
    // `round` passes no cotangent.
    let y = b.op("round", "y", [("x", x.into())]).unwrap();
    let w = b.add("w", z, z).unwrap();
    let program = b.finish(&[("y", y), ("w", w)]).unwrap();
    let inputs = [("x".to_string(), random(&[3], 1)), ("z".to_string(), Tensor::random(Fp16, &[2, 2], 2))];
    let backward = vjp(&program, "main", &["y"], &["x", "z"], &VjpOptions::default()).unwrap();
    let mut given = inputs.to_vec();
    given.push(("d_y".into(), random(&[3], 3)));
    for (_, t) in Loaded::new(&emulator(Numerics::Exact), &backward).run(&given) {
        assert!(t.values.iter().all(|v| *v == 0.0));
    }
}

#[test]
fn refusals_name_the_op_and_the_reason() {
    let program = mlp();
    let options = VjpOptions::default();
    let message = |e: Result<Program, GradError>| e.expect_err("refused").to_string();
    assert_eq!(message(vjp(&program, "side", &["y"], &["x"], &options)), "no function `side`");
    let unknown = message(vjp(&program, "main", &["z"], &["x"], &options));
    assert_eq!(unknown, "value `z`: function `main` has none, did you mean `x`?");
    assert_eq!(message(vjp(&program, "main", &["y"], &["x", "x"], &options)), "value `x`: is chosen twice");
    let text = message(vjp(&program, "main", &["y"], &["g_mode"], &options));
    assert_eq!(text, "value `g_mode`: is not a tensor of fp16 or fp32 with known extents, but string");
    assert_eq!(message(lift_constant(&program, "main", "x")), "value `x`: is not a `const` of the body");
    let constant = message(lift_constant(&program, "main", "g_mode"));
    assert_eq!(constant, "op `gelu`: argument `mode` must be a compile-time constant");
    assert_eq!(differentiable("matmul"), Support::Differentiable);
    assert!(matches!(differentiable("round"), Support::Zero(_)));
    assert!(matches!(differentiable("while_loop"), Support::No(_)));
    assert!(matches!(differentiable("no_such_op"), Support::No(_)));
}

#[test]
fn half_precision_programs_have_half_precision_gradients() {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(Fp16, &[2, 3])).unwrap();
    let wide = b.cast("wide", x, Fp32).unwrap();
    let y = b.exp("y", wide).unwrap();
    let s = b.silu("s", x).unwrap();
    let program = b.finish(&[("y", y), ("s", s)]).unwrap();
    let backward = vjp(&program, "main", &["y", "s"], &["x"], &VjpOptions::default()).unwrap();
    let x = Tensor::random(Fp16, &[2, 3], 1);
    let ones = |dtype| Tensor::new(dtype, &[2, 3], vec![1.0; 6]);
    let given = [("x".to_string(), x.clone()), ("d_y".into(), ones(Fp32)), ("d_s".into(), ones(Fp16))];
    let wanted: Vec<f64> = x
        .values
        .iter()
        .map(|v| {
            let s = 1.0 / (1.0 + (-v).exp());
            v.exp() + s * (1.0 + v * (1.0 - s))
        })
        .collect();
    for numerics in crate::harness::BOTH {
        let found = Loaded::new(&emulator(numerics), &backward).run(&given);
        assert_eq!(found[0].1.dtype, Fp16);
        // Half a dozen roundings of 5e-4 each.
        close(&found[0].1.values, &wanted, 1e-3, 3e-3).unwrap();
    }
}

/// Each branch is differentiated under the predicate; a value that only one branch uses gets zeros
/// from the other.
#[test]
fn branches() {
    let text = r#"program(1.3)
{
    func main<ios18>(bool p, tensor<fp32, [3]> x, tensor<fp32, [3]> w) {
        tensor<fp32, [3]> s = mul(x = x, y = x)[name = string("s")];
        tensor<fp32, [3]> y = cond(pred = p)[name = string("y")] () {
            tensor<fp32, [3]> a = mul(x = s, y = w)[name = string("a")];
        } -> (a) () {
            tensor<fp32, [3]> b = exp(x = s)[name = string("b")];
        } -> (b);
        tensor<fp32, [3]> z = add(x = y, y = s)[name = string("z")];
    } -> (z);
}
"#;
    let program = match parse(text, &ferrane_mil::Weights::new()) {
        Ok(program) => program,
        Err(e) => panic!("{e:?}"),
    };
    let backward = vjp(&program, "main", &["z"], &["x", "w"], &VjpOptions::default()).unwrap();
    assert!(check(&backward.functions[0], &backward.weights).is_empty(), "{}", print(&backward));
    let printed = print(&backward);
    assert_eq!(print(&parse(&printed, &backward.weights).unwrap()), printed);
    let (x, w, dz) = (random(&[3], 1), random(&[3], 2), random(&[3], 3));
    for taken in [true, false] {
        let p = Tensor::new(Bool, &[], vec![f64::from(u8::from(taken))]);
        let given = [("p".into(), p), ("x".into(), x.clone()), ("w".into(), w.clone()), ("d_z".into(), dz.clone())];
        let found = Loaded::new(&emulator(Numerics::Exact), &backward).run(&given);
        let ds = |i: usize| if taken { w.values[i] } else { (x.values[i] * x.values[i]).exp() } + 1.0;
        let dx: Vec<f64> = (0..3).map(|i| dz.values[i] * ds(i) * 2.0 * x.values[i]).collect();
        let dw: Vec<f64> = (0..3).map(|i| if taken { dz.values[i] * x.values[i] * x.values[i] } else { 0.0 }).collect();
        // A few roundings in fp32.
        close(&found[0].1.values, &dx, 1e-6, 1e-6).unwrap();
        close(&found[1].1.values, &dw, 1e-6, 1e-6).unwrap();
    }
}
