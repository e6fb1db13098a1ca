//! Packing of columns into fp16 panels, without widening.
//!
//! If the processor converts in parallel with its multiply-adds, a tile that widens fp16 as it
//! loads takes no longer. Packing then only moves 16-bit words: half the memory traffic and half
//! the shuffles, and a panel takes half as much of the L1 cache.

use half::f16;

use super::pack::{INTERLEAVED_PANELS, Pack, panel, source};
use super::vector::Simd;

/// Lines of one transposed block.
const LINES: usize = 16;
/// Lines of a full panel.
const WIDTH: usize = 32;
const STEPS: usize = 32;
/// Prefetch distance in steps along K, farther than the hardware prefetcher reaches.
const PREFETCH_DISTANCE: usize = 2 * STEPS;

/// The transposition that packing fp16 needs of an instruction set.
///
/// # Safety
/// As of [`Simd`].
pub(super) trait TransposeF16: Simd {
    /// Transposes [`STEPS`] steps of [`LINES`] lines: the elements of a step become contiguous,
    /// with `pitch` elements from one step to the next.
    unsafe fn transpose_f16(line: impl Fn(usize) -> *const f16, to: *mut f16, pitch: usize);
}

/// Packs a factor of fp16.
///
/// # Safety
/// As of [`super::pack::pack`]; panels are of fp16, and as wide as vectors.
#[inline(always)]
pub(super) unsafe fn pack<S: TransposeF16>(job: Pack) {
    // SAFETY: the caller guarantees it.
    unsafe {
        if let Some(tables) = job.factor.tables {
            super::unfold::pack_f16::<S>(&job, tables);
        } else if job.factor.depth == 1 && job.factor.line != 1 {
            neighboring_steps::<S>(&job);
        } else {
            lines(&job);
        }
    }
}

/// Contiguous lines, or any strides.
#[inline(always)]
unsafe fn lines(job: &Pack) {
    let panels = job.lines.div_ceil(job.width);
    for group in (0..panels).step_by(INTERLEAVED_PANELS) {
        for p in 0..job.depth {
            for q in group..panels.min(group + INTERLEAVED_PANELS) {
                let (lines, pitch, to) = panel::<f16>(job, q);
                let from = source::<f16>(job, q * job.width, p);
                // SAFETY: reads `lines` elements of the factor and writes `pitch` elements of the
                // panel.
                unsafe {
                    let to = to.add(p * pitch);
                    if job.factor.line != 1 {
                        for i in 0..lines {
                            to.add(i).write(source::<f16>(job, q * job.width + i, p).read());
                        }
                    } else if lines == WIDTH {
                        // A size that is a compile-time constant.
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

/// All lines of a panel advance together, so that each step of the panel is written once, as a
/// whole.
#[inline(always)]
unsafe fn neighboring_steps<S: TransposeF16>(job: &Pack) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel::<f16>(job, q);
        for p in (0..job.depth).step_by(STEPS) {
            let steps = STEPS.min(job.depth - p);
            for i in (0..lines).step_by(LINES) {
                let first = source::<f16>(job, q * job.width + i, p);
                let count = LINES.min(lines - i);
                // The last line stands in for missing lines: no tile reads their columns.
                let line = |r: usize| first.wrapping_offset(job.factor.line * r.min(count - 1) as isize);
                // SAFETY: reads `steps` steps of `count` lines of the factor and writes a vector to
                // as many steps of the panel.
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
