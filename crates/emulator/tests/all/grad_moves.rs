//! Gradients of the ops that move, gather, resize and act per channel, as `grad` has them for the
//! others.

use ferrane_mil::{Constant, DataType};

use crate::grad::{conv_cases, op_as_in_pytorch, wave};
use crate::grad_case::{case, random, spaced};
use crate::harness::Tensor;

use DataType::Int32;

fn integers(shape: &[usize], values: &[i32]) -> Tensor {
    Tensor::new(Int32, shape, values.iter().map(|&v| f64::from(v)).collect())
}

#[test]
fn transposed_convolutions() {
    for (xs, ws, options) in conv_cases() {
        // The weight's axes have changed places: it comes from the short side.
        let groups = options.iter().find(|(n, _)| *n == "groups").and_then(|(_, c)| c.as_int()).unwrap_or(1) as usize;
        let mut weight = vec![xs[1], ws[0] / groups];
        weight.extend_from_slice(&ws[2..]);
        if options.iter().any(|(_, c)| c.as_str() == Some("same_lower")) {
            // `conv_transpose` has no such padding.
            continue;
        }
        let (x, weight) = (random(&xs, 1), random(&weight, 2));
        let bias = ("bias", random(&ws[..1], 3));
        case("conv_transpose", &[("x", x.clone()), ("weight", weight.clone())], &options)
            .weights(std::slice::from_ref(&bias))
            .verify();
        let weights = [("weight", weight), bias];
        case("conv_transpose", &[("x", x)], &options).weights(&weights).opset("ios15").verify();
    }
    let options = [
        ("strides", Constant::int32s(&[2, 1])),
        ("pad_type", Constant::string("custom")),
        ("pad", Constant::int32s(&[1, 1, 0, 0])),
        ("groups", Constant::int32(2)),
    ];
    let inputs = [("x", wave(&[2, 4, 3, 4], 1.0)), ("weight", wave(&[4, 3, 3, 2], 2.0))];
    op_as_in_pytorch(
        &case("conv_transpose", &inputs, &options),
        &[[15.069338, 258.230839, -3.237791, -0.930788], [-23.570227, 163.516363, 3.004123, 2.912278]],
    );
}

#[test]
fn gathers_and_scatters() {
    let int = |name, value| (name, Constant::int32(value));
    let text = |name, value| (name, Constant::string(value));
    let x = random(&[2, 3, 4], 1);
    for axis in 0..3 {
        let ix = integers(&[2, 2], &[1, 0, 1, -1]);
        case("gather", &[("x", x.clone()), ("indices", ix)], &[int("axis", axis)]).verify();
    }
    case("gather", &[("x", x.clone()), ("indices", integers(&[], &[1]))], &[int("axis", 1)]).verify();
    for axis in [1, 2] {
        let ix = integers(&[2, 3], &[0, 2, 0, 1, -1, 2]);
        case("gather", &[("x", x.clone()), ("indices", ix)], &[int("axis", axis), int("batch_dims", 1)]).verify();
    }
    let ix = integers(&[2, 2, 4], &[0, 2, 1, 0, 1, 1, 0, 2, 2, 2, 2, 2, 0, 1, 0, 1]);
    case("gather_along_axis", &[("x", x.clone()), ("indices", ix.clone())], &[int("axis", 1)]).verify();
    let nd = integers(&[3, 2], &[0, 2, 1, 0, 0, 2]);
    case("gather_nd", &[("x", x.clone()), ("indices", nd)], &[]).verify();
    let nd = integers(&[2, 2, 1], &[2, 0, 1, 1]);
    case("gather_nd", &[("x", x.clone()), ("indices", nd)], &[int("batch_dims", 1)]).verify();
    op_as_in_pytorch(
        &case("gather", &[("x", wave(&[5, 3], 1.0)), ("indices", integers(&[4], &[4, 0, 4, 2]))], &[int("axis", 0)]),
        &[[2.230244, 7.689695, -0.743691, -0.652298]],
    );
    // Distinct places: which of two updates of one place stays is not defined.
    for mode in ["add", "sub", "update"] {
        let mode = text("mode", mode);
        let data = ("data", x.clone());
        let inputs = [data.clone(), ("indices", integers(&[2], &[2, 0])), ("updates", random(&[2, 2, 4], 2))];
        case("scatter", &inputs, &[int("axis", 1), mode.clone()]).verify();
        let ix = integers(&[2, 1, 4], &[0, 2, 1, 0, 1, 1, 0, 2]);
        let inputs = [data.clone(), ("indices", ix), ("updates", random(&[2, 1, 4], 2))];
        case("scatter_along_axis", &inputs, &[int("axis", 1), mode.clone()]).verify();
        let inputs = [data, ("indices", integers(&[2, 2], &[0, 2, 1, 0])), ("updates", random(&[2, 4], 2))];
        case("scatter_nd", &inputs, &[mode]).verify();
    }
    let distinct = spaced(&[3, 5], -2.0, 2.0, 7);
    for ascending in [true, false] {
        let constants = [int("k", 2), int("axis", 1), ("ascending", Constant::bool(ascending))];
        case("topk", &[("x", distinct.clone())], &constants).verify();
    }
}

#[test]
fn spaces_and_sums() {
    let ints = |name, values: &[i32]| (name, Constant::int32s(values));
    let int = |name, value| (name, Constant::int32(value));
    let deep = [("x", random(&[2, 8, 2, 3], 1))];
    let wide = [("x", random(&[2, 2, 4, 6], 1))];
    case("depth_to_space", &deep, &[int("block_size", 2)]).verify();
    case("space_to_depth", &wide, &[int("block_size", 2)]).verify();
    case("pixel_shuffle", &deep, &[int("upscale_factor", 2)]).verify();
    let two = Constant::raw(DataType::UInt32, &[], &2u32.to_le_bytes());
    case("pixel_unshuffle", &wide, &[("downscale_factor", two)]).verify();
    let edges = |name| (name, Constant::raw(Int32, &[2, 2], &[1i32, 1, 0, 2].map(i32::to_le_bytes).concat()));
    case("space_to_batch", &wide, &[ints("block_shape", &[2, 2]), edges("paddings")]).verify();
    case("batch_to_space", &[("x", random(&[8, 2, 3, 4], 1))], &[ints("block_shape", &[2, 2]), edges("crops")])
        .verify();
    let x = [("x", random(&[2, 3, 4], 1))];
    for bits in 0..4 {
        let flags = [("exclusive", Constant::bool(bits & 1 != 0)), ("reverse", Constant::bool(bits & 2 != 0))];
        case("cumsum", &x, &[int("axis", 1), flags[0].clone(), flags[1].clone()]).verify();
    }
    case("band_part", &x, &[int("lower", 1), int("upper", 0)]).verify();
    case("sliding_windows", &x, &[int("axis", 2), int("size", 2), int("stride", 1)]).verify();
    case("flatten2d", &x, &[int("axis", 1)]).verify();
    let lengths = ("lengths", integers(&[2], &[2, 3]));
    case("reverse_sequence", &[x[0].clone(), lengths], &[int("seq_axis", 1), int("batch_axis", 0)]).verify();
    let written = [x[0].clone(), ("update", random(&[1, 2, 2], 2))];
    let place = [ints("begin", &[1, 0, 1]), ints("end", &[2, 2, 4]), ints("stride", &[1, 1, 2])];
    case("slice_update", &written, &place).verify();
    let begin = ("begin", integers(&[3], &[1, 0, 1]));
    case("slice_by_size", &[x[0].clone(), begin.clone()], &[ints("size", &[1, 2, 3])]).verify();
    let four = [("x", random(&[2, 3, 5, 4], 1))];
    case("crop", &four, &[ints("crop_height", &[1, 2]), ints("crop_width", &[0, 1])]).verify();
}

#[test]
fn einsums() {
    let cases: [(&str, &[usize], &[usize]); 2] =
        [("nchw,nwhr->nchr", &[2, 2, 3, 4], &[2, 4, 3, 2]), ("chw,whr->chr", &[2, 3, 4], &[4, 3, 2])];
    for (equation, x, y) in cases {
        let values = [("values0", random(x, 1)), ("values1", random(y, 2))];
        case("einsum", &values, &[("equation", Constant::string(equation))]).verify();
    }
}

#[test]
fn channelwise_ops() {
    let x = [("x", spaced(&[2, 3, 2, 2], -2.0, 2.0, 3))];
    let alpha = ("alpha", spaced(&[3], 0.5, 1.5, 4));
    case("prelu", &x, &[]).weights(std::slice::from_ref(&alpha)).verify();
    case("softplus_parametric", &x, &[]).weights(&[alpha, ("beta", spaced(&[3], 0.5, 1.5, 5))]).verify();
    for size in [2, 3] {
        let constants = [
            ("size", Constant::int32(size)),
            ("alpha", Constant::fp32(0.5)),
            ("beta", Constant::fp32(0.75)),
            ("k", Constant::fp32(1.5)),
        ];
        case("local_response_norm", &[("x", random(&[2, 5, 2, 3], 1))], &constants).verify();
    }
}

#[test]
fn resizing() {
    let int = |name, value| (name, Constant::int32(value));
    let x = [("x", random(&[1, 2, 3, 4], 1))];
    let scales = [int("scale_factor_height", 2), int("scale_factor_width", 3)];
    case("upsample_nearest_neighbor", &x, &scales).verify();
    for align in [true, false] {
        let mut options = scales.to_vec();
        options.push(("align_corners", Constant::bool(align)));
        case("upsample_bilinear", &x, &options).verify();
    }
    let target = [int("target_size_height", 5), int("target_size_width", 2)];
    case("resize_nearest_neighbor", &x, &target).verify();
    for mode in ["STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS"] {
        let mut options = target.to_vec();
        options.push(("sampling_mode", Constant::string(mode)));
        case("resize_bilinear", &x, &options).verify();
        let two = Constant::raw(DataType::UInt32, &[], &2u32.to_le_bytes());
        let options =
            [("shape", Constant::int32s(&[5, 1])), ("resized_dims", two), ("sampling_mode", Constant::string(mode))];
        case("resize", &x, &options).verify();
    }
}
