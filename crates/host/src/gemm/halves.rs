//! Panels of columns that hold fp16 as it is.
//!
//! A tile that widens what it loads takes no longer for it where the processor converts beside its
//! multiply-adds. Packing then moves words: half the traffic, half the shuffles, and one panel of
//! them takes half of a near cache.

use half::f16;

use super::pack::{INTERLEAVED_PANELS, Pack, panel, source};
use super::vector::Simd;

/// Lines that are transposed at once.
const LINES: usize = 16;
/// Lines of a whole panel.
const WIDTH: usize = 32;
const STEPS: usize = 32;
/// Steps that are asked for before they are read: the processor looks less far.
const PREFETCH_DISTANCE: usize = 2 * STEPS;

/// What packing needs of an instruction set.
///
/// # Safety
/// As of [`Simd`].
pub(super) trait TransposeF16: Simd {
    /// Writes [`STEPS`] steps of [`LINES`] lines, each step's elements side by side, `pitch` from
    /// one step to the next.
    unsafe fn transpose_f16(line: impl Fn(usize) -> *const f16, to: *mut f16, pitch: usize);
}

/// Packs a factor of fp16.
///
/// # Safety
/// As of [`super::pack::pack`]; panels are of fp16, and as wide as vectors.
#[inline(always)]
pub(super) unsafe fn pack<S: TransposeF16>(job: Pack) {
    // SAFETY: the caller's promise.
    unsafe {
        if job.factor.depth == 1 && job.factor.line != 1 {
            neighboring_steps::<S>(&job);
        } else {
            lines(&job);
        }
    }
}

/// Lines that are neighbors, or any.
#[inline(always)]
unsafe fn lines(job: &Pack) {
    let panels = job.lines.div_ceil(job.width);
    for group in (0..panels).step_by(INTERLEAVED_PANELS) {
        for p in 0..job.depth {
            for q in group..panels.min(group + INTERLEAVED_PANELS) {
                let (lines, pitch, to) = panel::<f16>(job, q);
                let from = source::<f16>(job, q * job.width, p);
                // SAFETY: `lines` elements of the factor and `pitch` of the panel.
                unsafe {
                    let to = to.add(p * pitch);
                    if job.factor.line != 1 {
                        for i in 0..lines {
                            to.add(i).write(source::<f16>(job, q * job.width + i, p).read());
                        }
                    } else if lines == WIDTH {
                        // A size that the compiler knows.
                        to.cast::<[f16; WIDTH]>().write_unaligned(from.cast::<[f16; WIDTH]>().read_unaligned());
                    } else {
                        to.copy_from_nonoverlapping(from, lines);
                    }
                    to.add(lines).write_bytes(0, pitch - lines);
                }
            }
        }
    }
}

/// All lines of a panel go forward together, so that each of its steps is written once, as a whole.
#[inline(always)]
unsafe fn neighboring_steps<S: TransposeF16>(job: &Pack) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel::<f16>(job, q);
        for p in (0..job.depth).step_by(STEPS) {
            let steps = STEPS.min(job.depth - p);
            for i in (0..lines).step_by(LINES) {
                let first = source::<f16>(job, q * job.width + i, p);
                let count = LINES.min(lines - i);
                // The last line in the place of those that are not there: nobody looks at their
                // columns.
                let line = |r: usize| first.wrapping_offset(job.factor.line * r.min(count - 1) as isize);
                // SAFETY: `steps` of `count` lines of the factor, and a vector of as many steps of
                // the panel.
                unsafe {
                    if p + PREFETCH_DISTANCE < job.depth {
                        for r in 0..LINES {
                            S::prefetch(line(r).wrapping_add(PREFETCH_DISTANCE).cast());
                        }
                    }
                    let to = to.add(p * pitch + i);
                    if steps < STEPS {
                        let mut from = [[f16::ZERO; STEPS]; LINES];
                        for (r, from) in from.iter_mut().enumerate() {
                            from.as_mut_ptr().copy_from_nonoverlapping(line(r), steps);
                        }
                        let mut turned = [[f16::ZERO; LINES]; STEPS];
                        S::transpose_f16(|r| from[r].as_ptr(), turned.as_mut_ptr().cast(), LINES);
                        for (s, step) in turned[..steps].iter().enumerate() {
                            to.add(s * pitch).copy_from_nonoverlapping(step.as_ptr(), LINES);
                        }
                    } else if count == LINES {
                        S::transpose_f16(|r| first.wrapping_offset(job.factor.line * r as isize), to, pitch);
                    } else {
                        S::transpose_f16(line, to, pitch);
                    }
                }
            }
        }
    }
}
