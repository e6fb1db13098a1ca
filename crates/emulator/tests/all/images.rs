//! Images: neither their layout nor the groups that finish convolutions change a bit, and networks
//! agree with the oracle.

use std::collections::BTreeMap;

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Arg, Builder, Constant, Conv, DataType, MilError, ReducedDims, ValueId, Weights};
use proptest::prelude::*;

use crate::harness::{Tensor, bits, close, grid, program, run, steps};
use crate::interpret::{constant, text};

use DataType::{Fp16, Fp32};

type Values = Result<Vec<ValueId>, MilError>;

/// A layer over earlier values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Conv,
    Grouped,
    Depthwise,
    Pool,
    Unary,
    Binary,
    Constant,
    Concat,
    Slice,
    Split,
    Pad,
    Turn,
    Reverse,
    Mean,
    Select,
    Cast,
    Transposed,
    Pixels,
    Crop,
    Softmax,
}

/// A layer, the values that it reads (modulo what there is), and a number that holds its choices.
type Layer = (Kind, usize, usize, u64);

fn layer() -> impl Strategy<Value = Layer> {
    use Kind::*;
    let kinds = vec![
        Conv, Conv, Conv, Conv, Grouped, Depthwise, Depthwise, Pool, Pool, Unary, Unary, Binary, Binary, Binary,
        Binary, Constant, Constant, Concat, Concat, Slice, Split, Pad, Turn, Reverse, Mean, Select, Cast, Transposed,
        Transposed, Pixels, Pixels, Crop, Softmax,
    ];
    // Mostly of late values, so that networks are deep.
    let pick = || prop_oneof![Just(0usize), 0..2usize, 0..32usize];
    (prop::sample::select(kinds), pick(), pick(), any::<u64>())
}

/// Choices, digit by digit.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: usize) -> usize {
        let digit = self.0 % n as u64;
        self.0 /= n as u64;
        digit as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The largest value that is built.
const LARGEST: usize = 1 << 14;

fn ints(values: &[usize]) -> Constant {
    Constant::int32s(&values.iter().map(|&v| v as i32).collect::<Vec<_>>())
}

/// A constant of random values up to `scale`.
fn random(b: &mut Builder, name: &str, dtype: DataType, shape: &[usize], scale: f64) -> Result<ValueId, MilError> {
    let values = Tensor::random(dtype, shape, name.len() as u64).values.iter().map(|v| v * scale).collect();
    b.constant(name, Constant::raw(dtype, shape, &Tensor::new(dtype, shape, values).to_bytes()))
}

fn conv(b: &mut Builder, name: &str, kind: Kind, x: ValueId, choices: &mut Choices) -> Values {
    let (shape, dtype) = (b.shape(x)?, b.ty(x).dtype().unwrap_or(Fp32));
    let (channels, rank) = (shape[1], shape.len() - 2);
    let (groups, outputs) = match kind {
        Kind::Conv => (1, choices.of(&[channels, channels, 2 * channels, 1, 5, 16, 17, 40])),
        Kind::Grouped => {
            let groups = choices.of(&[2, 3, 4]);
            (groups, groups * choices.of(&[1, 2, 5, 16]))
        }
        _ => (channels, channels * choices.of(&[1, 1, 1, 2])),
    };
    let side = choices.of(&[1, 3, 3, 2, 5]);
    let even = choices.below(3) > 0;
    let mut filter = vec![outputs, channels / groups];
    filter.extend((0..rank).map(|_| if even { side } else { 1 + choices.below(3) }));
    let options = Conv {
        pad_type: choices.of(&["same", "same", "valid", "custom"]),
        strides: vec![choices.of(&[1, 1, 2]); rank],
        pad: (0..2 * rank).map(|_| choices.below(3) as i32).collect(),
        dilations: vec![choices.of(&[1, 1, 1, 2]); rank],
        groups: groups as i32,
    };
    let depth: usize = filter[1..].iter().product();
    let w = random(b, &format!("{name}_w"), dtype, &filter, 1.5 / (depth as f64).sqrt())?;
    let bias = match choices.below(2) {
        0 => None,
        _ => Some(random(b, &format!("{name}_b"), dtype, &[outputs], 1.0)?),
    };
    Ok(vec![b.conv(name, x, w, bias, &options)?])
}

fn transposed(b: &mut Builder, name: &str, x: ValueId, choices: &mut Choices) -> Values {
    let (shape, dtype) = (b.shape(x)?, b.ty(x).dtype().unwrap_or(Fp32));
    let (channels, rank) = (shape[1], shape.len() - 2);
    let groups = choices.of(&[1, 1, 1, 2, channels]);
    let each = choices.of(&[1, 2, 5, 16]);
    let filter: Vec<usize> =
        [channels, each].into_iter().chain((0..rank).map(|_| choices.of(&[1, 2, 3, 4, 5]))).collect();
    let depth: usize = filter[2..].iter().product::<usize>() * channels / groups;
    let w = random(b, &format!("{name}_w"), dtype, &filter, 1.5 / (depth as f64).sqrt())?;
    let strides: Vec<usize> = (0..rank).map(|_| choices.of(&[1, 2, 2, 3])).collect();
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("weight", w.into()),
        ("groups", Constant::int32(groups as i32).into()),
        ("pad_type", Constant::string(choices.of(&["valid", "same", "custom", "custom"])).into()),
        ("pad", ints(&(0..2 * rank).map(|_| choices.below(4)).collect::<Vec<_>>()).into()),
        ("dilations", ints(&vec![choices.of(&[1, 1, 1, 2]); rank]).into()),
        ("strides", ints(&strides).into()),
    ];
    if choices.below(2) == 1 {
        args.push(("bias", random(b, &format!("{name}_b"), dtype, &[each * groups], 1.0)?.into()));
    }
    b.ops("conv_transpose", name, args)
}

/// An exchange of channels and positions, or an enlargement.
fn pixels(b: &mut Builder, name: &str, x: ValueId, choices: &mut Choices) -> Values {
    let factor = Constant::int32(2);
    let (op, args): (&str, Vec<(&str, Arg)>) = match choices.below(5) {
        0 => ("pixel_shuffle", vec![("upscale_factor", factor.into())]),
        1 => (
            "pixel_unshuffle",
            vec![("downscale_factor", Constant::raw(DataType::UInt32, &[], &2u32.to_le_bytes()).into())],
        ),
        2 => ("depth_to_space", vec![("block_size", factor.into())]),
        3 => ("space_to_depth", vec![("block_size", factor.into())]),
        _ => {
            let [tall, wide] = [0, 1].map(|_| Constant::fp32(choices.of(&[1.0, 1.5, 2.0, 3.0])));
            (
                "upsample_nearest_neighbor",
                vec![("scale_factor_height", tall.into()), ("scale_factor_width", wide.into())],
            )
        }
    };
    b.ops(op, name, [vec![("x", x.into())], args].concat())
}

fn pool(b: &mut Builder, name: &str, x: ValueId, choices: &mut Choices) -> Values {
    let op = choices.of(&["max_pool", "avg_pool", "l2_pool"]);
    let rank = b.shape(x)?.len() - 2;
    let side = choices.of(&[2, 3]);
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("kernel_sizes", ints(&vec![side; rank]).into()),
        ("strides", ints(&vec![1 + choices.below(2); rank]).into()),
        ("pad_type", Constant::string(choices.of(&["same", "valid", "custom"])).into()),
        ("pad", ints(&vec![choices.below(2); 2 * rank]).into()),
    ];
    if op == "avg_pool" {
        args.push(("exclude_padding_from_average", Constant::bool(choices.below(2) == 1).into()));
    }
    b.ops(op, name, args)
}

/// A sum, a product and the like, broadcast. Products are bounded, so that nothing overflows.
fn binary(b: &mut Builder, name: &str, x: ValueId, y: ValueId, op: &str) -> Values {
    let value = b.op(op, name, [("x", x.into()), ("y", y.into())])?;
    Ok(if op == "mul" { vec![value, b.tanh(&format!("{name}_bound"), value)?] } else { vec![value] })
}

const BINARY: [&str; 5] = ["add", "sub", "mul", "maximum", "minimum"];

fn build(b: &mut Builder, name: &str, (kind, n): (Kind, u64), x: ValueId, y: ValueId) -> Values {
    let (shape, dtype) = (b.shape(x)?, b.ty(x).dtype().unwrap_or(Fp32));
    let rank = shape.len();
    let mut choices = Choices(n);
    let one = |value: ValueId| Ok(vec![value]);
    match kind {
        Kind::Conv | Kind::Grouped | Kind::Depthwise => conv(b, name, kind, x, &mut choices),
        Kind::Pool => pool(b, name, x, &mut choices),
        Kind::Unary => one(b.op(choices.of(&["relu", "sigmoid", "tanh", "silu", "abs"]), name, [("x", x.into())])?),
        Kind::Binary => binary(b, name, x, y, choices.of(&BINARY)),
        Kind::Constant => {
            // Any axes may be broadcast.
            let axes: Vec<usize> = shape.iter().map(|&n| if choices.below(2) == 1 { n } else { 1 }).collect();
            let value = random(b, &format!("{name}_c"), dtype, &axes, 1.0)?;
            binary(b, name, x, value, choices.of(&BINARY))
        }
        Kind::Concat => {
            let axis = choices.of(&[1, 1, 1, 0, 2, rank - 1]);
            let values = choices.of(&[&[x, y][..], &[y, x], &[x, x], &[x, y, x]]).to_vec();
            one(b.concat(name, &values, axis as i32)?)
        }
        Kind::Slice => {
            let axis = choices.of(&[1, 1, 0, 2, rank - 1]);
            let mut size = shape.clone();
            size[axis] = 1 + choices.below(shape[axis]);
            let mut begin = vec![0; rank];
            begin[axis] = choices.below(shape[axis] - size[axis] + 1) as i32;
            one(b.slice_by_size(name, x, &begin, &size.iter().map(|&n| n as i32).collect::<Vec<_>>())?)
        }
        Kind::Split => {
            let low = 1 + choices.below(shape[1].max(2) - 1);
            b.split(name, x, &[low as i32, shape[1] as i32 - low as i32], 1)
        }
        Kind::Pad => {
            // A reflection must not reach beyond its operand.
            let mirrors = shape[rank - 2..].iter().all(|&n| n > 2);
            let mode = choices.of(&["constant", "replicate", if mirrors { "reflect" } else { "constant" }]);
            let pad: Vec<usize> = (0..4).map(|_| choices.below(3)).collect();
            one(b.op(
                "pad",
                name,
                [("x", x.into()), ("pad", ints(&pad).into()), ("mode", Constant::string(mode).into())],
            )?)
        }
        Kind::Turn => {
            let mut perm: Vec<i32> = (0..rank as i32).collect();
            perm.swap(choices.of(&[1, 2, rank - 2]), rank - 1);
            one(b.transpose(name, x, &perm)?)
        }
        Kind::Reverse => {
            one(b.op("reverse", name, [("x", x.into()), ("axes", ints(&[choices.below(rank)]).into())])?)
        }
        Kind::Mean => one(b.reduce_mean(name, x, &(2..rank as i32).collect::<Vec<_>>(), ReducedDims::Keep)?),
        Kind::Select => {
            let larger = b.op("greater", &format!("{name}_larger"), [("x", x.into()), ("y", y.into())])?;
            one(b.select(name, larger, x, y)?)
        }
        Kind::Transposed => transposed(b, name, x, &mut choices),
        Kind::Pixels => pixels(b, name, x, &mut choices),
        Kind::Crop => {
            let margins = |choices: &mut Choices| ints(&[choices.below(3), choices.below(3)]);
            let (tall, wide) = (margins(&mut choices), margins(&mut choices));
            one(b.op("crop", name, [("x", x.into()), ("crop_height", tall.into()), ("crop_width", wide.into())])?)
        }
        Kind::Softmax => one(b.softmax(name, x, choices.of(&[1, 1, 2, -1]))?),
        Kind::Cast => one(b.cast(name, x, if dtype == Fp16 { Fp32 } else { Fp16 })?),
    }
}

/// The values of a network. A layer that does not fit adds nothing.
fn network(b: &mut Builder, ids: &[ValueId], layers: &[Layer]) -> Values {
    let mut values = ids.to_vec();
    for (i, &(kind, x, y, n)) in layers.iter().enumerate() {
        let late = |back: usize| values[values.len() - 1 - back % values.len()];
        if let Ok(made) = build(b, &format!("v{i}"), (kind, n), late(x), late(y)) {
            for value in made {
                if (1..=LARGEST).contains(&b.shape(value)?.iter().product::<usize>()) {
                    values.push(value);
                }
            }
        }
    }
    Ok(values.split_off(ids.len()))
}

/// The last `count` values have the same bits whether they alone are outputs or all values are, so
/// that each is stored where its port wants it.
fn law(
    inputs: &[Tensor],
    count: usize,
    body: impl Fn(&mut Builder, &[ValueId]) -> Values,
) -> Result<Vec<Tensor>, TestCaseError> {
    let apart = program(inputs, &body);
    let fused = program(inputs, |b, ids| body(b, ids).map(|v| v[v.len().saturating_sub(count)..].to_vec()));
    let all = run(Numerics::Fast, &apart, inputs).unwrap();
    let some = run(Numerics::Fast, &fused, inputs).unwrap();
    for (some, all) in some.iter().rev().zip(all.iter().rev()) {
        prop_assert!(bits(some) == bits(all), "steps {:?} give other bits", steps(&fused));
    }
    Ok(all)
}

/// Every value agrees with the oracle's. Errors are relative to the largest value of the network,
/// because sums cancel: 2⁻¹¹ for fp16 results of some layers, 2⁻²⁴ for fp32 sums of up to a
/// thousand products.
fn oracle(
    inputs: &[Tensor],
    found: &[Tensor],
    body: impl Fn(&mut Builder, &[ValueId]) -> Values,
) -> Result<(), TestCaseError> {
    let wanted = run(Numerics::Exact, &program(inputs, &body), inputs).unwrap();
    let largest = wanted.iter().flat_map(|t| &t.values).fold(1.0f64, |max, v| max.max(v.abs()));
    let halves = inputs.iter().chain(&wanted).any(|t| t.dtype == Fp16);
    let tolerance = largest * if halves { 1e-2 } else { 1e-5 };
    for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        let same = close(&found.values, &wanted.values, tolerance, 0.0);
        prop_assert!(same.is_ok(), "output {} {:?}: {}", i, wanted.shape, same.unwrap_err());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn networks_agree(
        layers in prop::collection::vec(layer(), 2..12),
        images in 1..3usize,
        channels in prop::sample::select(vec![1, 2, 3, 4, 6, 16, 17, 32]),
        spatial in prop_oneof![
            prop::collection::vec(1..8usize, 1..4),
            prop::collection::vec(11..15usize, 2),
        ],
        dtype in prop::sample::select(vec![Fp16, Fp32]),
        seed in any::<u64>(),
    ) {
        let shape = [&[images, channels], &spatial[..]].concat();
        // Images, and operands that are broadcast along positions, channels or images.
        let some = |kept: &dyn Fn(usize) -> bool| -> Vec<usize> {
            shape.iter().enumerate().map(|(a, &n)| if kept(a) { n } else { 1 }).collect()
        };
        let shapes = [some(&|a| a == 1), some(&|a| a == 0), some(&|a| a > 1), shape.clone(), shape.clone()];
        let inputs: Vec<Tensor> =
            shapes.iter().enumerate().map(|(i, s)| Tensor::random(dtype, s, seed ^ i as u64)).collect();
        let body = |b: &mut Builder, ids: &[ValueId]| -> Values {
            // Every input is read.
            let sum = ids[1..].iter().try_fold(ids[0], |sum, id| b.add("sum", sum, *id))?;
            let mut values = network(b, ids, &layers)?;
            values.insert(0, sum);
            Ok(values)
        };
        // Means are sums whose order is that of memory.
        let means = layers.iter().any(|layer| layer.0 == Kind::Mean);
        let found = match means {
            true => run(Numerics::Fast, &program(&inputs, body), &inputs).unwrap(),
            false => law(&inputs, 2, body)?,
        };
        oracle(&inputs, &found, body)?;
    }
}

/// A convolution of `a`, with as many channels.
fn plain(b: &mut Builder, x: ValueId, name: &str) -> Result<ValueId, MilError> {
    let (channels, dtype) = (b.shape(x)?[1], b.ty(x).dtype().unwrap_or(Fp32));
    let w = random(b, &format!("{name}_w"), dtype, &[channels, channels, 3, 3], 0.3)?;
    b.conv(name, x, w, None, &Conv { pad_type: "same", ..Conv::default() })
}

#[test]
fn a_group_that_alone_reads_a_convolution_finishes_it() {
    // Each thread has several tiles of registers.
    let shape = [2, 40, 20, 20];
    for dtype in [Fp16, Fp32] {
        let full = Tensor::random(dtype, &shape, 1);
        // The other operand of the sum: images, one image, channels, positions, one number for each
        // image, one number.
        let others = [shape.to_vec(), vec![1, 40, 20, 20], vec![40, 1, 1], vec![1, 20, 20], vec![2, 1, 1, 1], vec![1]];
        for other in others {
            let inputs = [full.clone(), Tensor::random(dtype, &other, 2)];
            let body = |b: &mut Builder, ids: &[ValueId]| {
                let y = plain(b, ids[0], "y")?;
                let sum = b.add("sum", y, ids[1])?;
                let squares = b.mul("squares", sum, y)?;
                let scaled = b.mul("scaled", squares, ids[1])?;
                let bounded = b.tanh("bounded", scaled)?;
                let z = b.relu("z", bounded)?;
                Ok(vec![y, sum, squares, scaled, bounded, z, plain(b, z, "end")?])
            };
            let last = program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(6)));
            // A number for each image is loaded once for a step, so the group stays a step.
            let finishes = other != [2, 1, 1, 1];
            assert_eq!(steps(&last).contains(&"conv+relu".to_string()), finishes, "{other:?}: {:?}", steps(&last));
            let found = law(&inputs, 1, body).unwrap();
            oracle(&inputs, &found, body).unwrap();
        }
    }
}

/// A block of a mobile network, for several images: nothing between its convolutions is left.
#[test]
fn convolutions_compute_gates_sums_and_activations() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[2, 40, 14, 14], 1), Tensor::random(dtype, &[2, 40, 1, 1], 2)];
        let body = |b: &mut Builder, ids: &[ValueId]| {
            let x = plain(b, ids[0], "x")?;
            let x = b.op("silu", "activated", [("x", x.into())])?;
            let wide = plain(b, x, "wide")?;
            // Not of a mean, whose sums depend on the layout of what it reads.
            let w = random(b, "gate_w", dtype, &[40, 40, 1, 1], 0.3)?;
            let gate = b.conv("gate", ids[1], w, None, &Conv::default())?;
            let gate = b.op("sigmoid", "opened", [("x", gate.into())])?;
            let gated = b.mul("gated", wide, gate)?;
            let w = random(b, "narrow_w", dtype, &[40, 40, 1, 1], 0.3)?;
            let narrow = b.conv("narrow", gated, w, None, &Conv::default())?;
            let sum = b.add("sum", narrow, x)?;
            let y = b.relu("y", sum)?;
            Ok(vec![x, wide, gate, gated, narrow, sum, y, plain(b, y, "end")?])
        };
        let last = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(7))));
        for fused in ["conv+silu", "conv+sigmoid", "mul+conv+relu"] {
            assert!(last.contains(&fused.to_string()), "{fused}: {last:?}");
        }
        let found = law(&inputs, 1, body).unwrap();
        oracle(&inputs, &found, body).unwrap();
    }
}

/// A fire module: the activation of joined channels is computed by the convolutions that make them.
#[test]
fn convolutions_compute_activations_of_joined_channels() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[2, 40, 14, 14], 1)];
        let body = |b: &mut Builder, ids: &[ValueId]| {
            let x = plain(b, ids[0], "x")?;
            let (left, right) = (plain(b, x, "left")?, plain(b, x, "right")?);
            let joined = b.concat("joined", &[left, right], 1)?;
            let y = b.relu("y", joined)?;
            Ok(vec![x, left, right, joined, y, plain(b, y, "end")?])
        };
        let found = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(5))));
        assert_eq!(found.iter().filter(|step| *step == "conv+relu").count(), 2, "{found:?}");
        assert!(found.iter().all(|step| step.starts_with("conv")), "{found:?}");
        // Channels that are also read as they are stay so.
        let read = steps(&program(&inputs, |b, ids| {
            let values = body(b, ids)?;
            Ok(vec![values[5], values[1]])
        }));
        assert!(!read.contains(&"conv+relu".to_string()), "{read:?}");
        let found = law(&inputs, 1, body).unwrap();
        oracle(&inputs, &found, body).unwrap();
    }
}

/// A fire module as converters write it: activations of convolutions that depend on nothing of each
/// other are not one group, though their shape is the same.
#[test]
fn convolutions_compute_activations_of_their_own() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[2, 40, 14, 14], 1)];
        let body = |b: &mut Builder, ids: &[ValueId]| {
            let x = plain(b, ids[0], "x")?;
            let left = plain(b, x, "left")?;
            let left_active = b.relu("left_active", left)?;
            let right = plain(b, x, "right")?;
            let right_active = b.relu("right_active", right)?;
            let joined = b.concat("joined", &[left_active, right_active], 1)?;
            Ok(vec![x, left, left_active, right, right_active, joined, plain(b, joined, "end")?])
        };
        let found = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(6))));
        assert_eq!(found.iter().filter(|step| *step == "conv+relu").count(), 2, "{found:?}");
        assert!(found.iter().all(|step| step.starts_with("conv")), "{found:?}");
        let found = law(&inputs, 1, body).unwrap();
        oracle(&inputs, &found, body).unwrap();
    }
}

/// A layer of a dense block: the convolution normalizes and activates the joined channels that it
/// reads.
#[test]
fn convolutions_normalize_what_they_read() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[2, 40, 14, 14], 1)];
        for (activated, stride) in [(true, 1), (false, 1), (true, 2)] {
            let body = |b: &mut Builder, ids: &[ValueId]| {
                let (left, right) = (plain(b, ids[0], "left")?, plain(b, ids[0], "right")?);
                let joined = b.concat("joined", &[left, right], 1)?;
                let mut y = joined;
                let channels = |b: &mut Builder, name: &str, scale: f64| random(b, name, dtype, &[80], scale);
                let mean = channels(b, "mean", 0.5)?;
                let variance = b.constant(
                    "variance",
                    Constant::raw(dtype, &[80], &Tensor::new(dtype, &[80], vec![0.7; 80]).to_bytes()),
                )?;
                let (gamma, beta) = (channels(b, "gamma", 1.0)?, channels(b, "beta_of", 1.0)?);
                let norm = [
                    ("x", y.into()),
                    ("mean", mean.into()),
                    ("variance", variance.into()),
                    ("gamma", gamma.into()),
                    ("beta", beta.into()),
                ];
                y = b.op("batch_norm", "normal", norm)?;
                let normal = y;
                if activated {
                    y = b.relu("active", y)?;
                }
                let w = random(b, "narrow_w", dtype, &[24, 80, 1, 1], 0.2)?;
                // Zeros around the image are not normalized.
                let options = Conv { pad_type: "custom", pad: vec![1; 4], strides: vec![stride; 2], ..Conv::default() };
                Ok(vec![left, right, joined, normal, y, b.conv("narrow", y, w, None, &options)?])
            };
            let wanted = if activated { "relu+conv" } else { "batch_norm+conv" };
            let alone = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(5))));
            assert!(alone.contains(&wanted.to_string()), "{alone:?}");
            // What another output needs too is stored.
            let read = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(4))));
            assert!(!read.contains(&wanted.to_string()), "{read:?}");
            let found = law(&inputs, 1, body).unwrap();
            oracle(&inputs, &found, body).unwrap();
        }
    }
}

/// A pyramid: a part that is no image is turned for the concat, and the images stay as they are.
#[test]
fn most_parts_of_a_concat_decide_its_layout() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[1, 40, 16, 16], 1), Tensor::random(dtype, &[1, 24, 8, 8], 2)];
        let body = |b: &mut Builder, ids: &[ValueId]| {
            let image = plain(b, ids[0], "image")?;
            let image = b.relu("active", image)?;
            let scales = ["scale_factor_height", "scale_factor_width"].map(|name| (name, Constant::fp32(2.0)));
            let mut args: Vec<(&str, Arg)> = vec![("x", ids[1].into())];
            args.extend(scales.map(|(name, scale)| (name, scale.into())));
            let large = b.op("upsample_bilinear", "large", args)?;
            let joined = b.concat("joined", &[image, large], 1)?;
            Ok(vec![image, large, joined, plain(b, joined, "end")?])
        };
        let found = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(3))));
        // The first and the last step turn what the ports hold; no step copies the image.
        let upsampled = "upsample_bilinear";
        assert_eq!(found, ["conv", "conv+relu", upsampled, upsampled, "conv", "conv"]);
        let found = law(&inputs, 1, body).unwrap();
        oracle(&inputs, &found, body).unwrap();
    }
}

/// The classes of each pixel: a softmax down columns has the bits of one along rows.
#[test]
fn softmax_of_channels_has_the_bits_of_rows() {
    for (dtype, channels, places) in [(Fp16, 37, 300), (Fp32, 21, 70), (Fp32, 2, 8), (Fp16, 16, 129)] {
        let first = Tensor::random(dtype, &[2, channels, places], 1);
        let index = |n: usize, c: usize, p: usize| (n * channels + c) * places + p;
        let turned = |values: &[f64]| -> Vec<f64> {
            let pixels = (0..2).flat_map(|n| (0..places).map(move |p| (n, p)));
            pixels.flat_map(|(n, p)| (0..channels).map(move |c| values[index(n, c, p)])).collect()
        };
        let last = Tensor::new(dtype, &[2, places, channels], turned(&first.values));
        let softmax = |x: Tensor, axis: i32| {
            let inputs = [x];
            let program = program(&inputs, |b, ids| Ok(vec![b.softmax("y", ids[0], axis)?]));
            run(Numerics::Fast, &program, &inputs).unwrap().remove(0)
        };
        let (columns, rows) = (softmax(first, 1), softmax(last, -1));
        assert_eq!(turned(&columns.values), rows.values, "{dtype} {channels} × {places}");
    }
}

/// An inverted bottleneck: the wide image between its layers is computed in bands.
#[test]
fn wide_images_between_layers_are_never_whole() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[2, 24, 40, 28], 1)];
        let body = |b: &mut Builder, ids: &[ValueId]| {
            let x = plain(b, ids[0], "x")?;
            let w = random(b, "wide_w", dtype, &[72, 24, 1, 1], 0.3)?;
            let bias = random(b, "wide_b", dtype, &[72], 0.3)?;
            let wide = b.conv("wide", x, w, Some(bias), &Conv::default())?;
            let active = b.relu("active", wide)?;
            let w = random(b, "deep_w", dtype, &[72, 1, 5, 5], 0.3)?;
            let options = Conv { pad_type: "same", strides: vec![2, 1], groups: 72, ..Conv::default() };
            let deep = b.conv("deep", active, w, None, &options)?;
            let y = b.op("silu", "y", [("x", deep.into())])?;
            Ok(vec![x, wide, active, deep, y, plain(b, y, "end")?])
        };
        let fused = "conv+relu+conv+silu".to_string();
        let alone = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(5))));
        assert!(alone.contains(&fused), "{alone:?}");
        // An image that is also read elsewhere is stored.
        let read = steps(&program(&inputs, |b, ids| {
            let values = body(b, ids)?;
            Ok(vec![values[5], values[2]])
        }));
        assert!(!read.contains(&fused), "{read:?}");
        let found = law(&inputs, 2, body).unwrap();
        oracle(&inputs, &found, body).unwrap();
    }
}

/// A block of layers over many positions: activations and sums are computed with the layers, in the
/// order of the positions and in that of an image.
#[test]
fn linear_layers_compute_what_follows_them() {
    for dtype in [Fp16, Fp32] {
        let inputs = [Tensor::random(dtype, &[1, 7, 9, 24], 1), Tensor::random(dtype, &[1, 24, 7, 9], 2)];
        let body = |b: &mut Builder, ids: &[ValueId]| {
            let residual = plain(b, ids[1], "residual")?;
            let w = random(b, "up_w", dtype, &[96, 24], 0.3)?;
            let bias = random(b, "bias", dtype, &[96], 0.3)?;
            let up = b.linear("up", ids[0], w, Some(bias))?;
            let active = b.op("gelu", "active", [("x", up.into())])?;
            let w = random(b, "down_w", dtype, &[24, 96], 0.3)?;
            let down = b.linear("down", active, w, None)?;
            let sum = b.add("sum", down, ids[0])?;
            let w = random(b, "last_w", dtype, &[24, 24], 0.3)?;
            let last = b.linear("last", sum, w, None)?;
            let image = b.transpose("image", last, &[0, 3, 1, 2])?;
            let scale = random(b, "scale", dtype, &[24, 1, 1], 0.3)?;
            let scaled = b.mul("scaled", image, scale)?;
            let y = b.add("y", scaled, residual)?;
            Ok(vec![up, active, down, sum, last, y, plain(b, y, "end")?])
        };
        let fused = steps(&program(&inputs, |b, ids| Ok(body(b, ids)?.split_off(6))));
        let linear: Vec<&String> = fused.iter().filter(|step| step.starts_with("linear")).collect();
        assert_eq!(linear, ["linear+gelu", "linear+add", "linear+add"], "{fused:?}");
        let found = law(&inputs, 2, body).unwrap();
        oracle(&inputs, &found, body).unwrap();
    }
}

#[test]
fn a_group_may_read_a_convolution_in_two_orders() {
    let x = [Tensor::random(Fp16, &[1, 6, 6, 6], 3)];
    let axes = |b: &mut Builder, y: ValueId, axis: usize| {
        b.op("reverse", "r", [("x", y.into()), ("axes", ints(&[axis]).into())])
    };
    for way in 0..5 {
        law(&x, 1, |b, ids| {
            let y = plain(b, ids[0], "y")?;
            let seen = match way {
                0 => b.transpose("t", y, &[0, 1, 3, 2])?,
                1 => axes(b, y, 2)?,
                2 => axes(b, y, 1)?,
                3 => b.slice_by_size("s", y, &[0, 2, 0, 0], &[1, 1, 6, 6])?,
                _ => b.slice_by_size("s", y, &[0, 0, 3, 3], &[1, 6, 1, 1])?,
            };
            let z = b.mul("z", y, seen)?;
            Ok(vec![y, seen, z, plain(b, z, "end")?])
        })
        .unwrap_or_else(|e| panic!("{way}: {e}"));
    }
}

#[test]
fn results_of_other_types_are_not_written_in_place() {
    let x = [Tensor::random(Fp16, &[2, 6, 5, 5], 4)];
    let found = law(&x, 3, |b, ids| {
        let y = plain(b, ids[0], "y")?;
        let positive = b.op("greater", "positive", [("x", y.into()), ("y", Constant::fp16(0.0).into())])?;
        let count = b.cast("count", positive, DataType::Int32)?;
        let wide = b.cast("wide", y, Fp32)?;
        Ok(vec![y, positive, count, wide])
    })
    .unwrap();
    assert_eq!(found[0].values, found[3].values);
    let signs: Vec<f64> = found[0].values.iter().map(|&v| f64::from(u8::from(v > 0.0))).collect();
    assert_eq!((&found[1].values, &found[2].values), (&signs, &signs));
}

#[test]
fn infinities_and_nans_spread_as_in_a_direct_sum() {
    let shape = [1, 16, 14, 14];
    // The last one is too large to be transformed.
    let bad = [(Fp16, f64::NAN), (Fp16, f64::INFINITY), (Fp32, f64::NAN), (Fp32, f64::INFINITY), (Fp32, 1e30)];
    for (dtype, bad) in bad {
        for (groups, in_weight) in [(1, false), (1, true), (2, true), (16, false), (16, true)] {
            let mut x = Tensor::random(dtype, &shape, 5);
            let mut w = Tensor::random(dtype, &[16, 16 / groups, 3, 3], 6);
            *(if in_weight { &mut w.values[7] } else { &mut x.values[14 * 14 * 3 + 14 * 6 + 8] }) = bad;
            let inputs = [x];
            let program = program(&inputs, |b, ids| {
                let w = b.constant("w", Constant::raw(dtype, &w.shape, &w.to_bytes()))?;
                let options = Conv { pad_type: "same", groups: groups as i32, ..Conv::default() };
                let y = b.conv("y", ids[0], w, None, &options)?;
                Ok(vec![b.relu("z", y)?])
            });
            let [fast, exact] =
                [Numerics::Fast, Numerics::Exact].map(|numerics| run(numerics, &program, &inputs).unwrap().remove(0));
            // One rounding, which may be another one, of sums of 144 products below 1 in fp32.
            let relative = if dtype == Fp16 { grid(Numerics::Fast) } else { 1e-5 };
            let same = close(&fast.values, &exact.values, 1e-5, relative);
            assert!(same.is_ok(), "{dtype} {bad} {groups} {in_weight}: {}", same.unwrap_err());
        }
    }
}

#[test]
fn images_do_not_depend_on_the_number_of_threads() {
    let inputs = [Tensor::random(Fp16, &[2, 24, 40, 37], 7), Tensor::random(Fp16, &[2, 24, 1, 1], 8)];
    let program = program(&inputs, |b, ids| {
        let y = plain(b, ids[0], "y")?;
        let gated = b.mul("gated", y, ids[1])?;
        let depthwise = conv(b, "depthwise", Kind::Depthwise, gated, &mut Choices(1))?[0];
        let sum = b.add("sum", depthwise, gated)?;
        let grouped = conv(b, "grouped", Kind::Grouped, sum, &mut Choices(2))?[0];
        let pooled = pool(b, "pooled", sum, &mut Choices(1))?[0];
        Ok(vec![b.relu("end", grouped)?, pooled])
    });
    let with = |threads: usize| -> Vec<_> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(Numerics::Fast, &program, &inputs).unwrap().iter().map(bits).collect())
    };
    assert_eq!(with(1), with(5));
}

#[test]
fn a_state_that_changed_is_seen_by_the_next_convolution() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [1, 2, 1, 2]> x, state<tensor<fp16, [1, 2, 1, 2]>> s) {
        tensor<fp16, [1, 2, 1, 1]> w = const()[val = tensor<fp16, [1, 2, 1, 1]>([[[[1]], [[10]]]])];
        tensor<fp16, [1, 2, 1, 2]> old = read_state(input = s)[name = string("old")];
        tensor<fp16, [1, 1, 1, 2]> before = conv(x = old, weight = w)[name = string("before")];
        tensor<fp16, [1, 2, 1, 2]> new = coreml_update_state(state = s, value = x)[name = string("new")];
        tensor<fp16, [1, 1, 1, 2]> after = conv(x = new, weight = w)[name = string("after")];
    } -> (before, after);"#,
    );
    let tensor = |values: [f64; 4]| Tensor::new(Fp16, &[1, 2, 1, 2], values.to_vec());
    let mut states = BTreeMap::from([("s".to_string(), constant(&tensor([1.0, 2.0, 3.0, 4.0])))]);
    let inputs = [("x".to_string(), constant(&tensor([5.0, 6.0, 7.0, 8.0])))];
    let found = Emulator::new(EmulatorOptions::default()).call(&program, "main", &inputs, &mut states).unwrap();
    let values = |i: usize| Tensor::from_bytes(Fp16, &[2], found[i].1.bytes(&Weights::new()).unwrap()).values;
    assert_eq!((values(0), values(1)), (vec![31.0, 42.0], vec![75.0, 86.0]));
}
