//! The element-wise work of a transformer between its matrix products, in one pass over fp16
//! memory: the gate of a feed-forward block, and rotary position embeddings.
//!
//! Invariant: each result equals that of the single operations in fp32, each rounded to fp16 by
//! [`convert::round_f16`], bit for bit on every processor.

use half::f16;

use crate::rounded::{self, Binary};
use crate::{convert, simd, vectorize};

/// Rows whose elements are contiguous in memory.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The elements, beginning with the first of the first row.
    pub values: &'a [f16],
    /// Elements from the start of one row to the start of the next.
    pub pitch: usize,
}

/// The function of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x · round(sigmoid x)`: two operations.
    Sigmoid,
    /// `silu x`, one operation.
    Silu,
}

/// `to = round(round(f x) · y)` for `rows` rows of `length` elements; the rows of `to` begin every
/// `pitch` elements.
///
/// # Panics
/// If a row reaches over the end of its values.
pub fn gate(f: Gate, (to, pitch): (&mut [f16], usize), [x, y]: [Rows<'_>; 2], rows: usize, length: usize) {
    for row in 0..rows {
        let to = &mut to[row * pitch..][..length];
        let [x, y] = [x, y].map(|from| &from.values[row * from.pitch..][..length]);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F.
            unsafe { x86::gate(f, to, x, y) };
            continue;
        }
        gate_row(f, to, x, y);
    }
}

/// Rotates pairs `(a, b)` by angles given by their cosine and sine; `from` is `[a, b, cos, sin]`.
/// `a · cos - b · sin` goes to `to`, and `b · cos + a · sin` to the place `behind` elements after
/// it; with `back` the rotation is reversed (the signs are swapped). Each product is rounded.
/// `rows` rows of `length` elements; the rows of `to` begin every `pitch` elements.
///
/// # Panics
/// If a row reaches over the end of its values, or the first results reach over the second.
pub fn rotate(
    back: bool,
    (to, pitch, behind): (&mut [f16], usize, usize),
    from: [Rows<'_>; 4],
    rows: usize,
    length: usize,
) {
    for row in 0..rows {
        let (first, second) = to[row * pitch..][..behind + length].split_at_mut(behind);
        let first = &mut first[..length];
        let from = from.map(|from| &from.values[row * from.pitch..][..length]);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F.
            unsafe { x86::rotate(back, first, second, from) };
            continue;
        }
        #[cfg(target_arch = "x86_64")]
        if convert::has_f16c() {
            // SAFETY: the processor has AVX and F16C.
            unsafe { x86::rotate_f16c(back, first, second, from) };
            continue;
        }
        rotate_row(back, first, second, from);
    }
}

/// Elements that the portable routines widen at a time.
const PIECE: usize = 128;

fn widened(from: &[f16]) -> [f32; PIECE] {
    let mut to = [0.0; PIECE];
    convert::f16_to_f32(from, &mut to[..from.len()]);
    to
}

fn gate_row(f: Gate, to: &mut [f16], x: &[f16], y: &[f16]) {
    for ((to, x), y) in to.chunks_mut(PIECE).zip(x.chunks(PIECE)).zip(y.chunks(PIECE)) {
        let (x, y, mut s, mut result) = (widened(x), widened(y), [0.0; PIECE], [0.0; PIECE]);
        vectorize!({
            for (s, &x) in s.iter_mut().zip(&x) {
                *s = simd::sigmoid(x) * if f == Gate::Silu { x } else { 1.0 };
            }
        });
        if f == Gate::Silu {
            convert::round_f16(&mut s);
            rounded::mul(&mut result, &s, &y);
        } else {
            rounded::pair([Binary::Mul, Binary::Mul], true, &mut result, [&s, &x, &y]);
        }
        convert::f32_to_f16(&result[..to.len()], to);
    }
}

fn rotate_row(back: bool, first: &mut [f16], second: &mut [f16], [a, b, cos, sin]: [&[f16]; 4]) {
    let (low, high) = if back { (Binary::Add, Binary::Sub) } else { (Binary::Sub, Binary::Add) };
    for (i, (first, second)) in first.chunks_mut(PIECE).zip(second.chunks_mut(PIECE)).enumerate() {
        let [a, b, cos, sin] = [a, b, cos, sin].map(|from| widened(&from[i * PIECE..][..first.len()]));
        let (mut product, mut result) = ([0.0; PIECE], [0.0; PIECE]);
        rounded::mul(&mut product, &b, &sin);
        rounded::pair([Binary::Mul, low], false, &mut result, [&a, &cos, &product]);
        convert::f32_to_f16(&result[..first.len()], first);
        rounded::mul(&mut product, &a, &sin);
        rounded::pair([Binary::Mul, high], false, &mut result, [&b, &cos, &product]);
        convert::f32_to_f16(&result[..second.len()], second);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::Gate;
    use crate::rounded::{NEAREST, round};
    use crate::simd;

    /// Vectors of a gate that are computed interleaved, to hide the latency of the exponential.
    const GATE_VECTORS: usize = 8;
    const BLOCK: usize = 16 * GATE_VECTORS;

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(from: &[f16; 16]) -> __m512 {
        // SAFETY: the array has 16 elements (32 bytes).
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(to: &mut [f16; 16], v: __m512) {
        // SAFETY: the array has 16 elements (32 bytes).
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST>(v)) }
    }

    #[target_feature(enable = "avx512f")]
    pub fn gate(f: Gate, to: &mut [f16], x: &[f16], y: &[f16]) {
        let (blocks, rest) = to.as_chunks_mut::<BLOCK>();
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<BLOCK>(), y.as_chunks::<BLOCK>());
        for ((to, x), y) in blocks.iter_mut().zip(x).zip(y) {
            gate_block(f, to, x, y);
        }
        if !rest.is_empty() {
            let padded = |from: &[f16]| {
                let mut to = [f16::ZERO; BLOCK];
                to[..from.len()].copy_from_slice(from);
                to
            };
            let mut block = [f16::ZERO; BLOCK];
            gate_block(f, &mut block, &padded(x_rest), &padded(y_rest));
            rest.copy_from_slice(&block[..rest.len()]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn gate_block(f: Gate, to: &mut [f16; BLOCK], x: &[f16; BLOCK], y: &[f16; BLOCK]) {
        let (to, x, y) = (to.as_chunks_mut::<16>().0, x.as_chunks::<16>().0, y.as_chunks::<16>().0);
        let mut wide = [[0.0f32; 16]; GATE_VECTORS];
        for (wide, x) in wide.iter_mut().zip(x) {
            // SAFETY: the array has 16 elements (64 bytes).
            unsafe { _mm512_storeu_ps(wide.as_mut_ptr(), load(x)) };
        }
        let mut sigmoids = [[0.0f32; 16]; GATE_VECTORS];
        for (sigmoids, wide) in sigmoids.iter_mut().zip(&wide) {
            for (s, &x) in sigmoids.iter_mut().zip(wide) {
                *s = simd::sigmoid(x);
            }
        }
        for (((to, wide), s), y) in to.iter_mut().zip(&wide).zip(&sigmoids).zip(y) {
            // SAFETY: the arrays have 16 elements (64 bytes).
            let (x, s) = unsafe { (_mm512_loadu_ps(wide.as_ptr()), _mm512_loadu_ps(s.as_ptr())) };
            let s = if f == Gate::Silu { s } else { round(s) };
            store(to, _mm512_mul_ps(round(_mm512_mul_ps(s, x)), load(y)));
        }
    }

    /// The rotation of rows in vectors of `$lanes` elements.
    macro_rules! rotation {
        ($features:literal, $lanes:literal, $rotate:ident, $block:ident, $load:ident, $store:ident, $round:ident,
            [$mul:ident, $add:ident, $sub:ident]) => {
            #[target_feature(enable = $features)]
            pub fn $rotate(back: bool, first: &mut [f16], second: &mut [f16], from: [&[f16]; 4]) {
                let (first, first_rest) = first.as_chunks_mut::<$lanes>();
                let (second, second_rest) = second.as_chunks_mut::<$lanes>();
                let [a, b, cos, sin] = from.map(|from| from.as_chunks::<$lanes>());
                for (((((first, second), a), b), cos), sin) in
                    first.iter_mut().zip(second).zip(a.0).zip(b.0).zip(cos.0).zip(sin.0)
                {
                    $block(back, first, second, [a, b, cos, sin]);
                }
                if !first_rest.is_empty() {
                    let rest = [a.1, b.1, cos.1, sin.1].map(|from| {
                        let mut to = [f16::ZERO; $lanes];
                        to[..from.len()].copy_from_slice(from);
                        to
                    });
                    let (mut low, mut high) = ([f16::ZERO; $lanes], [f16::ZERO; $lanes]);
                    $block(back, &mut low, &mut high, rest.each_ref());
                    first_rest.copy_from_slice(&low[..first_rest.len()]);
                    second_rest.copy_from_slice(&high[..second_rest.len()]);
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn $block(back: bool, first: &mut [f16; $lanes], second: &mut [f16; $lanes], from: [&[f16; $lanes]; 4]) {
                let [a, b, cos, sin] = [$load(from[0]), $load(from[1]), $load(from[2]), $load(from[3])];
                let (a_cos, b_sin) = ($round($mul(a, cos)), $round($mul(b, sin)));
                let (b_cos, a_sin) = ($round($mul(b, cos)), $round($mul(a, sin)));
                let (low, high) = if back {
                    ($add(a_cos, b_sin), $sub(b_cos, a_sin))
                } else {
                    ($sub(a_cos, b_sin), $add(b_cos, a_sin))
                };
                $store(first, low);
                $store(second, high);
            }
        };
    }
    rotation!("avx512f", 16, rotate, rotate_block, load, store, round, [_mm512_mul_ps, _mm512_add_ps, _mm512_sub_ps]);
    rotation!(
        "avx,f16c",
        8,
        rotate_f16c,
        rotate_block_f16c,
        load_8,
        store_8,
        round_8,
        [_mm256_mul_ps, _mm256_add_ps, _mm256_sub_ps]
    );

    #[inline]
    #[target_feature(enable = "avx,f16c")]
    fn load_8(from: &[f16; 8]) -> __m256 {
        // SAFETY: the array has 8 elements (16 bytes).
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx,f16c")]
    fn store_8(to: &mut [f16; 8], v: __m256) {
        // SAFETY: the array has 8 elements (16 bytes).
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<NEAREST>(v)) }
    }

    #[inline]
    #[target_feature(enable = "avx,f16c")]
    fn round_8(v: __m256) -> __m256 {
        _mm256_cvtph_ps(_mm256_cvtps_ph::<NEAREST>(v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all kinds: every `n`-th bit pattern of fp16.
    fn values(n: usize, seed: usize) -> Vec<f16> {
        (0..n).map(|i| f16::from_bits(((i + seed) * 40_503 % 65_536) as u16)).collect()
    }

    fn same(found: f16, want: f32) -> bool {
        let want = f16::from_f32(want);
        found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan())
    }

    fn round(v: f32) -> f32 {
        f16::from_f32(v).to_f32()
    }

    #[test]
    fn a_gate_is_its_operations_one_by_one() {
        for (rows, length, pitch) in [(1, 70_000, 70_000), (5, 1, 3), (3, 17, 17), (2, 128, 130), (4, 300, 301)] {
            let (x, y) = (values(rows * pitch, 1), values(rows * (pitch + 2), 7));
            for f in [Gate::Sigmoid, Gate::Silu] {
                let function = |x: f32| {
                    let s = simd::sigmoid(x);
                    round(if f == Gate::Silu { s * x } else { round(s) * x })
                };
                let check = |to: &[f16], name: &str| {
                    for (i, &found) in to.iter().enumerate() {
                        let (row, col) = (i / (pitch + 1), i % (pitch + 1));
                        if col >= length || row >= rows {
                            assert_eq!(found, f16::ONE, "{name}: {i} was overwritten");
                            continue;
                        }
                        let (x, y) = (x[row * pitch + col].to_f32(), y[row * (pitch + 2) + col].to_f32());
                        assert!(same(found, function(x) * y), "{name}: {f:?} of {x}, {y} is {found}");
                    }
                };
                let mut to = vec![f16::ONE; rows * (pitch + 1)];
                let from = [Rows { values: &x, pitch }, Rows { values: &y, pitch: pitch + 2 }];
                gate(f, (&mut to, pitch + 1), from, rows, length);
                check(&to, "best");
                to.fill(f16::ONE);
                for row in 0..rows {
                    let [x, y] = from.map(|from| &from.values[row * from.pitch..][..length]);
                    gate_row(f, &mut to[row * (pitch + 1)..][..length], x, y);
                }
                check(&to, "plain");
            }
        }
    }

    #[test]
    fn a_rotation_is_its_operations_one_by_one() {
        for (rows, length) in [(1, 5000), (40, 32), (7, 1), (3, 24), (2, 16), (2, 150)] {
            let (behind, pitch) = (length + 1, 2 * length + 3);
            let from: [Vec<f16>; 4] = [1, 2, 3, 4].map(|seed| values(rows * length + rows, seed * 1000));
            let from = from.each_ref().map(|values| Rows { values, pitch: length + 1 });
            for back in [false, true] {
                let check = |to: &[f16], name: &str| {
                    let sign = if back { -1.0 } else { 1.0 };
                    for row in 0..rows {
                        for i in 0..length {
                            let [a, b, cos, sin] = from.map(|f| f.values[row * f.pitch + i].to_f32());
                            let (first, second) = (to[row * pitch + i], to[row * pitch + behind + i]);
                            let want = round(a * cos) - sign * round(b * sin);
                            assert!(same(first, want), "{name}: {a} {b} {cos} {sin} gives {first}, not {want}");
                            let want = round(b * cos) + sign * round(a * sin);
                            assert!(same(second, want), "{name}: {a} {b} {cos} {sin} gives {second}, not {want}");
                        }
                        for i in [length, behind + length, pitch - 1] {
                            assert_eq!(to[row * pitch + i], f16::ONE, "{name}: {i} was overwritten");
                        }
                    }
                };
                let mut to = vec![f16::ONE; rows * pitch];
                rotate(back, (&mut to, pitch, behind), from, rows, length);
                check(&to, "best");
                to.fill(f16::ONE);
                for row in 0..rows {
                    let from = from.map(|from| &from.values[row * from.pitch..][..length]);
                    let (first, second) = to[row * pitch..][..behind + length].split_at_mut(behind);
                    rotate_row(back, &mut first[..length], second, from);
                }
                check(&to, "plain");
            }
        }
    }
}
