//! The exponentials of a softmax, and its gradient, row by row.
//!
//! The gradient is `p · (d - Σ p · d)` for probabilities `p` and the gradients `d` that arrive at
//! them. As single operations that is five passes over memory, each of which rounds to fp16. Here
//! it is two: one for the sum, one for the results.
//!
//! Invariant: each value has the same bits on every processor. Exponentials are those of
//! [`simd::exp`]; a value of the gradient equals that of the single operations in fp32, each
//! rounded to fp16 by [`convert::round_f16`].

use half::f16;

use crate::{convert, rounded, simd, vectorize};

/// Lanes of a sum.
pub const LANES: usize = 16;

/// Elements that the portable routines widen at a time; a multiple of [`LANES`].
const PIECE: usize = 256;

/// Numbers of a row: fp16, or fp32 of a value that was computed before.
#[derive(Clone, Copy, Debug)]
pub enum RowValues<'a> {
    /// As they are in memory.
    F16(&'a [f16]),
    /// Widened, and rounded to fp16.
    F32(&'a [f32]),
}

impl RowValues<'_> {
    fn len(&self) -> usize {
        match self {
            RowValues::F16(values) => values.len(),
            RowValues::F32(values) => values.len(),
        }
    }

    /// Some of the numbers, widened.
    fn widened(&self, first: usize, to: &mut [f32]) {
        match self {
            RowValues::F16(values) => convert::f16_to_f32(&values[first..][..to.len()], to),
            RowValues::F32(values) => to.copy_from_slice(&values[first..][..to.len()]),
        }
    }
}

/// Calls a generic function for the number types of two rows.
#[cfg(target_arch = "x86_64")]
macro_rules! typed {
    ($a:expr, $b:expr, $function:path $(, $argument:expr)*) => {
        match ($a, $b) {
            (RowValues::F16(a), RowValues::F16(b)) => $function(a, b $(, $argument)*),
            (RowValues::F16(a), RowValues::F32(b)) => $function(a, b $(, $argument)*),
            (RowValues::F32(a), RowValues::F16(b)) => $function(a, b $(, $argument)*),
            (RowValues::F32(a), RowValues::F32(b)) => $function(a, b $(, $argument)*),
        }
    };
}

/// e^(v - max) for each value `v` of `from`, or of the row itself. Returns the partial sums of the
/// results: lane `i` adds the results `i`, `i + 16` and so on.
///
/// # Panics
/// If the lengths differ.
pub fn exponential_lanes(row: &mut [f32], from: Option<&[f32]>, max: f32) -> [f32; LANES] {
    let length = row.len();
    assert!(from.is_none_or(|from| from.len() == length), "values and results have one length");
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    if let Some(from) = from {
        rest.copy_from_slice(&from[length - rest.len()..]);
    }
    let from = from.map(|from| from.as_chunks::<LANES>().0);
    let mut lanes = blocks_of_exponentials(blocks, from, max);
    let mut last = [0.0f32; LANES];
    vectorize!({
        let most = max;
        for (lane, v) in last.iter_mut().zip(rest) {
            *v = simd::exp(*v - most);
            *lane = *v;
        }
    });
    lanes.iter_mut().zip(last).for_each(|(lane, v)| *lane += v);
    lanes
}

/// [`exponential_lanes`] of whole blocks.
fn blocks_of_exponentials(blocks: &mut [[f32; LANES]], from: Option<&[[f32; LANES]]>, max: f32) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::exponential_blocks(blocks, from, max) };
    }
    if let Some(from) = from {
        blocks.copy_from_slice(from);
    }
    exponential_blocks(blocks, max)
}

fn exponential_blocks(blocks: &mut [[f32; LANES]], max: f32) -> [f32; LANES] {
    vectorize!({
        // A copy, because the vector code has a reference, which could be one to the sums.
        let most = max;
        let mut lanes = [0.0f32; LANES];
        for block in blocks {
            for i in 0..LANES {
                block[i] = simd::exp(block[i] - most);
                lanes[i] += block[i];
            }
        }
        lanes
    })
}

/// The partial sums of `round(probs · grads)`: lane `i` adds the products `i`, `i + 16` and so on.
///
/// # Panics
/// If the lengths differ.
pub fn weighted_lanes(probs: RowValues<'_>, grads: RowValues<'_>) -> [f32; LANES] {
    let length = probs.len();
    assert!(grads.len() == length, "both rows have one length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { typed!(probs, grads, x86::weighted_lanes) };
    }
    let mut lanes = [0.0; LANES];
    let (mut a, mut b, mut products) = ([0.0; PIECE], [0.0; PIECE], [0.0; PIECE]);
    for first in (0..length).step_by(PIECE) {
        let piece = PIECE.min(length - first);
        let (a, b, products) = (&mut a[..piece], &mut b[..piece], &mut products[..piece]);
        probs.widened(first, a);
        grads.widened(first, b);
        rounded::mul(products, a, b);
        for block in products.chunks(LANES) {
            lanes.iter_mut().zip(block).for_each(|(lane, v)| *lane += v);
        }
    }
    lanes
}

/// `to = round(probs · round(grads - mean))`, and with a `scale` the rounded product of that with
/// it.
///
/// # Panics
/// If the lengths differ.
pub fn centered(to: &mut [f32], probs: RowValues<'_>, grads: RowValues<'_>, mean: f32, scale: Option<f32>) {
    let length = to.len();
    assert!(probs.len() == length && grads.len() == length, "operands and results have one length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { typed!(probs, grads, x86::centered, to, mean, scale) };
    }
    let (mut a, mut b) = ([0.0; PIECE], [0.0; PIECE]);
    let mean = [mean; PIECE];
    for (i, to) in to.chunks_mut(PIECE).enumerate() {
        let (a, b, mean) = (&mut a[..to.len()], &mut b[..to.len()], &mean[..to.len()]);
        probs.widened(i * PIECE, a);
        grads.widened(i * PIECE, b);
        rounded::pair([rounded::Binary::Sub, rounded::Binary::Mul], false, to, [b, mean, a]);
        if let Some(scale) = scale {
            rounded::scale(to, scale);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::LANES;
    use crate::rounded::round;
    use crate::simd::{VANISHES, exp_avx512};

    /// A number that vectors of fp32 are loaded from.
    pub trait Number: Copy {
        /// # Safety
        /// The processor has AVX-512F.
        unsafe fn load(from: &[Self; LANES]) -> __m512;
        fn one(self) -> f32;
    }

    impl Number for f16 {
        #[inline(always)]
        unsafe fn load(from: &[f16; LANES]) -> __m512 {
            // SAFETY: the array has 16 elements (32 bytes); the processor has AVX-512F.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
        }

        fn one(self) -> f32 {
            self.to_f32()
        }
    }

    impl Number for f32 {
        #[inline(always)]
        unsafe fn load(from: &[f32; LANES]) -> __m512 {
            // SAFETY: the array has 16 elements (64 bytes); the processor has AVX-512F.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }

        fn one(self) -> f32 {
            self
        }
    }

    fn round_one(v: f32) -> f32 {
        f16::from_f32(v).to_f32()
    }

    #[target_feature(enable = "avx512f")]
    pub fn exponential_blocks(blocks: &mut [[f32; LANES]], from: Option<&[[f32; LANES]]>, max: f32) -> [f32; LANES] {
        assert!(from.is_none_or(|from| from.len() == blocks.len()), "values and results have one length");
        let (most, mut sums) = (_mm512_set1_ps(max), _mm512_setzero_ps());
        let (count, to) = (blocks.len(), blocks.as_mut_ptr());
        let from = from.map_or(to.cast_const(), <[_]>::as_ptr);
        for i in 0..count {
            // SAFETY: both have so many arrays of 16 elements (64 bytes); one is read before it is
            // written.
            unsafe {
                let value = exp(_mm512_sub_ps(_mm512_loadu_ps(from.add(i).cast()), most));
                _mm512_storeu_ps(to.add(i).cast(), value);
                sums = _mm512_add_ps(sums, value);
            }
        }
        let mut lanes = [0.0; LANES];
        // SAFETY: the array has 16 elements (64 bytes).
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums) };
        lanes
    }

    /// [`crate::simd::exp`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn exp(x: __m512) -> __m512 {
        // If one of two operands is NaN, the instruction returns the second.
        let x = _mm512_min_ps(_mm512_set1_ps(89.0), x);
        let remains = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(VANISHES));
        // SAFETY: the processor has AVX-512F.
        _mm512_maskz_mov_ps(remains, unsafe { exp_avx512(_mm512_maskz_mov_ps(remains, x)) })
    }

    #[target_feature(enable = "avx512f")]
    pub fn weighted_lanes<A: Number, B: Number>(probs: &[A], grads: &[B]) -> [f32; LANES] {
        let ((probs, probs_rest), (grads, grads_rest)) = (probs.as_chunks::<LANES>(), grads.as_chunks::<LANES>());
        let mut sums = _mm512_setzero_ps();
        for (p, d) in probs.iter().zip(grads) {
            // SAFETY: the processor has AVX-512F.
            let (p, d) = unsafe { (A::load(p), B::load(d)) };
            sums = _mm512_add_ps(sums, round(_mm512_mul_ps(p, d)));
        }
        let mut lanes = [0.0; LANES];
        // SAFETY: the array has 16 elements (64 bytes).
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums) };
        for (lane, (&p, &d)) in lanes.iter_mut().zip(probs_rest.iter().zip(grads_rest)) {
            *lane += round_one(p.one() * d.one());
        }
        lanes
    }

    #[target_feature(enable = "avx512f")]
    pub fn centered<A: Number, B: Number>(probs: &[A], grads: &[B], to: &mut [f32], mean: f32, scale: Option<f32>) {
        let ((probs, probs_rest), (grads, grads_rest)) = (probs.as_chunks::<LANES>(), grads.as_chunks::<LANES>());
        let (blocks, rest) = to.as_chunks_mut::<LANES>();
        let means = _mm512_set1_ps(mean);
        let factors = scale.map(|scale| _mm512_set1_ps(scale));
        for ((t, p), d) in blocks.iter_mut().zip(probs).zip(grads) {
            // SAFETY: the processor has AVX-512F, and `t` has 16 elements (64 bytes).
            unsafe {
                let mut value = round(_mm512_mul_ps(round(_mm512_sub_ps(B::load(d), means)), A::load(p)));
                if let Some(factors) = factors {
                    value = round(_mm512_mul_ps(value, factors));
                }
                _mm512_storeu_ps(t.as_mut_ptr(), value);
            }
        }
        for ((t, &p), &d) in rest.iter_mut().zip(probs_rest).zip(grads_rest) {
            *t = round_one(round_one(d.one() - mean) * p.one());
            if let Some(scale) = scale {
                *t = round_one(*t * scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of both signs and many magnitudes, rounded to fp16, with a zero of each sign.
    fn numbers(n: usize, seed: u32) -> Vec<f16> {
        let mut bits = seed;
        let mut next = || {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (bits >> 8) as f32 / 8e6 - 1.0
        };
        let special = [0.0, -0.0, 300.0, 6e-8];
        (0..n).map(|i| f16::from_f32(if i % 7 == 0 { special[i / 7 % 4] } else { next() })).collect()
    }

    #[test]
    fn exponentials_are_those_of_the_plain_function() {
        // Bits of all magnitudes and both signs, NaN and infinity included.
        let all: Vec<f32> = (0..=u32::MAX).step_by(4_099).map(f32::from_bits).collect();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for (values, max) in all.chunks(300).flat_map(|values| [(values, 0.0), (values, 1.75)]) {
            let values = &values[..values.len() - values.len() % 7];
            let mut found = values.to_vec();
            let lanes = exponential_lanes(&mut found, None, max);
            let mut other = vec![9.0; values.len()];
            let others = exponential_lanes(&mut other, Some(values), max);
            assert_eq!((bits(&other), bits(&others)), (bits(&found), bits(&lanes)));
            let want: Vec<f32> = values.iter().map(|v| simd::exp(v - max)).collect();
            let is_same = |(f, w): (&f32, &f32)| f.to_bits() == w.to_bits() || (f.is_nan() && w.is_nan());
            assert!(found.iter().zip(&want).all(is_same), "{values:?} {max}");
            let mut sums = [0.0f32; LANES];
            for block in want.chunks(LANES) {
                sums.iter_mut().zip(block).for_each(|(sum, v)| *sum += v);
            }
            if lanes.iter().all(|lane| !lane.is_nan()) {
                assert_eq!(bits(&lanes), bits(&sums));
            } else {
                assert!(lanes.iter().zip(&sums).all(|(lane, sum)| lane.is_nan() == sum.is_nan()));
            }
        }
    }

    #[test]
    fn values_are_those_of_the_single_operations() {
        let round = |v: f32| f16::from_f32(v).to_f32();
        for n in [0, 1, 15, 16, 31, 64, 255, 256, 300, 700] {
            let (p, d) = (numbers(n, 1), numbers(n, 2));
            let [wide_p, wide_d] = [&p, &d].map(|v| v.iter().map(|v| v.to_f32()).collect::<Vec<f32>>());
            let mut lanes = [0.0f32; LANES];
            for (i, (p, d)) in wide_p.iter().zip(&wide_d).enumerate() {
                lanes[i % LANES] += round(p * d);
            }
            let mean = round(lanes.iter().sum());
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            for a in [RowValues::F16(&p), RowValues::F32(&wide_p)] {
                for b in [RowValues::F16(&d), RowValues::F32(&wide_d)] {
                    assert_eq!(bits(&weighted_lanes(a, b)), bits(&lanes), "{n}");
                    for scale in [None, Some(0.35)] {
                        let mut found = vec![9.0; n];
                        centered(&mut found, a, b, mean, scale);
                        let one = |(p, d): (&f32, &f32)| {
                            let value = round(p * round(d - mean));
                            scale.map_or(value, |scale| round(value * scale))
                        };
                        let want: Vec<f32> = wide_p.iter().zip(&wide_d).map(one).collect();
                        assert_eq!(bits(&found), bits(&want), "{n} {scale:?}");
                    }
                }
            }
        }
    }
}
