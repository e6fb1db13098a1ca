use proptest::prelude::*;

use super::*;

/// Reproducible values in about [-1, 1), all exact in fp16.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut random = crate::random::Rng::new(seed);
    (0..n).map(|_| ((random.uniform() * 2048.0 - 1024.0).round() / 1024.0) as f32).collect()
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

fn check(shape: ConvShape, half: bool, finite: bool, gap: usize, seed: u64) {
    let volume: usize = shape.input.iter().product();
    let (row, taps) = (volume + gap, shape.kernel.iter().product::<usize>());
    let x = values(shape.channels * volume, seed);
    let w = values(shape.outputs * shape.channels / shape.groups * taps, seed + 1);
    let bias = values(shape.outputs, seed + 2);
    let conv = Conv::new(shape.clone(), finite).expect("a shape that fits");
    let mut packed = vec![f32::NAN; conv.packed_len()];
    if half {
        let w: Vec<f16> = w.iter().map(|v| f16::from_f32(*v)).collect();
        conv.pack(Weights::F16(&w), &mut packed).unwrap();
    } else {
        conv.pack(Weights::F32(&w), &mut packed).unwrap();
    }
    // Channels with a gap of NaN between them.
    let mut spread = vec![f32::NAN; shape.channels * row];
    for (from, to) in x.chunks(volume).zip(spread.chunks_mut(row)) {
        to[..volume].copy_from_slice(from);
    }
    let halves: Vec<f16> = spread.iter().map(|v| f16::from_f32(*v)).collect();
    let mut strides = vec![1isize; shape.input.len()];
    for a in (1..strides.len()).rev() {
        strides[a - 1] = strides[a] * shape.input[a] as isize;
    }
    let pixels = if half { Pixels::F16(&halves) } else { Pixels::F32(&spread) };
    let image = Image { pixels, origin: 0, channel: row as isize, strides: &strides };
    let wanted = reference(&shape, &x, &w, Some(&bias));
    let epilogue = ConvEpilogue { bias: Some(&bias), round: half };
    let mut found = vec![f32::NAN; wanted.len()];
    conv.run(image, &packed, ImageMut::F32(&mut found), epilogue).unwrap();
    let mut stored = vec![f16::NAN; wanted.len()];
    conv.run(image, &packed, ImageMut::F16(&mut stored), epilogue).unwrap();
    for (i, ((found, wanted), stored)) in found.iter().zip(&wanted).zip(&stored).enumerate() {
        // One rounding of fp32 for each product of at most 1; sums of a few of them are about 1.
        let depth = shape.channels / shape.groups * taps;
        let bound =
            (depth + 8) as f64 * 2f64.powi(-24) * (1.0 + wanted.abs()) + if half { wanted.abs() / 2048.0 } else { 0.0 };
        assert!((f64::from(*found) - wanted).abs() <= bound, "{i}: {found}, not {wanted} ({shape:?})");
        if half {
            assert_eq!(f16::from_f32(*found).to_bits(), stored.to_bits(), "{i}: rounded once ({shape:?})");
        }
    }
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

/// Shapes large enough for several panels, blocks along K, and threads.
#[test]
fn large_shapes_give_the_sums_of_the_definition() {
    let flat = |channels, outputs, groups, size, kernel, stride, dilation, pad: usize| ConvShape {
        channels,
        outputs,
        groups,
        input: vec![size; 2],
        output: vec![(size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1; 2],
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        dilations: vec![dilation; 2],
        pad: vec![pad; 2],
    };
    for (i, shape) in [
        flat(3, 32, 1, 56, 7, 2, 1, 3),
        flat(96, 40, 1, 14, 3, 1, 1, 1),
        flat(128, 300, 1, 9, 3, 1, 1, 1),
        flat(64, 64, 8, 28, 3, 2, 1, 1),
        flat(48, 48, 48, 40, 5, 2, 1, 2),
        flat(32, 32, 32, 30, 7, 1, 1, 3),
        flat(40, 20, 1, 14, 3, 1, 12, 12),
        flat(16, 64, 1, 31, 1, 2, 1, 0),
        flat(256, 64, 1, 14, 1, 1, 1, 0),
        flat(96, 40, 1, 1, 1, 1, 1, 0),
        flat(64, 48, 4, 2, 1, 1, 1, 0),
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
        let image = Image { pixels: Pixels::F32(&[1.0, 2.0]), origin: 0, channel: 2, strides: &[1] };
        conv.run(image, &packed, ImageMut::F32(&mut sums), ConvEpilogue::default()).unwrap();
        assert_eq!(sums.iter().any(|v| v.is_nan()), nan);
    }
    assert!(!Weights::F32(&weights).is_finite());
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
        let image = Image { pixels: Pixels::F32(x), origin, channel, strides };
        conv.run(image, packed, ImageMut::F32(out), ConvEpilogue::default())
    };
    assert!(run(&x, 0, 16, &[4, 1], &packed, &mut out).is_ok());
    assert!(run(&x[..31], 0, 16, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 1, 16, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 0, -16, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 0, isize::MAX, &[4, 1], &packed, &mut out).is_err());
    assert!(run(&x, 0, 16, &[4, 1], &packed[1..], &mut out).is_err());
    assert!(run(&x, 0, 16, &[4, 1], &packed, &mut out[1..]).is_err());
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
