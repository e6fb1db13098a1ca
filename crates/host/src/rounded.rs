//! fp32 arithmetic whose results are rounded to fp16 values where they are made, in one pass over memory.
//!
//! Each result is that of the operation in fp32, then of [`convert::round_f16`]: the same bits on every
//! processor.

use crate::{convert, vectorize};

/// `to = round(a + b)`.
///
/// # Panics
/// If the lengths differ.
pub fn add(to: &mut [f32], a: &[f32], b: &[f32]) {
    run::<Add>(to, a, b);
}

/// `to = round(a - b)`.
///
/// # Panics
/// If the lengths differ.
pub fn sub(to: &mut [f32], a: &[f32], b: &[f32]) {
    run::<Sub>(to, a, b);
}

/// `to = round(a · b)`.
///
/// # Panics
/// If the lengths differ.
pub fn mul(to: &mut [f32], a: &[f32], b: &[f32]) {
    run::<Mul>(to, a, b);
}

/// `values = round(values · factor)`.
pub fn scale(values: &mut [f32], factor: f32) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::scale(values, factor) };
    }
    vectorize!({
        for v in values.iter_mut() {
            *v *= factor;
        }
    });
    convert::round_f16(values);
}

/// An operation on two numbers.
trait Operation {
    fn one(a: f32, b: f32) -> f32;
    #[cfg(target_arch = "x86_64")]
    fn sixteen(a: std::arch::x86_64::__m512, b: std::arch::x86_64::__m512) -> std::arch::x86_64::__m512;
}

macro_rules! operation {
    ($name:ident, $operator:tt, $intrinsic:ident) => {
        struct $name;

        impl Operation for $name {
            #[inline(always)]
            fn one(a: f32, b: f32) -> f32 {
                a $operator b
            }

            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            fn sixteen(a: std::arch::x86_64::__m512, b: std::arch::x86_64::__m512) -> std::arch::x86_64::__m512 {
                // SAFETY: only `x86::run` calls this, whose processor has AVX-512F.
                unsafe { std::arch::x86_64::$intrinsic(a, b) }
            }
        }
    };
}

operation!(Add, +, _mm512_add_ps);
operation!(Sub, -, _mm512_sub_ps);
operation!(Mul, *, _mm512_mul_ps);

fn run<O: Operation>(to: &mut [f32], a: &[f32], b: &[f32]) {
    assert!(to.len() == a.len() && to.len() == b.len(), "operands and results have one length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::run::<O>(to, a, b) };
    }
    vectorize!({
        for ((t, &a), &b) in to.iter_mut().zip(a).zip(b) {
            *t = O::one(a, b);
        }
    });
    convert::round_f16(to);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::Operation;

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    #[target_feature(enable = "avx512f")]
    pub fn run<O: Operation>(to: &mut [f32], a: &[f32], b: &[f32]) {
        let (blocks, rest) = to.as_chunks_mut::<16>();
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
        for ((t, a), b) in blocks.iter_mut().zip(a).zip(b) {
            // SAFETY: all three arrays have 16 elements (64 bytes).
            unsafe {
                let value = O::sixteen(_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr()));
                _mm512_storeu_ps(t.as_mut_ptr(), _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(value)));
            }
        }
        for ((t, &a), &b) in rest.iter_mut().zip(a_rest).zip(b_rest) {
            *t = f16::from_f32(O::one(a, b)).to_f32();
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn scale(values: &mut [f32], factor: f32) {
        let (blocks, rest) = values.as_chunks_mut::<16>();
        let factors = _mm512_set1_ps(factor);
        for v in blocks {
            // SAFETY: the array has 16 elements (64 bytes).
            unsafe {
                let value = _mm512_mul_ps(_mm512_loadu_ps(v.as_ptr()), factors);
                _mm512_storeu_ps(v.as_mut_ptr(), _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(value)));
            }
        }
        for v in rest {
            *v = f16::from_f32(*v * factor).to_f32();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ordinary numbers, subnormal ones, those beyond fp16, and what is no number.
    fn values(n: usize, seed: u32) -> Vec<f32> {
        let mut bits = seed;
        let mut next = || {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(bits)
        };
        let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 65504.0, 65520.0, 5.96e-8];
        (0..n).map(|i| if i % 5 == 0 { special[i / 5 % 8] } else { next() }).collect()
    }

    #[test]
    fn results_are_those_of_the_operation_and_then_of_the_rounding() {
        for n in [0, 1, 15, 16, 17, 1000] {
            let (a, b) = (values(n, 1), values(n, 2));
            type Fused = fn(&mut [f32], &[f32], &[f32]);
            type Plain = fn(f32, f32) -> f32;
            let all: [(Fused, Plain); 3] = [(add, |a, b| a + b), (sub, |a, b| a - b), (mul, |a, b| a * b)];
            let same = |found: &[f32], one: &dyn Fn(usize) -> f32| {
                let mut want: Vec<f32> = (0..n).map(one).collect();
                convert::round_f16(&mut want);
                let equal = |(f, w): (&f32, &f32)| f.to_bits() == w.to_bits() || (f.is_nan() && w.is_nan());
                assert!(found.iter().zip(&want).all(equal), "{n}");
            };
            for (fused, plain) in all {
                let mut found = vec![9.0; n];
                fused(&mut found, &a, &b);
                same(&found, &|i| plain(a[i], b[i]));
            }
            let mut found = a.clone();
            scale(&mut found, 0.37);
            same(&found, &|i| a[i] * 0.37);
        }
    }
}
