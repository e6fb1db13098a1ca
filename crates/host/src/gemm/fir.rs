//! Weighted sums of shifted rows: a depthwise convolution of a padded plane.

use super::isa;
use super::vector::Simd;

/// Sums that are held in registers: more than the latency of a multiply-add hides, and few enough
/// that short rows do not compute much that no caller reads.
const SUMS: usize = 6;

/// `to[i] = bias + Σ weights[t] · from[shifts[t] + i]`, for `i` in `0..len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fir<'a> {
    weights: &'a [f32],
    shifts: &'a [usize],
    bias: f32,
    from: *const f32,
    to: *mut f32,
    len: usize,
}

/// Elements after the last one of both slices that [`fir`] may access.
const SLACK_AFTER: usize = 16;

/// Computes `to[i] = Σ weights[t] · from[shifts[t] + i] + bias` for `i` in `0..len`; arbitrary
/// values after that. The products are summed in order of the taps, the bias comes last.
///
/// # Panics
/// If `from` or `to` has fewer than 16 elements after the last one that is read or written, or a
/// tap has no weight.
pub(crate) fn fir(weights: &[f32], shifts: &[usize], bias: f32, from: &[f32], to: &mut [f32], len: usize) {
    let reach = shifts.iter().copied().max().unwrap_or(0);
    assert!(weights.len() == shifts.len(), "a tap without a weight");
    let fits = |have: usize, reach: usize| reach.checked_add(len + SLACK_AFTER).is_some_and(|need| need <= have);
    assert!(fits(from.len(), reach) && fits(to.len(), 0), "a row without slack");
    let job = Fir { weights, shifts, bias, from: from.as_ptr(), to: to.as_mut_ptr(), len };
    // SAFETY: checked above; `isa::best` returns kernels that this processor supports.
    unsafe { (isa::best().fir)(&job) }
}

/// # Safety
/// Whole vectors are readable from every shift and writable, up to less than a vector after `len`;
/// the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn weighted<S: Simd>(job: &Fir<'_>) {
    let mut i = 0;
    // SAFETY: the caller guarantees it.
    unsafe {
        while i + (SUMS - 1) * S::LANES < job.len {
            vectors::<S, SUMS>(job, i);
            i += SUMS * S::LANES;
        }
        while i + S::LANES < job.len {
            vectors::<S, 2>(job, i);
            i += 2 * S::LANES;
        }
        if i < job.len {
            vectors::<S, 1>(job, i);
        }
    }
}

#[inline(always)]
unsafe fn vectors<S: Simd, const N: usize>(job: &Fir<'_>, i: usize) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let from = job.from.add(i);
        let mut sums = [S::splat(0.0); N];
        for (weight, shift) in job.weights.iter().zip(job.shifts) {
            let (weight, from) = (S::splat(*weight), from.add(*shift));
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = S::fma(weight, S::load(from.add(v * S::LANES)), *sum);
            }
        }
        let bias = S::splat(job.bias);
        for (v, sum) in sums.iter().enumerate() {
            S::store(job.to.add(i + v * S::LANES), S::add(*sum, bias));
        }
    }
}
