use half::f16;
use proptest::prelude::*;

use super::*;

/// Reproducible values in about [-1, 1), all exact in fp16.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut random = crate::random::Rng::new(seed);
    (0..n).map(|_| ((random.uniform() * 2048.0 - 1024.0).round() / 1024.0) as f32).collect()
}

fn first(pixels: &mut [f32]) -> ImageMut<'_> {
    ImageMut { pixels: PixelsMut::F32(pixels), layout: Layout::ChannelsFirst }
}

/// The convolution by its definition, in fp64.
fn reference(s: &ConvShape, x: &[f32], w: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
    let volume = |e: &[usize]| e.iter().product::<usize>();
    let index = |mut flat: usize, extents: &[usize]| {
        let mut i = vec![0; extents.len()];
        for a in (0..extents.len()).rev() {
            (i[a], flat) = (flat % extents[a], flat / extents[a]);
        }
        i
    };
    let (places, taps) = (volume(&s.output), volume(&s.kernel));
    let (per_group, outputs) = (s.channels / s.groups, s.outputs / s.groups);
    let mut out = vec![0.0; s.outputs * places];
    for o in 0..s.outputs {
        for place in 0..places {
            let at = index(place, &s.output);
            let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
            for tap in 0..taps {
                let t = index(tap, &s.kernel);
                let mut flat = Some(0usize);
                for a in 0..at.len() {
                    let i = (at[a] * s.strides[a] + t[a] * s.dilations[a]).wrapping_sub(s.pad[a]);
                    flat = flat.filter(|_| i < s.input[a]).map(|f| f * s.input[a] + i);
                }
                let Some(flat) = flat else { continue };
                for c in 0..per_group {
                    let channel = o / outputs * per_group + c;
                    let x = f64::from(x[channel * volume(&s.input) + flat]);
                    sum += f64::from(w[(o * per_group + c) * taps + tap]) * x;
                }
            }
            out[o * places + place] = sum;
        }
    }
    out
}

/// Runs a shape with both layouts.
fn check(shape: ConvShape, half: bool, finite: bool, gap: usize, seed: u64) {
    let taps = shape.kernel.iter().product::<usize>();
    let volume: usize = shape.input.iter().product();
    let x = values(shape.channels * volume, seed);
    let w = values(shape.outputs * shape.channels / shape.groups * taps, seed + 1);
    let bias = values(shape.outputs, seed + 2);
    let wanted = reference(&shape, &x, &w, Some(&bias));
    let first = Conv::new(shape.clone(), finite).expect("a shape that fits");
    compare(&first, [false; 2], half, gap, [&x, &w, &bias], &wanted);
    // Some depthwise shapes have channels first only.
    let lacks = shape.channels == shape.groups && shape.groups > 1 && (!finite || shape.outputs != shape.groups);
    let last = Conv::channels_last(shape.clone(), finite);
    assert_eq!(last.is_none(), lacks, "{shape:?}");
    if let Some(last) = last {
        compare(&last, [true; 2], half, gap, [&x, &w, &bias], &wanted);
        if last.takes_planes() {
            compare(&last, [false, true], half, gap, [&x, &w, &bias], &wanted);
        }
    }
}

/// Compares a convolution with the sums of the definition, channels first. The channels of the
/// image and of the results may be last. Channels, or pixels if the channels are last, have a gap
/// between them.
fn compare(
    conv: &Conv,
    [from_last, last]: [bool; 2],
    half: bool,
    gap: usize,
    [x, w, bias]: [&[f32]; 3],
    wanted: &[f64],
) {
    let shape = conv.shape();
    let (volume, places): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    let mut packed = vec![f32::NAN; conv.packed_len()];
    if half {
        let w: Vec<f16> = w.iter().map(|v| f16::from_f32(*v)).collect();
        conv.pack(Weights::F16(&w), &mut packed).unwrap();
    } else {
        conv.pack(Weights::F32(w), &mut packed).unwrap();
    }
    // Where element `i` of channel `c` is; NaN between them.
    let pitch = if from_last { shape.channels + gap } else { volume + gap };
    let at = |c: usize, i: usize| if from_last { i * pitch + c } else { c * pitch + i };
    let mut spread = vec![f32::NAN; if from_last { volume } else { shape.channels } * pitch];
    for (i, v) in x.iter().enumerate() {
        spread[at(i / volume, i % volume)] = *v;
    }
    let halves: Vec<f16> = spread.iter().map(|v| f16::from_f32(*v)).collect();
    let mut strides = vec![if from_last { pitch as isize } else { 1 }; shape.input.len()];
    for a in (1..strides.len()).rev() {
        strides[a - 1] = strides[a] * shape.input[a] as isize;
    }
    let pixels = if half { Pixels::F16(&halves) } else { Pixels::F32(&spread) };
    let channel = if from_last { 1 } else { pitch as isize };
    let image = Image { pixels, origin: 0, channel, strides: &strides, prologue: None };
    let epilogue = ConvEpilogue { bias: Some(bias), round: half, ..ConvEpilogue::default() };
    let width = if last { shape.outputs + gap } else { places };
    let layout = if last { Layout::ChannelsLast(width) } else { Layout::ChannelsFirst };
    let mut found = vec![f32::NAN; if last { places * width } else { wanted.len() }];
    conv.run(image, &packed, ImageMut { pixels: PixelsMut::F32(&mut found), layout }, epilogue).unwrap();
    let mut stored = vec![f16::NAN; found.len()];
    conv.run(image, &packed, ImageMut { pixels: PixelsMut::F16(&mut stored), layout }, epilogue).unwrap();
    // One rounding of fp32 for each product of at most 1; sums of a few of them are about 1.
    let depth = w.len() / shape.outputs;
    for (i, wanted) in wanted.iter().enumerate() {
        let at = if last { i % places * width + i / places } else { i };
        let (found, stored) = (found[at], stored[at]);
        // Transformed 3 × 3 filters have about twice the error.
        let factor = if last && shape.kernel == [3, 3] { 2.0 } else { 1.0 };
        let sum = factor * (depth + 8) as f64 * 2f64.powi(-24) * (1.0 + wanted.abs());
        let bound = sum + if half { wanted.abs() / 2048.0 } else { 0.0 };
        assert!((f64::from(found) - wanted).abs() <= bound, "{i}: {found}, not {wanted} (last: {last}, {shape:?})");
        if half {
            assert_eq!(f16::from_f32(found).to_bits(), stored.to_bits(), "{i}: rounded once (last: {last}, {shape:?})");
        }
    }
    let between = |v: &[f32]| v.chunks(width).all(|pixel| pixel[shape.outputs..].iter().all(|v| v.is_nan()));
    assert!(!last || between(&found), "something was written between pixels ({shape:?})");
    let stored: Vec<f32> = stored.iter().map(|v| v.to_f32()).collect();
    assert!(!last || between(&stored), "something was written between pixels ({shape:?})");
}

fn shapes() -> impl Strategy<Value = ConvShape> {
    let axis = (1usize..20, 1usize..6, 1usize..4, 1usize..4, 0usize..5, 0usize..5);
    let channels =
        prop_oneof![Just((1usize, 1usize)), Just((3, 16)), Just((16, 3)), Just((7, 7)), Just((33, 40)), Just((2, 1)),];
    (prop::collection::vec(axis, 1..4), channels, prop_oneof![Just(1usize), Just(3), Just(5)]).prop_map(
        |(axes, (per_group, outputs), groups)| {
            let mut shape = ConvShape {
                channels: per_group * groups,
                outputs: outputs * groups,
                groups,
                input: vec![],
                output: vec![],
                kernel: vec![],
                strides: vec![],
                dilations: vec![],
                pad: vec![],
            };
            for (input, kernel, stride, dilation, before, after) in axes {
                let padded = input + before + after;
                // A filter that is too large becomes the largest that fits.
                let kernel = kernel.min((padded - 1) / dilation + 1);
                shape.input.push(input);
                shape.output.push((padded - (kernel - 1) * dilation - 1) / stride + 1);
                shape.kernel.push(kernel);
                shape.strides.push(stride);
                shape.dilations.push(dilation);
                shape.pad.push(before);
            }
            shape
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_shape_gives_the_sums_of_the_definition(
        shape in shapes(),
        half: bool,
        finite: bool,
        gap in 0usize..3,
        seed in 0u64..1000,
    ) {
        check(shape, half, finite, gap, seed);
    }
}

/// A convolution of a square image, with the same extents along both axes.
fn flat(
    channels: usize,
    outputs: usize,
    groups: usize,
    size: usize,
    [kernel, stride, dilation, pad]: [usize; 4],
) -> ConvShape {
    ConvShape {
        channels,
        outputs,
        groups,
        input: vec![size; 2],
        output: vec![(size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1; 2],
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        dilations: vec![dilation; 2],
        pad: vec![pad; 2],
    }
}

/// Shapes large enough for several panels, blocks along K, and threads.
#[test]
fn large_shapes_give_the_sums_of_the_definition() {
    for (i, shape) in [
        flat(3, 32, 1, 56, [7, 2, 1, 3]),
        flat(96, 40, 1, 14, [3, 1, 1, 1]),
        flat(128, 300, 1, 9, [3, 1, 1, 1]),
        flat(64, 64, 8, 28, [3, 2, 1, 1]),
        flat(48, 48, 48, 40, [5, 2, 1, 2]),
        flat(32, 32, 32, 30, [7, 1, 1, 3]),
        flat(40, 40, 40, 7, [5, 1, 1, 2]),
        flat(72, 72, 72, 14, [3, 2, 1, 1]),
        flat(23, 23, 23, 13, [3, 1, 3, 3]),
        flat(40, 20, 1, 14, [3, 1, 12, 12]),
        flat(16, 64, 1, 31, [1, 2, 1, 0]),
        flat(256, 64, 1, 14, [1, 1, 1, 0]),
        flat(96, 40, 1, 1, [1, 1, 1, 0]),
        flat(64, 48, 4, 2, [1, 1, 1, 0]),
        flat(104, 104, 13, 28, [3, 1, 1, 1]),
        flat(256, 200, 2, 12, [3, 1, 1, 1]),
        flat(64, 64, 1, 29, [3, 1, 1, 1]),
        flat(40, 24, 1, 14, [3, 1, 1, 0]),
        flat(130, 300, 1, 13, [3, 1, 1, 2]),
    ]
    .into_iter()
    .enumerate()
    {
        for half in [false, true] {
            check(shape.clone(), half, true, 1, i as u64);
        }
    }
}

#[test]
fn a_tap_that_sees_only_padding_still_multiplies_infinity_by_zero() {
    let shape = ConvShape {
        channels: 1,
        outputs: 1,
        groups: 1,
        input: vec![2],
        output: vec![2],
        kernel: vec![3],
        strides: vec![1],
        dilations: vec![4],
        pad: vec![4],
    };
    let weights = [f32::INFINITY, 1.0, 1.0];
    let mut sums = [0.0; 2];
    for (finite, nan) in [(true, false), (false, true)] {
        let conv = Conv::new(shape.clone(), finite).unwrap();
        let mut packed = vec![0.0; conv.packed_len()];
        conv.pack(Weights::F32(&weights), &mut packed).unwrap();
        let image = Image { pixels: Pixels::F32(&[1.0, 2.0]), origin: 0, channel: 2, strides: &[1], prologue: None };
        conv.run(image, &packed, first(&mut sums), ConvEpilogue::default()).unwrap();
        assert_eq!(sums.iter().any(|v| v.is_nan()), nan);
    }
    assert!(!Weights::F32(&weights).is_tame());
}

/// Transformed tiles would spread NaN and infinity to results that do not see them.
#[test]
fn what_is_not_finite_reaches_only_the_results_that_see_it() {
    let side = 24;
    let shape = ConvShape {
        channels: 32,
        outputs: 48,
        groups: 1,
        input: vec![side; 2],
        output: vec![side; 2],
        kernel: vec![3, 3],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pad: vec![1, 1],
    };
    let (conv, w) = (Conv::channels_last(shape.clone(), true).unwrap(), values(48 * 32 * 9, 1));
    let mut packed = vec![0.0; conv.packed_len()];
    conv.pack(Weights::F32(&w), &mut packed).unwrap();
    for special in [f32::NAN, f32::INFINITY, 1e30] {
        let mut x = values(32 * side * side, 2);
        x[(9 * side + 13) * 32 + 5] = special;
        let mut found = vec![0.0; 48 * side * side];
        let image = Image {
            pixels: Pixels::F32(&x),
            origin: 0,
            channel: 1,
            strides: &[side as isize * 32, 32],
            prologue: None,
        };
        let out = ImageMut { pixels: PixelsMut::F32(&mut found), layout: Layout::ChannelsLast(48) };
        conv.run(image, &packed, out, ConvEpilogue::default()).unwrap();
        for (i, v) in found.iter().enumerate() {
            let (y, x) = (i / 48 / side, i / 48 % side);
            let sees = y.abs_diff(9) <= 1 && x.abs_diff(13) <= 1;
            assert!(sees || v.abs() < 300.0, "{special}: {v} at {y}, {x}");
            assert!(!sees || !special.is_nan() || v.is_nan(), "{special}: {v} at {y}, {x}");
        }
    }
}

/// Every result is finished once, after it was computed.
#[test]
fn results_are_finished_once() {
    for shape in [
        flat(64, 40, 1, 33, [3, 1, 1, 1]),
        flat(64, 256, 1, 12, [3, 1, 1, 1]),
        flat(128, 96, 1, 40, [1, 1, 1, 0]),
        flat(300, 320, 1, 3, [1, 1, 1, 0]),
        flat(64, 64, 64, 40, [5, 1, 1, 2]),
        flat(40, 40, 40, 7, [5, 1, 1, 2]),
        flat(64, 64, 8, 20, [3, 1, 1, 1]),
        flat(40, 20, 1, 14, [3, 1, 12, 12]),
        flat(3, 5, 1, 4, [3, 1, 1, 1]),
    ] {
        let (channels, outputs, size) = (shape.channels, shape.outputs, shape.input[0]);
        let conv = Conv::channels_last(shape.clone(), true).unwrap();
        let mut packed = vec![0.0; conv.packed_len()];
        let taps = shape.kernel.iter().product::<usize>();
        conv.pack(Weights::F32(&values(outputs * channels / shape.groups * taps, 1)), &mut packed).unwrap();
        let x = values(channels * size * size, 2);
        let strides = [(size * channels) as isize, channels as isize];
        let image = Image { pixels: Pixels::F32(&x), origin: 0, channel: 1, strides: &strides, prologue: None };
        let pitch = outputs + 3;
        let run = |finish| {
            let mut out = vec![7.0f32; size * size * pitch];
            let to = ImageMut { pixels: PixelsMut::F32(&mut out), layout: Layout::ChannelsLast(pitch) };
            conv.run(image, &packed, to, ConvEpilogue { finish, ..ConvEpilogue::default() }).unwrap();
            out
        };
        let counts: Vec<std::sync::atomic::AtomicUsize> = (0..size * size).map(|_| Default::default()).collect();
        let double = |places: std::ops::Range<usize>, pixels: PixelsMut<'_>| {
            let PixelsMut::F32(pixels) = pixels else { panic!("fp16") };
            assert_eq!(pixels.len(), (places.len() - 1) * pitch + outputs);
            for (place, pixel) in places.zip(pixels.chunks_mut(pitch)) {
                counts[place].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                pixel[..outputs].iter_mut().for_each(|v| *v *= 2.0);
            }
        };
        let (plain, finished) = (run(None), run(Some(Finish(&double))));
        assert!(counts.iter().all(|n| n.load(std::sync::atomic::Ordering::Relaxed) == 1), "{shape:?}");
        for (i, (a, b)) in plain.iter().zip(&finished).enumerate() {
            let wanted = if i % pitch < outputs { a * 2.0 } else { *a };
            assert_eq!(wanted.to_bits(), b.to_bits(), "{i} of {shape:?}");
        }
    }
}

/// Depthwise filters whose rows are computed for several positions at once: every width and step
/// of these, images that are copied and images that are not, a few channels of a vector, padding
/// that hides some taps from all positions, and filters that are not of such rows.
#[test]
fn depthwise_filters_give_the_sums_of_the_definition() {
    let mut shapes = Vec::new();
    for kernel in [2, 3, 5, 7] {
        for (stride, dilation) in [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)] {
            let pad = (kernel - 1) * dilation / 2;
            for (channels, size) in [(16, 14), (23, 31), (37, 60)] {
                shapes.push(flat(channels, channels, channels, size, [kernel, stride, dilation, pad]));
            }
        }
    }
    let wide = flat(19, 19, 19, 40, [5, 1, 1, 2]);
    let row = |kernel: usize, stride: usize| ConvShape {
        groups: 24,
        input: vec![50],
        output: vec![(50 - kernel) / stride + 1],
        pad: vec![0],
        ..line(24, 24, kernel, stride)
    };
    shapes.extend([
        ConvShape { kernel: vec![1, 5], output: vec![44, 40], ..wide.clone() },
        ConvShape { kernel: vec![5, 1], output: vec![40, 44], ..wide.clone() },
        ConvShape { kernel: vec![3, 5], strides: vec![2, 1], output: vec![21, 40], ..wide.clone() },
        ConvShape { input: vec![2, 40], output: vec![2, 40], ..wide },
        row(5, 1),
        row(3, 2),
    ]);
    for (i, shape) in shapes.into_iter().enumerate() {
        for half in [false, true] {
            check(shape.clone(), half, true, i % 3, i as u64);
        }
    }
}

/// Images with few channels: every step and number of vectors, rows that end within a tile, far
/// padding, dilation, and several copies for a task.
#[test]
fn images_with_few_channels_give_the_sums_of_the_definition() {
    for (i, shape) in [
        flat(3, 16, 1, 57, [3, 2, 1, 1]),
        flat(3, 10, 1, 28, [3, 2, 1, 1]),
        flat(3, 40, 1, 80, [3, 2, 1, 1]),
        flat(1, 33, 1, 40, [5, 1, 1, 2]),
        flat(4, 64, 1, 31, [7, 1, 1, 9]),
        flat(2, 96, 1, 45, [3, 2, 3, 3]),
        flat(3, 24, 1, 30, [9, 1, 1, 4]),
        ConvShape { input: vec![420, 60], output: vec![420, 60], ..flat(3, 4, 1, 60, [3, 1, 1, 1]) },
        ConvShape { input: vec![14, 300], output: vec![12, 149], ..flat(3, 20, 1, 14, [3, 1, 1, 0]) },
        ConvShape { input: vec![200], output: vec![100], pad: vec![3], ..line(1, 18, 8, 2) },
    ]
    .into_iter()
    .enumerate()
    {
        let shape = match shape.output[..] {
            [12, 149] => ConvShape { strides: vec![1, 2], ..shape },
            _ => shape,
        };
        assert!(Conv::channels_last(shape.clone(), true).unwrap().takes_planes(), "{shape:?}");
        for half in [false, true] {
            for finite in [false, true] {
                check(shape.clone(), half, finite, i % 3, i as u64);
            }
        }
    }
    // Long runs are gathered, short rows too, and one tap needs neither.
    for shape in [
        flat(5, 16, 1, 57, [3, 2, 1, 1]),
        flat(3, 16, 1, 9, [3, 2, 1, 1]),
        flat(3, 16, 1, 57, [1, 1, 1, 0]),
        flat(3, 16, 1, 57, [4, 4, 1, 0]),
    ] {
        assert!(!Conv::channels_last(shape.clone(), true).unwrap().takes_planes(), "{shape:?}");
    }
}

/// A convolution along one axis; extents and padding are left to the caller.
fn line(channels: usize, outputs: usize, kernel: usize, stride: usize) -> ConvShape {
    ConvShape {
        channels,
        outputs,
        groups: 1,
        input: vec![],
        output: vec![],
        kernel: vec![kernel],
        strides: vec![stride],
        dilations: vec![1],
        pad: vec![],
    }
}

#[test]
fn addends_are_added_to_their_results() {
    for shape in [flat(3, 16, 1, 57, [3, 2, 1, 1]), flat(20, 16, 1, 29, [1, 1, 1, 0])] {
        let conv = Conv::channels_last(shape.clone(), true).unwrap();
        let (places, channels) = (shape.output.iter().product::<usize>(), shape.channels);
        let mut packed = vec![0.0; conv.packed_len()];
        conv.pack(Weights::F32(&values(shape.outputs * channels * shape.kernel[0].pow(2), 1)), &mut packed).unwrap();
        let (x, other) = (values(channels * shape.input[0].pow(2), 2), values(places * shape.outputs, 3));
        let strides = [(shape.input[0] * channels) as isize, channels as isize];
        let image = Image { pixels: Pixels::F32(&x), origin: 0, channel: 1, strides: &strides, prologue: None };
        let steps = [PointStep::PlusAddend];
        let run = |addend: &[f32], out: &mut [f32]| {
            let addend = Some(Addend { pixels: Pixels::F32(addend), origin: 0, pitch: shape.outputs });
            let to = ImageMut { pixels: PixelsMut::F32(out), layout: Layout::ChannelsLast(shape.outputs) };
            conv.run(image, &packed, to, ConvEpilogue { steps: &steps, addend, ..ConvEpilogue::default() }).unwrap();
        };
        let mut wanted = vec![f32::NAN; other.len()];
        run(&other, &mut wanted);
        let mut sums = vec![f32::NAN; other.len()];
        run(&vec![0.0; other.len()], &mut sums);
        assert!(wanted.iter().zip(&sums).zip(&other).all(|((w, s), o)| *w == s + o), "{shape:?}");
    }
}

/// A convolution that copies its input, so that the steps see every kind of number.
#[test]
fn steps_do_what_they_say() {
    use PointStep::{Affine, Clamp, From, Gate, Gelu, Hold, PlusAddend, Round, Sigmoid, Silu, TimesHeld};
    let mut x = values(40 * 19, 3);
    for (i, v) in x.iter_mut().enumerate() {
        *v = match i % 11 {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => f32::NEG_INFINITY,
            3 => -0.0,
            4 => 0.0,
            _ => *v * 9.0,
        };
    }
    let shape = ConvShape {
        channels: 40,
        outputs: 40,
        groups: 40,
        input: vec![19],
        output: vec![19],
        kernel: vec![1],
        strides: vec![1],
        dilations: vec![1],
        pad: vec![0],
    };
    let conv = Conv::channels_last(shape, true).unwrap();
    let mut packed = vec![0.0; conv.packed_len()];
    conv.pack(Weights::F32(&[1.0; 40]), &mut packed).unwrap();
    let half = |v: f32| f16::from_f32(v).to_f32();
    let clamp = |v: f32, low: f32, high: f32| {
        let v = if v < low { low } else { v };
        if v > high { high } else { v }
    };
    // The other image, with a gap between its pixels.
    let others = values(43 * 19, 4);
    let halves: Vec<f16> = others.iter().map(|v| f16::from_f32(*v)).collect();
    type Case<'a> = (&'a [PointStep], &'a dyn Fn(f32, f32) -> f32);
    let gate = |round| super::Gate { factor: 1.0 / 6.0, term: 0.5, low: 0.0, high: 1.0, round };
    let cases: [Case<'_>; 11] = [
        (&[Clamp(0.0, f32::INFINITY)], &|v, _| if v < 0.0 { 0.0 } else { v }),
        (&[Clamp(-1.5, 6.0)], &|v, _| clamp(v, -1.5, 6.0)),
        (&[From(-3.0)], &|v, _| if v >= -3.0 { v } else { 0.0 }),
        (&[Affine(1.0 / 6.0, 0.1), Round], &|v, _| half(1.0 / 6.0 * v + 0.1)),
        (&[Round, Hold, Affine(1.0 / 6.0, 0.5), Clamp(0.0, 1.0), TimesHeld], &|v, _| {
            clamp(1.0 / 6.0 * half(v) + 0.5, 0.0, 1.0) * half(v)
        }),
        (&[Gate(gate(false))], &|v, _| clamp(1.0 / 6.0 * v + 0.5, 0.0, 1.0) * v),
        (&[Round, Gate(gate(true)), Clamp(-9.0, 3.0)], &|v, _| {
            clamp(half(clamp(1.0 / 6.0 * half(v) + 0.5, 0.0, 1.0)) * half(v), -9.0, 3.0)
        }),
        (&[Affine(11.0, 0.0), Sigmoid], &|v, _| crate::simd::sigmoid(11.0 * v)),
        (&[Affine(11.0, 0.0), Silu], &|v, _| 11.0 * v * crate::simd::sigmoid(11.0 * v)),
        (&[Affine(0.7, 0.0), Gelu], &|v, _| crate::simd::gelu(0.7 * v + 0.0)),
        (&[Round, PlusAddend, Clamp(0.0, f32::INFINITY)], &|v, other| clamp(half(v) + other, 0.0, f32::INFINITY)),
    ];
    for ((steps, wanted), pixels) in
        cases.iter().flat_map(|case| [(case, Pixels::F32(&others)), (case, Pixels::F16(&halves))])
    {
        let mut found = vec![7.0; x.len()];
        let image = Image { pixels: Pixels::F32(&x), origin: 0, channel: 1, strides: &[40], prologue: None };
        let out = ImageMut { pixels: PixelsMut::F32(&mut found), layout: Layout::ChannelsLast(40) };
        let addend = Some(Addend { pixels, origin: 2, pitch: 43 });
        conv.run(image, &packed, out, ConvEpilogue { steps, addend, ..ConvEpilogue::default() }).unwrap();
        for (i, (x, found)) in x.iter().zip(&found).enumerate() {
            // The sum begins with 0, so it has no negative zero.
            let wanted = wanted(0.0 + x, others[2 + i / 40 * 43 + i % 40]);
            let same = wanted.to_bits() == found.to_bits() || wanted.is_nan() && found.is_nan();
            assert!(same, "{steps:?} of {x}: {found}, not {wanted}");
        }
    }
}

/// The functions of an instruction set are the portable ones, for numbers of every size and sign.
#[test]
fn functions_of_steps_have_the_bits_of_the_portable_ones() {
    let shape = ConvShape {
        channels: 16,
        outputs: 16,
        groups: 16,
        input: vec![1 << 12],
        output: vec![1 << 12],
        kernel: vec![1],
        strides: vec![1],
        dilations: vec![1],
        pad: vec![0],
    };
    let conv = Conv::channels_last(shape, true).unwrap();
    let mut packed = vec![0.0; conv.packed_len()];
    conv.pack(Weights::F32(&[1.0; 16]), &mut packed).unwrap();
    let x: Vec<f32> = (0..1u32 << 16).map(|i| f32::from_bits(i << 16 | i.wrapping_mul(40_503) & 0xFFFF)).collect();
    type Function = fn(f32) -> f32;
    let functions: [(PointStep, Function); 2] =
        [(PointStep::Sigmoid, crate::simd::sigmoid), (PointStep::Gelu, crate::simd::gelu)];
    for (step, function) in functions {
        let mut found = vec![7.0; x.len()];
        let image = Image { pixels: Pixels::F32(&x), origin: 0, channel: 1, strides: &[16], prologue: None };
        let out = ImageMut { pixels: PixelsMut::F32(&mut found), layout: Layout::ChannelsLast(16) };
        conv.run(image, &packed, out, ConvEpilogue { steps: &[step], ..ConvEpilogue::default() }).unwrap();
        for (x, found) in x.iter().zip(&found) {
            // The sum begins with 0, so it has no negative zero.
            let wanted = function(0.0 + x);
            let same = wanted.to_bits() == found.to_bits() || wanted.is_nan() && found.is_nan();
            assert!(same, "{step:?} of {x}: {found}, not {wanted}");
        }
    }
}

/// A prologue is applied to the pixels, and rounded as these are; padding stays zero.
#[test]
fn prologues_change_the_pixels() {
    for shape in [
        flat(24, 40, 1, 9, [1, 1, 1, 0]),
        flat(700, 33, 1, 5, [1, 1, 1, 0]),
        flat(64, 64, 4, 6, [1, 1, 1, 0]),
        flat(35, 16, 1, 8, [1, 2, 1, 1]),
        flat(1, 3, 1, 4, [1, 1, 1, 0]),
    ] {
        let conv = Conv::channels_last(shape.clone(), true).unwrap();
        assert!(conv.takes_prologue());
        let (channels, size) = (shape.channels, shape.input[0]);
        let mut packed = vec![0.0; conv.packed_len()];
        conv.pack(Weights::F32(&values(shape.outputs * channels / shape.groups, 1)), &mut packed).unwrap();
        let x = values(channels * size * size, 2);
        let (scales, shifts) = (&values(channels, 3)[..], &values(channels, 4)[..]);
        let halves: Vec<f16> = x.iter().map(|v| f16::from_f32(*v)).collect();
        let strides = [(size * channels) as isize, channels as isize];
        let run = |pixels: Pixels<'_>, prologue: Option<Prologue<'_>>| {
            let mut out = vec![7.0f32; shape.output[0] * shape.output[1] * shape.outputs];
            let image = Image { pixels, origin: 0, channel: 1, strides: &strides, prologue };
            let to = ImageMut { pixels: PixelsMut::F32(&mut out), layout: Layout::ChannelsLast(shape.outputs) };
            conv.run(image, &packed, to, ConvEpilogue::default()).map(|()| out)
        };
        for (shifts, relu) in [(None, false), (None, true), (Some(shifts), false), (Some(shifts), true)] {
            let prologue = Prologue { scales, shifts, relu };
            let affine = |(i, v): (usize, f32)| {
                let scaled = v * scales[i % channels];
                shifts.map_or(scaled, |shifts| scaled + shifts[i % channels])
            };
            let bounded = |v: f32| if relu && v < 0.0 { 0.0 } else { v };
            let changed: Vec<f32> = x.iter().copied().enumerate().map(affine).map(bounded).collect();
            let rounded = |v: f32| f16::from_f32(bounded(f16::from_f32(v).to_f32()));
            let half: Vec<f16> = halves.iter().map(|v| v.to_f32()).enumerate().map(affine).map(rounded).collect();
            let same = |a: Pixels<'_>, b: Pixels<'_>| {
                assert_eq!(run(a, Some(prologue)).unwrap(), run(b, None).unwrap(), "{prologue:?}");
            };
            same(Pixels::F32(&x), Pixels::F32(&changed));
            same(Pixels::F16(&halves), Pixels::F16(&half));
        }
        let short = Prologue { scales: &scales[1..], shifts: None, relu: false };
        assert!(run(Pixels::F32(&x), Some(short)).is_err());
        let short = Prologue { scales, shifts: Some(&shifts[1..]), relu: false };
        assert!(run(Pixels::F32(&x), Some(short)).is_err());
    }
    assert!(!Conv::channels_last(flat(24, 40, 1, 9, [3, 1, 1, 1]), true).unwrap().takes_prologue());
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let shape = ConvShape {
        channels: 2,
        outputs: 1,
        groups: 1,
        input: vec![4, 4],
        output: vec![4, 4],
        kernel: vec![3, 3],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pad: vec![1, 1],
    };
    let conv = Conv::new(shape.clone(), true).unwrap();
    let packed = vec![0.0; conv.packed_len()];
    let (x, mut out) = (vec![0.0f32; 32], vec![0.0f32; 16]);
    let run = |x: &[f32], origin, channel, strides: &[isize], packed: &[f32], out: &mut [f32]| {
        let image = Image { pixels: Pixels::F32(x), origin, channel, strides, prologue: None };
        conv.run(image, packed, first(out), ConvEpilogue::default())
    };
    assert!(run(&x, 0, 16, &[4, 1], &packed, &mut out).is_ok());
    assert!(run(&x[..31], 0, 16, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 1, 16, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 0, -16, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 0, isize::MAX, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 0, 16, &[4, 1], &packed[1..], &mut out).is_err());
    assert!(run(&x, 0, 16, &[4, 1], &packed, &mut out[1..]).is_err());
    let last = Conv::channels_last(shape.clone(), true).unwrap();
    let packed = vec![0.0; last.packed_len()];
    let run = |channel, strides: &[isize], packed: &[f32], out: &mut [f32], layout| {
        let image = Image { pixels: Pixels::F32(&x), origin: 0, channel, strides, prologue: None };
        last.run(image, packed, ImageMut { pixels: PixelsMut::F32(out), layout }, ConvEpilogue::default())
    };
    let dense = Layout::ChannelsLast(1);
    assert!(run(1, &[8, 2], &packed, &mut out, dense).is_ok());
    assert!(run(16, &[4, 1], &packed, &mut out, dense).is_err());
    assert!(run(1, &[8, 2], &packed, &mut out, Layout::ChannelsFirst).is_err());
    assert!(run(1, &[8, 2], &packed, &mut out, Layout::ChannelsLast(0)).is_err());
    assert!(run(1, &[8, 2], &packed[1..], &mut out, dense).is_err());
    assert!(run(1, &[8, 2], &packed, &mut out[1..], dense).is_err());
    assert!(run(1, &[8], &packed, &mut out, dense).is_err());
    for broken in [
        ConvShape { groups: 3, ..shape.clone() },
        ConvShape { strides: vec![0, 1], ..shape.clone() },
        ConvShape { kernel: vec![3], ..shape.clone() },
        ConvShape { dilations: vec![usize::MAX, 1], ..shape.clone() },
        ConvShape { output: vec![usize::MAX, 1], ..shape },
    ] {
        assert!(Conv::new(broken.clone(), true).is_none(), "{broken:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Of images that are stored as fp16, and of others.
    #[test]
    fn a_pair_has_the_bits_of_its_convolutions(
        (channels, outputs) in prop_oneof![Just((3usize, 16usize)), Just((16, 64)), Just((24, 40)), Just((5, 33))],
        extent in 20usize..60,
        (k, step) in prop_oneof![Just((1usize, 1usize)), Just((3, 2))],
        (wide, stride) in prop_oneof![Just((3usize, 1usize)), Just((3, 2)), Just((5, 1)), Just((5, 2)), Just((7, 3))],
        half in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let one = flat(channels, outputs, 1, extent, [k, step, 1, k / 2]);
        let two = flat(outputs, outputs, outputs, one.output[0], [wide, stride, 1, wide / 2]);
        let convs = [one, two].map(|shape| Conv::channels_last(shape, true).unwrap());
        let packed: Vec<Vec<f32>> = convs.iter().enumerate().map(|(i, conv)| {
            let shape = conv.shape();
            let taps: usize = shape.kernel.iter().product();
            let weights = values(shape.outputs * shape.channels / shape.groups * taps, seed ^ i as u64);
            let mut packed = vec![f32::NAN; conv.packed_len()];
            conv.pack(Weights::F32(&weights), &mut packed).unwrap();
            packed
        }).collect();
        let bias = values(outputs, seed ^ 7);
        let x = values(extent * extent * channels, seed ^ 9);
        let steps = [PointStep::Clamp(0.0, 6.0)];
        let epilogue = ConvEpilogue { bias: Some(&bias), steps: &steps, round: half, ..ConvEpilogue::default() };
        let strides = [(extent * channels) as isize, channels as isize];
        let image = Image { pixels: Pixels::F32(&x), origin: 0, channel: 1, strides: &strides, prologue: None };
        let places = convs.each_ref().map(|conv| conv.shape().output.iter().product::<usize>());
        let layout = Layout::ChannelsLast(outputs);
        let (mut between, mut wanted) = (vec![f32::NAN; places[0] * outputs], vec![f32::NAN; places[1] * outputs]);
        let to = ImageMut { pixels: PixelsMut::F32(&mut between), layout };
        convs[0].run(image, &packed[0], to, epilogue).unwrap();
        let strides = [(convs[1].shape().input[1] * outputs) as isize, outputs as isize];
        let stored: Vec<f16> = between.iter().map(|v| f16::from_f32(*v)).collect();
        let pixels = if half { Pixels::F16(&stored) } else { Pixels::F32(&between) };
        let second = Image { pixels, origin: 0, channel: 1, strides: &strides, prologue: None };
        convs[1].run(second, &packed[1], ImageMut { pixels: PixelsMut::F32(&mut wanted), layout }, epilogue).unwrap();
        let stages = [0, 1].map(|i| Stage { conv: &convs[i], weights: &packed[i], epilogue });
        let mut found = vec![f32::NAN; wanted.len()];
        match run_pair(stages, image, ImageMut { pixels: PixelsMut::F32(&mut found), layout }) {
            // Small images are copied instead, and far taps left out.
            Err(GemmError::Layout) => prop_assert!(!convs[0].feeds(&convs[1])),
            result => {
                result.unwrap();
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                prop_assert!(bits(&found) == bits(&wanted));
            }
        }
    }
}

/// The results of a convolution of codes by its definition.
fn byte_sums(shape: &ConvShape, x: &[i32], zero: i32, w: &[i8]) -> Vec<i64> {
    let (channels, taps) = (shape.channels, shape.kernel.iter().product::<usize>());
    let index = |mut i: usize, extents: &[usize]| {
        let mut at = vec![0; extents.len()];
        for (a, n) in extents.iter().enumerate().rev() {
            (at[a], i) = (i % n, i / n);
        }
        at
    };
    let mut sums = Vec::new();
    for place in 0..shape.output.iter().product() {
        let at = index(place, &shape.output);
        for o in 0..shape.outputs {
            let mut sum = 0i64;
            for tap in 0..taps {
                let offsets = index(tap, &shape.kernel);
                let pixel: Option<usize> = (0..at.len()).try_fold(0, |n, a| {
                    let i = (at[a] * shape.strides[a] + offsets[a] * shape.dilations[a]).checked_sub(shape.pad[a])?;
                    (i < shape.input[a]).then_some(n * shape.input[a] + i)
                });
                for c in 0..channels {
                    let x = pixel.map_or(zero, |pixel| x[pixel * channels + c]);
                    sum += i64::from(x - zero) * i64::from(w[(o * channels + c) * taps + tap]);
                }
            }
            sums.push(sum);
        }
    }
    sums
}

#[test]
fn bytes_are_convolved() {
    let mut rng = crate::random::Rng::new(17);
    let shapes = [
        (3, 5, vec![4, 6], vec![4, 6], vec![1, 1], vec![1, 1], vec![1, 1], vec![0, 0]),
        (8, 20, vec![9, 7], vec![5, 4], vec![3, 3], vec![2, 2], vec![1, 1], vec![1, 1]),
        (5, 33, vec![12], vec![8], vec![3], vec![1], vec![2], vec![0]),
        (4, 9, vec![3, 5, 4], vec![3, 5, 3], vec![3, 1, 2], vec![1, 1, 1], vec![1, 1, 1], vec![1, 0, 0]),
        (16, 70, vec![130], vec![130], vec![1], vec![1], vec![1], vec![0]),
    ];
    for (channels, outputs, input, output, kernel, strides, dilations, pad) in shapes {
        let taps: usize = kernel.iter().product();
        let shape = ConvShape { channels, outputs, groups: 1, input, output, kernel, strides, dilations, pad };
        let conv = ByteConv::new(&shape).unwrap();
        let w: Vec<i8> = (0..outputs * channels * taps).map(|_| rng.below(256) as u8 as i8).collect();
        let mut packed = vec![0; conv.packed_len()];
        conv.pack(&w, &mut packed).unwrap();
        let bytes: Vec<u8> =
            (0..channels * shape.input.iter().product::<usize>()).map(|_| rng.below(256) as u8).collect();
        let signed: Vec<i8> = bytes.iter().map(|&b| b as i8).collect();
        let mut strides = vec![channels as isize; shape.input.len()];
        for a in (1..strides.len()).rev() {
            strides[a - 1] = strides[a] * shape.input[a] as isize;
        }
        for (zero, is_signed) in [(0, true), (-9, true), (128, false), (30, false)] {
            let x: Vec<i32> = match is_signed {
                true => signed.iter().map(|&b| b.into()).collect(),
                false => bytes.iter().map(|&b| b.into()).collect(),
            };
            let wanted: Vec<f32> = byte_sums(&shape, &x, zero, &w).into_iter().map(|sum| sum as f32).collect();
            let pixels = if is_signed { BytePixels::I8(&signed) } else { BytePixels::U8(&bytes) };
            let starts = conv.starts(&w, zero - if is_signed { 0 } else { 128 }).unwrap();
            let image = ByteImage { pixels, origin: 0, strides: &strides, zero };
            let epilogue = ByteEpilogue {
                starts: Some(&starts),
                scales: &vec![1.0; outputs],
                bias: None,
                steps: &[],
                round: false,
            };
            let pitch = outputs + 3;
            let mut out = vec![f32::NAN; wanted.len() / outputs * pitch];
            conv.run(image, &packed, ByteResults::F32(&mut out), pitch, epilogue).unwrap();
            for (row, wanted) in out.chunks(pitch).zip(wanted.chunks(outputs)) {
                assert_eq!(&row[..outputs], wanted, "{shape:?}, zero {zero}");
                assert!(row[outputs..].iter().all(|v| v.is_nan()));
            }
            // What does not fit is refused.
            let short = ByteImage { origin: 1, ..image };
            assert!(conv.run(short, &packed, ByteResults::F32(&mut out), pitch, epilogue).is_err());
            assert!(conv.run(image, &packed[1..], ByteResults::F32(&mut out), pitch, epilogue).is_err());
            let few = ByteEpilogue { scales: &[1.0], ..epilogue };
            assert!(conv.run(image, &packed, ByteResults::F32(&mut out), pitch, few).is_err());
            let len = out.len() - 4;
            assert!(conv.run(image, &packed, ByteResults::F32(&mut out[..len]), pitch, epilogue).is_err());
        }
    }
}
