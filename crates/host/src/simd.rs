//! Run-time dispatch for plain loops, and fp32 functions that vectorize inside such loops.
//!
//! Crates that forbid `unsafe` write a plain loop and hand it to [`vectorize!`](crate::vectorize);
//! it is then compiled once for each vector width, and the best version for the processor is chosen
//! at run time. The functions here have no branches and no calls, so a loop over them vectorizes.
//!
//! Invariant: the code spells out every operation, fused multiply-adds included ([`exp`] and what
//! calls it), and the compiler fuses nothing else. A result has the same bits in every compiled
//! version, on every processor, vectorized or not.
//!
//! | function | largest error observed, in ULP |
//! |---|---|
//! | [`exp`] | 1.1 |
//! | [`sigmoid`] | 2.3 |
//! | [`tanh`] | 1.5 |
//! | [`erf`] | 1.2 |
//! | [`gelu`] of a positive number | 3.2 |
//!
//! The tests check these bounds over the whole range, subnormal results included. NaN gives NaN;
//! infinities give the limits, except that [`gelu`] of negative infinity is NaN.

/// Runs `body` compiled for the widest vectors of this processor (AVX-512, AVX2 with FMA, NEON, or
/// the baseline).
///
/// `body` must carry `#[inline(always)]`, otherwise the compiler may compile it as a separate
/// baseline function; the macro [`vectorize!`](crate::vectorize) adds the attribute. Inside, write
/// plain `for` loops: a closure passed to an iterator is again a function that may not be inlined.
/// One call costs a few nanoseconds. Rust never contracts `a * b + c`, so the bits do not depend on
/// the version that runs.
#[inline(always)]
pub fn dispatch<R>(body: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(body)
}

/// Evaluates a block compiled for the widest vectors of this processor: [`dispatch`] with an
/// inlined closure.
///
/// ```
/// use ferrane_host::{simd, vectorize};
/// let mut values = vec![0.5f32; 1000];
/// vectorize!({
///     for v in &mut values {
///         *v *= simd::sigmoid(*v);
///     }
/// });
/// assert_eq!(values[999], 0.5 * simd::sigmoid(0.5));
/// ```
#[macro_export]
macro_rules! vectorize {
    ($body:expr) => {
        $crate::simd::dispatch(
            #[inline(always)]
            || $body,
        )
    };
}

/// Prefetches the cache lines of `values`, without waiting for them. Useful where the hardware
/// prefetcher cannot predict the access, as at the start of a range that lies in another core's
/// cache.
#[inline]
pub fn ask<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        for i in (0..size_of_val(values)).step_by(LINE) {
            // SAFETY: every x86-64 processor has SSE, and a prefetch has no effect that the program
            // can observe.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().cast::<i8>().wrapping_add(i)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// Adding and subtracting 1.5·2²³, or that plus an even number, rounds a small number to an
/// integer, which stands in the low bits of the sum.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// The integer of a whole number of at most 2²² in magnitude, in a form that vectorizes: `as`
/// saturates, which the compiler does number by number.
///
/// ```
/// assert_eq!(ferrane_host::simd::integer(-128.0), -128);
/// ```
#[inline(always)]
pub fn integer(x: f32) -> i32 {
    (x + ROUND).to_bits() as i32 - ROUND.to_bits() as i32
}

/// Twice the exponent bias, for the sum of two exponents.
const BIASES: f32 = 254.0;

/// Below this, eˣ is 0.
pub(crate) const VANISHES: f32 = -104.0;

/// ln 2 in two parts; the first has 9 bits, so its product with an exponent is exact.
pub(crate) const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];

/// (eʳ - 1 - r) / r² on |r| ≤ ln 2 / 2, minimax, error 3e-9 of eʳ; the highest power first.
pub(crate) const EXP: [f32; 5] = [1.381_448_1e-3, 8.368_78e-3, 4.166_839_4e-2, 1.666_652e-1, 4.999_999_3e-1];

/// eˣ. Overflow gives infinity, results below the normal range are subnormal.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these bounds the result is infinity or zero. Written so that NaN propagates.
    let x = if x > 89.0 { 89.0 } else { x };
    // An argument whose result would be 0 is replaced: products that underflow are many times
    // slower, and masked attention scores underflow.
    let vanishes = x < VANISHES;
    let x = if vanishes { 0.0 } else { x };
    // Fused multiply-adds: half the operations, one rounding each. A processor without the
    // instruction computes the same bits slowly.
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND + BIASES);
    let n = shifted - (ROUND + BIASES);
    let r = n.mul_add(-LN_2[0], x);
    let r = n.mul_add(-LN_2[1], r);
    let p = EXP[0];
    let p = p.mul_add(r, EXP[1]);
    let p = p.mul_add(r, EXP[2]);
    let p = p.mul_add(r, EXP[3]);
    let p = p.mul_add(r, EXP[4]);
    let y = p.mul_add(r * r, r) + 1.0;
    // 2ⁿ as two factors: each is a normal number even if 2ⁿ is not, and only the second product
    // rounds. The shift removes the bits above the exponents.
    let n = shifted.to_bits();
    let half = n >> 1;
    let y = y * f32::from_bits(half << 23) * f32::from_bits((n - half) << 23);
    if vanishes { 0.0 } else { y }
}

/// [`exp`] of numbers between [`VANISHES`] and 89. Scaling by a power of two rounds a subnormal
/// result once, as the product with the last factor there does.
///
/// # Safety
/// The processor has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn exp_avx512(x: std::arch::x86_64::__m512) -> std::arch::x86_64::__m512 {
    use std::arch::x86_64::*;
    // SAFETY: the caller guarantees it.
    unsafe {
        let splat = |v: f32| _mm512_set1_ps(v);
        let n = _mm512_sub_ps(_mm512_fmadd_ps(x, splat(std::f32::consts::LOG2_E), splat(ROUND)), splat(ROUND));
        let r = _mm512_fnmadd_ps(n, splat(LN_2[0]), x);
        let r = _mm512_fnmadd_ps(n, splat(LN_2[1]), r);
        let mut p = splat(EXP[0]);
        for factor in &EXP[1..] {
            p = _mm512_fmadd_ps(p, r, splat(*factor));
        }
        let y = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), splat(1.0));
        _mm512_scalef_ps(y, n)
    }
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // Computed on the side where the exponential is at most 1, so that small results keep their
    // precision.
    let e = exp(-x.abs());
    let numerator = if x < 0.0 { e } else { 1.0 };
    numerator / (1.0 + e)
}

/// The hyperbolic tangent of `x`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let t = a * a;
    // (tanh a - a) / a³ in a² below 0.625, minimax, error 4e-9 of tanh a.
    let p = -5.704_987_4e-3;
    let p = p * t + 2.063_908_8e-2;
    let p = p * t - 5.373_971_5e-2;
    let p = p * t + 1.333_144_2e-1;
    let p = p * t - 3.333_328e-1;
    let small = a + a * (t * p);
    let large = 1.0 - 2.0 / (exp(a + a) + 1.0);
    (if a < 0.625 { small } else { large }).copysign(x)
}

/// The error function, 2/√π · ∫₀ˣ e^(-t²) dt.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    // erf 4 rounds to 1. `min` and not a comparison: after that the compiler would branch around
    // the constant case.
    let a = a.min(4.0);
    let t = a * a;
    // erf a / a - 1 in a² below 1, minimax, error 1.2e-9 of erf a.
    let p = 7.853_535_6e-5f32;
    let p = p.mul_add(t, -8.010_086e-4);
    let p = p.mul_add(t, 5.188_314e-3);
    let p = p.mul_add(t, -2.685_380_4e-2);
    let p = p.mul_add(t, 1.128_358_5e-1);
    let p = p.mul_add(t, -3.761_262_6e-1);
    let p = p.mul_add(t, 1.283_791_7e-1);
    let small = a.mul_add(p, a);
    // -ln(erfc a) on [1, 4], minimax, error 1.0e-9 in erfc a.
    let q = -1.855_725_9e-4f32;
    let q = q.mul_add(a, 2.939_593e-3);
    let q = q.mul_add(a, -2.180_526e-2);
    let q = q.mul_add(a, 1.030_372_5e-1);
    let q = q.mul_add(a, 6.382_258e-1);
    let q = q.mul_add(a, 1.127_04);
    let q = q.mul_add(a, 3.537_402_8e-4);
    let large = 1.0 - exp(-q);
    let y = (if a < 1.0 { small } else { large }).copysign(x);
    // `min` has swallowed a NaN.
    if x.is_nan() { x } else { y }
}

/// Beyond this magnitude a negative number's [`gelu`] is 0: it would be less than half of the
/// smallest fp16 number.
pub(crate) const GELU_VANISHES: f32 = 5.75;

/// ln Φ(-a) on 0 ≤ a ≤ 5.75, minimax, error 7.5e-8 below 3 and slowly larger above; the highest
/// power first. Φ is the distribution function of the normal distribution.
#[allow(clippy::approx_constant)] // The last one is near ln ½, and not it.
pub(crate) const GELU: [f32; 11] = [
    -1.447_159_1e-8,
    4.481_967_3e-7,
    -5.956_533e-6,
    4.296_788_8e-5,
    -1.576_157_6e-4,
    -7.918_852e-5,
    4.917_813e-3,
    -3.642_367_5e-2,
    -3.182_812e-1,
    -7.978_881_7e-1,
    -6.931_471e-1,
];

/// x · Φ(x), the exact GELU. The error of a negative number's result is at most 5e-8.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let a = x.abs();
    let vanishes = a > GELU_VANISHES;
    let a = a.min(GELU_VANISHES);
    let q = GELU[0];
    let q = q.mul_add(a, GELU[1]);
    let q = q.mul_add(a, GELU[2]);
    let q = q.mul_add(a, GELU[3]);
    let q = q.mul_add(a, GELU[4]);
    let q = q.mul_add(a, GELU[5]);
    let q = q.mul_add(a, GELU[6]);
    let q = q.mul_add(a, GELU[7]);
    let q = q.mul_add(a, GELU[8]);
    let q = q.mul_add(a, GELU[9]);
    let q = q.mul_add(a, GELU[10]);
    // Φ(-a): the side on which the exponential keeps its precision.
    let tail = exp(q);
    let tail = if vanishes { 0.0 } else { tail };
    x * if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// erf in fp64: its series below 3, the continued fraction of erfc above.
    fn erf64(x: f64) -> f64 {
        let a = x.abs();
        let y = if a < 3.0 {
            let (mut sum, mut term, mut n) = (a, a, 0.0);
            while term.abs() > 1e-18 * sum {
                n += 1.0;
                term *= -a * a / n;
                sum += term / (2.0 * n + 1.0);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..60).rev().fold(a, |f, k| a + f64::from(k) / 2.0 / f);
            1.0 - (-a * a).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0
        };
        y.copysign(x)
    }

    /// The error of `got` in units of the last place of fp32 at `want`.
    fn ulps(got: f32, want: f64) -> f64 {
        if want.is_nan() || (want as f32).is_infinite() || got.is_infinite() {
            let same = (want.is_nan() && got.is_nan()) || got == want as f32;
            return if same { 0.0 } else { f64::INFINITY };
        }
        let exponent = (want.abs().max(f64::from(f32::MIN_POSITIVE))).log2().floor() as i32;
        (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
    }

    /// Fails if `f` is further than `bound` from `exact` anywhere on a dense walk over all bit
    /// patterns.
    fn hold(name: &str, f: fn(f32) -> f32, exact: fn(f64) -> f64, bound: f64) {
        let mut worst = (0.0, 0.0f32);
        let mut see = |x: f32| {
            let error = ulps(f(x), exact(f64::from(x)));
            if error > worst.0 {
                worst = (error, x);
            }
        };
        // A prime step: every exponent is met some 8000 times with all kinds of low bits.
        for bits in (0..=u32::MAX).step_by(1009) {
            see(f32::from_bits(bits));
        }
        for center in [0.625f32, 1.0, 4.0, 88.722_84, 89.0, -87.336_55, -103.972_08, -104.0, 9.01, 0.0] {
            for delta in -200i32..200 {
                see(f32::from_bits(center.to_bits().wrapping_add_signed(delta)));
                see(-f32::from_bits(center.to_bits().wrapping_add_signed(delta)));
            }
        }
        assert!(worst.0 <= bound, "{name}({:e}) is {} units off, {bound} allowed", worst.1, worst.0);
    }

    #[test]
    fn exp_is_near() {
        hold("exp", exp, f64::exp, 1.1);
        assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY), exp(0.0)), (f32::INFINITY, 0.0, 1.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoid_is_near() {
        hold("sigmoid", sigmoid, |x| if x < -700.0 { 0.0 } else { 1.0 / (1.0 + (-x).exp()) }, 2.3);
        assert_eq!((sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY), sigmoid(0.0)), (1.0, 0.0, 0.5));
        assert!(sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_near() {
        hold("tanh", tanh, f64::tanh, 1.5);
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!(tanh(-0.0).to_bits(), (-0.0f32).to_bits());
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn erf_is_near() {
        // Tabulated values, so that the fp64 oracle is not its own judge.
        for (x, y) in [(0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (2.0, 0.995_322_265_018_952_7)] {
            assert!((erf64(x) - y).abs() < 1e-14);
        }
        assert!((erf64(3.0) - 0.999_977_909_503_001_4).abs() < 1e-14);
        hold("erf", erf, erf64, 1.2);
        assert_eq!((erf(f32::INFINITY), erf(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!(erf(-0.0).to_bits(), (-0.0f32).to_bits());
        assert!(erf(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_is_near() {
        let exact = |x: f64| if x > 0.0 { x - x * (1.0 - erf64(x / 2f64.sqrt())) / 2.0 } else { x };
        hold("gelu", |x| if x < 0.0 { x } else { gelu(x) }, exact, 3.2);
        let mut x = -12.0f32;
        while x < 0.0 {
            let wanted = f64::from(x) * (1.0 + erf64(f64::from(x) / 2f64.sqrt())) / 2.0;
            assert!((f64::from(gelu(x)) - wanted).abs() <= 5e-8, "{x}: {}, not {wanted}", gelu(x));
            x += 1e-4;
        }
        // Of a table of the normal distribution: Φ(1) = 0.841345.
        assert!((gelu(1.0) - 0.841_345).abs() < 1e-6 && (gelu(-1.0) + 0.158_655).abs() < 1e-6);
        assert_eq!((gelu(f32::INFINITY), gelu(-1e30), gelu(0.0)), (f32::INFINITY, 0.0, 0.0));
        assert!(gelu(f32::NAN).is_nan() && gelu(f32::NEG_INFINITY).is_nan());
    }

    #[test]
    fn versions_agree_to_the_bit() {
        let xs: Vec<f32> = (0..4096).map(|i| (i as f32 - 2048.0) * 0.03).collect();
        let mut ys = xs.clone();
        vectorize!({
            for y in &mut ys {
                *y = exp(*y) + sigmoid(*y) * tanh(*y) - erf(*y) + gelu(*y);
            }
        });
        for (&x, &y) in xs.iter().zip(&ys) {
            let x = std::hint::black_box(x);
            assert_eq!((exp(x) + sigmoid(x) * tanh(x) - erf(x) + gelu(x)).to_bits(), y.to_bits(), "{x}");
        }
    }
}
