//! Every kernel against plain loops over integers.

use half::f16;

use super::*;
use crate::gemm::strip::{Gate, PointStep};
use crate::random::Rng;
use crate::simd;

/// Random codes, a part of them the extremes.
fn codes(rng: &mut Rng, count: usize) -> Vec<i8> {
    let code = |rng: &mut Rng| match rng.below(8) {
        0 => i8::MIN,
        1 => i8::MAX,
        _ => rng.below(256) as u8 as i8,
    };
    (0..count).map(|_| code(rng)).collect()
}

/// Sums of rows of `left` with rows of `right`.
fn sums(left: &[i8], right: &[i8], k: usize) -> Vec<i64> {
    let sum = |(a, b): (&[i8], &[i8])| a.iter().zip(b).map(|(&a, &b)| i64::from(a) * i64::from(b)).sum();
    left.chunks(k).flat_map(|a| right.chunks(k).map(move |b| (a, b))).map(sum).collect()
}

/// What follows sums of `n` columns: scales alone.
fn finish(scales: &[f32], store: ByteStore) -> ByteFinish<'_> {
    ByteFinish { starts: None, scales, bias: None, steps: &[], round: false, store, pitch: scales.len() }
}

/// The results of a product of `left` and `right`.
fn run<T: Copy>(
    kernel: ByteKernel,
    (left, right): (&[i8], &[i8]),
    k: usize,
    zero: T,
    finish: impl FnOnce(*mut T) -> ByteFinish<'static>,
) -> Vec<T> {
    let (rows, n) = (left.len() / k, right.len() / k);
    let shape = ByteShape::with(kernel, n, k).unwrap();
    let mut weights = vec![99; shape.packed_len()];
    shape.pack(|column, step| right[column * k + step], &mut weights).unwrap();
    let mut out = vec![zero; rows * n];
    let finish = finish(out.as_mut_ptr());
    let gather = |row: usize, to: &mut [i8]| to.copy_from_slice(&left[row * k..][..k]);
    let product = ByteProduct { shape, rows, weights: &weights, gather: &gather, finish };
    // SAFETY: there are so many rows of as many results as columns.
    unsafe { product.run(rows % 2 == 0).unwrap() };
    out
}

fn leaked<T>(values: Vec<T>) -> &'static [T] {
    Box::leak(values.into_boxed_slice())
}

#[test]
fn sums_are_exact() {
    let mut rng = Rng::new(1);
    let shapes =
        [(1, 1, 1), (7, 5, 3), (6, 64, 4), (13, 65, 130), (2, 79, 33), (97, 33, 17), (192, 130, 64), (5, 17, 512)];
    for (m, n, k) in shapes {
        let (left, right) = (codes(&mut rng, m * k), codes(&mut rng, n * k));
        // Below 2²⁴ fp32 holds every sum.
        let wanted: Vec<f32> = sums(&left, &right, k).into_iter().map(|sum| sum as f32).collect();
        for &kernel in ByteKernel::all() {
            let scales = leaked(vec![1.0; n]);
            let found = run(kernel, (&left, &right), k, f32::NAN, |out| finish(scales, ByteStore::F32(out)));
            assert_eq!(found, wanted, "{kernel:?}, {m}×{n}×{k}");
        }
    }
}

#[test]
fn the_longest_sums_fit() {
    // 65,793 products of -128 and -128, or of -128 and 127.
    for (x, w) in [(-128i8, -128i8), (-128, 127), (127, -128)] {
        for k in [4096, MOST_DEPTH] {
            let (left, right) = (vec![x; 2 * k], vec![w; 3 * k]);
            let wanted = (k as i64 * i64::from(x) * i64::from(w)) as f32;
            for &kernel in ByteKernel::all() {
                let scales = leaked(vec![1.0; 3]);
                let found = run(kernel, (&left, &right), k, f32::NAN, |out| finish(scales, ByteStore::F32(out)));
                assert_eq!(found, [wanted; 6], "{kernel:?}, {k} of {x} · {w}");
            }
        }
    }
    // With the start of an activation whose zero is at the other end.
    let k = MOST_DEPTH;
    let starts = leaked(vec![-127 * -128 * k as i32]);
    for &kernel in ByteKernel::all() {
        let found = run(kernel, (&vec![-128; k], &vec![-128; k]), k, f32::NAN, |out| ByteFinish {
            starts: Some(starts),
            ..finish(leaked(vec![1.0]), ByteStore::F32(out))
        });
        assert_eq!(found, [(255 * 128 * k as i64) as f32], "{kernel:?}");
    }
    assert!(ByteShape::new(1, MOST_DEPTH + 1).is_none() && ByteShape::new(0, 1).is_none());
}

/// The steps of one value, as their descriptions say.
fn stepped(steps: &[PointStep], mut v: f32) -> f32 {
    let (round, mut held) = (|v: f32| f16::from_f32(v).to_f32(), v);
    for step in steps {
        v = match *step {
            PointStep::Clamp(low, high) => v.max(low).min(high),
            PointStep::From(low) if v < low => 0.0,
            PointStep::Affine(factor, term) => factor * v + term,
            PointStep::Sigmoid => simd::sigmoid(v),
            PointStep::Silu => v * simd::sigmoid(v),
            PointStep::Gelu => simd::gelu(v),
            PointStep::Round => round(v),
            PointStep::TimesHeld => v * held,
            PointStep::Gate(g) if g.round => v * round((g.factor * v + g.term).max(g.low).min(g.high)),
            PointStep::Gate(g) => v * (g.factor * v + g.term).max(g.low).min(g.high),
            _ => v,
        };
        if *step == PointStep::Hold {
            held = v;
        }
    }
    v
}

#[test]
fn results_are_finished() {
    use PointStep::{Affine, Clamp, From, Gelu, Hold, Round, Sigmoid, Silu, TimesHeld};
    let gate = |round| Gate { factor: 1.0 / 6.0, term: 0.5, low: 0.0, high: 1.0, round };
    let all_steps: [&'static [PointStep]; 6] = [
        &[],
        &[Round, Clamp(0.0, f32::INFINITY)],
        leaked(vec![Round, PointStep::Gate(gate(true)), Round, PointStep::Gate(gate(false))]),
        &[Hold, Affine(0.3, -0.2), Sigmoid, TimesHeld, From(-0.1)],
        &[Silu, Round, Gelu],
        &[Clamp(0.0, 6.0)],
    ];
    let mut rng = Rng::new(2);
    let (m, n, k) = (11, 37, 29);
    let (left, right) = (codes(&mut rng, m * k), codes(&mut rng, n * k));
    let some = |rng: &mut Rng, by: f32| -> &'static [f32] {
        leaked((0..n).map(|_| (rng.uniform() as f32 - 0.4) * by).collect())
    };
    let (scales, bias) = (some(&mut rng, 1e-4), some(&mut rng, 3.0));
    let starts: &'static [i32] = leaked((0..n).map(|_| rng.below(2000) as i32 - 1000).collect());
    let whole = sums(&left, &right, k);
    for (case, steps) in all_steps.into_iter().enumerate() {
        let how = Requantize { scale: [0.03, 0.125][case % 2], zero: [0.0, -7.0, 3.0][case % 3] };
        let wanted: Vec<f32> = whole
            .iter()
            .enumerate()
            .map(|(i, &sum)| {
                let c = i % n;
                let bias = if case == 1 { 0.0 } else { bias[c] };
                stepped(steps, (sum + i64::from(starts[c])) as f32 * scales[c] + bias)
            })
            .collect();
        for &kernel in ByteKernel::all() {
            let what = |store| ByteFinish {
                starts: Some(starts),
                bias: (case != 1).then_some(bias),
                steps,
                ..finish(scales, store)
            };
            let both = (&left[..], &right[..]);
            assert_eq!(run(kernel, both, k, 0.0, |out| what(ByteStore::F32(out))), wanted, "{case} {kernel:?}");
            let halves: Vec<f16> = wanted.iter().map(|&v| f16::from_f32(v)).collect();
            assert_eq!(run(kernel, both, k, f16::NAN, |out| what(ByteStore::F16(out))), halves, "{case} {kernel:?}");
            let rounded = run(kernel, both, k, 0.0, |out| ByteFinish { round: true, ..what(ByteStore::F32(out)) });
            assert_eq!(rounded, halves.iter().map(|h| h.to_f32()).collect::<Vec<_>>(), "{case} {kernel:?}");
            for (signed, low, high) in [(true, -128.0, 127.0), (false, 0.0, 255.0)] {
                let code = |v: &f32| ((v / how.scale).round_ties_even() + how.zero).clamp(low, high) as i32 as u8;
                let found = run(kernel, both, k, 1u8, |out| what(ByteStore::Codes(out, how, signed)));
                assert_eq!(found, wanted.iter().map(code).collect::<Vec<_>>(), "{case} {kernel:?}");
            }
        }
    }
}

#[test]
fn ties_go_to_even_and_extremes_are_limited() {
    let how = Requantize { scale: 2.0, zero: 1.0 };
    let values = [1.0, 3.0, -1.0, -3.0, 5.0, 1e9, -1e9, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut to = [9; 10];
    how.codes(&values, &mut to, true);
    assert_eq!(to.map(|c| c as i8), [1, 3, 1, -1, 3, 127, -128, 127, -128, -128]);
    how.codes(&values, &mut to, false);
    assert_eq!(to, [1, 3, 1, 0, 3, 255, 0, 255, 0, 0]);
}
