//! fp32 arithmetic whose results are rounded to fp16 in registers, in one pass over memory.
//!
//! Invariant: each result equals the fp32 operation followed by [`convert::round_f16`], bit for bit
//! on every processor.

use half::f16;

use crate::{convert, vectorize};

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{NEAREST, round};

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

/// An operation on two numbers: sum, difference or product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a · b`.
    Mul,
}

/// Two operations in sequence, each rounded: `to = round(round(a first b) second c)`. With `raw`,
/// `a` is rounded first.
///
/// # Panics
/// If the lengths differ.
pub fn pair([first, second]: [Binary; 2], raw: bool, to: &mut [f32], [a, b, c]: [&[f32]; 3]) {
    macro_rules! second {
        ($first:ty) => {
            match second {
                Binary::Add => run_pair::<$first, Add>(raw, to, a, b, c),
                Binary::Sub => run_pair::<$first, Sub>(raw, to, a, b, c),
                Binary::Mul => run_pair::<$first, Mul>(raw, to, a, b, c),
            }
        };
    }
    match first {
        Binary::Add => second!(Add),
        Binary::Sub => second!(Sub),
        Binary::Mul => second!(Mul),
    }
}

/// `to = round(round(from · scale) + added)`; returns the largest result, `-∞` for empty slices. A
/// NaN may be missed.
///
/// # Panics
/// If the lengths differ.
pub fn scale_add(to: &mut [f32], from: &[f32], scale: f32, added: &[f16]) -> f32 {
    assert!(to.len() == from.len() && to.len() == added.len(), "operands and results have one length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::scale_add(to, from, scale, added) };
    }
    const PIECE: usize = 256;
    let mut most = f32::NEG_INFINITY;
    let mut wide = [0.0f32; PIECE];
    for ((to, from), added) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)).zip(added.chunks(PIECE)) {
        let wide = &mut wide[..to.len()];
        convert::f16_to_f32(added, wide);
        vectorize!({
            for (t, &v) in to.iter_mut().zip(from) {
                *t = v * scale;
            }
        });
        convert::round_f16(to);
        vectorize!({
            for (t, &v) in to.iter_mut().zip(&*wide) {
                *t += v;
            }
        });
        convert::round_f16(to);
        most = to.iter().fold(most, |m, &v| if v > m { v } else { m });
    }
    most
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

fn run_pair<F: Operation, G: Operation>(raw: bool, to: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
    let length = to.len();
    assert!([a, b, c].iter().all(|from| from.len() == length), "operands and results have one length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::run_pair::<F, G>(raw, to, a, b, c) };
    }
    to.copy_from_slice(a);
    if raw {
        convert::round_f16(to);
    }
    vectorize!({
        for (t, &b) in to.iter_mut().zip(b) {
            *t = F::one(*t, b);
        }
    });
    convert::round_f16(to);
    vectorize!({
        for (t, &c) in to.iter_mut().zip(c) {
            *t = G::one(*t, c);
        }
    });
    convert::round_f16(to);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::Operation;

    pub const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    #[target_feature(enable = "avx512f")]
    pub fn run<O: Operation>(to: &mut [f32], a: &[f32], b: &[f32]) {
        let (blocks, rest) = to.as_chunks_mut::<16>();
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
        for ((t, a), b) in blocks.iter_mut().zip(a).zip(b) {
            // SAFETY: all three arrays have 16 elements (64 bytes).
            unsafe {
                let value = O::sixteen(_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr()));
                _mm512_storeu_ps(t.as_mut_ptr(), round(value));
            }
        }
        for ((t, &a), &b) in rest.iter_mut().zip(a_rest).zip(b_rest) {
            *t = f16::from_f32(O::one(a, b)).to_f32();
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn round(v: __m512) -> __m512 {
        _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(v))
    }

    #[target_feature(enable = "avx512f")]
    pub fn run_pair<F: Operation, G: Operation>(raw: bool, to: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
        let (blocks, rest) = to.as_chunks_mut::<16>();
        let ((a, a_rest), (b, b_rest), (c, c_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>(), c.as_chunks::<16>());
        for (((t, a), b), c) in blocks.iter_mut().zip(a).zip(b).zip(c) {
            // SAFETY: all four arrays have 16 elements (64 bytes).
            unsafe {
                let a = _mm512_loadu_ps(a.as_ptr());
                let value = F::sixteen(if raw { round(a) } else { a }, _mm512_loadu_ps(b.as_ptr()));
                let value = G::sixteen(round(value), _mm512_loadu_ps(c.as_ptr()));
                _mm512_storeu_ps(t.as_mut_ptr(), round(value));
            }
        }
        let round = |v: f32| f16::from_f32(v).to_f32();
        for (((t, &a), &b), &c) in rest.iter_mut().zip(a_rest).zip(b_rest).zip(c_rest) {
            *t = round(G::one(round(F::one(if raw { round(a) } else { a }, b)), c));
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn scale_add(to: &mut [f32], from: &[f32], scale: f32, added: &[f16]) -> f32 {
        let (blocks, rest) = to.as_chunks_mut::<16>();
        let ((from, from_rest), (added, added_rest)) = (from.as_chunks::<16>(), added.as_chunks::<16>());
        let factors = _mm512_set1_ps(scale);
        let mut most = _mm512_set1_ps(f32::NEG_INFINITY);
        for ((t, v), m) in blocks.iter_mut().zip(from).zip(added) {
            // SAFETY: two arrays have 16 elements of 4 bytes, one has 16 of 2.
            unsafe {
                let value = round(_mm512_mul_ps(_mm512_loadu_ps(v.as_ptr()), factors));
                let added = _mm512_cvtph_ps(_mm256_loadu_si256(m.as_ptr().cast()));
                let value = round(_mm512_add_ps(value, added));
                _mm512_storeu_ps(t.as_mut_ptr(), value);
                // If one of two operands is NaN, the instruction returns the second.
                most = _mm512_max_ps(value, most);
            }
        }
        let mut most = _mm512_reduce_max_ps(most);
        let round = |v: f32| f16::from_f32(v).to_f32();
        for ((t, &v), m) in rest.iter_mut().zip(from_rest).zip(added_rest) {
            *t = round(round(v * scale) + m.to_f32());
            most = if *t > most { *t } else { most };
        }
        most
    }

    #[target_feature(enable = "avx512f")]
    pub fn scale(values: &mut [f32], factor: f32) {
        let (blocks, rest) = values.as_chunks_mut::<16>();
        let factors = _mm512_set1_ps(factor);
        for v in blocks {
            // SAFETY: the array has 16 elements (64 bytes).
            unsafe {
                let value = _mm512_mul_ps(_mm512_loadu_ps(v.as_ptr()), factors);
                _mm512_storeu_ps(v.as_mut_ptr(), round(value));
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

    /// Normal and subnormal numbers, numbers beyond the range of fp16, infinities and NaN.
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
            let c = values(n, 3);
            let round = |v: f32| f16::from_f32(v).to_f32();
            let all: [(Binary, Plain); 3] =
                [(Binary::Add, |a, b| a + b), (Binary::Sub, |a, b| a - b), (Binary::Mul, |a, b| a * b)];
            for (first, f) in all {
                for (second, g) in all {
                    for raw in [false, true] {
                        let mut found = vec![9.0; n];
                        pair([first, second], raw, &mut found, [&a, &b, &c]);
                        same(&found, &|i| g(round(f(if raw { round(a[i]) } else { a[i] }, b[i])), c[i]));
                    }
                }
            }
            let halves: Vec<f16> = b.iter().map(|&v| f16::from_f32(v)).collect();
            let most = scale_add(&mut found, &a, 0.37, &halves);
            same(&found, &|i| round(a[i] * 0.37) + halves[i].to_f32());
            assert_eq!(most, found.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v)), "{n}");
        }
    }
}
