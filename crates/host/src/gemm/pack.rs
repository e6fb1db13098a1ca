//! Packing: lines of a factor of any element type and strides are copied to fp32 panels in the
//! order in which a tile reads them.
//!
//! A panel holds `width` lines, one step along K after the other. If the lines, or the elements of
//! a line, are contiguous in memory, whole vectors are loaded and converted, and in the second case
//! transposed.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use half::f16;

use super::vector::{Element, ElementType, Factor, Simd};

/// Panels that are filled interleaved if contiguous elements belong to neighboring panels.
pub(super) const INTERLEAVED_PANELS: usize = 4;

/// A job of [`pack`]: `lines` lines of a factor, the `depth` steps along K from `from` on, into
/// panels of `width` lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    pub factor: Factor,
    pub first: usize,
    pub lines: usize,
    pub from: usize,
    pub depth: usize,
    pub width: usize,
    /// Elements of one step of the last panel, if that is not full: its lines, and padding that no
    /// kernel reads.
    pub last: usize,
    /// The panels: fp32 values, fp16 values for `halves::pack`, blocks for `bfp::pack`.
    pub to: *mut u8,
    /// Where `bfp::pack` counts what it finds, or null.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub found: *const Found,
}

/// What packing into blocks of integers found in a factor.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Blocks of a line with a value that is not zero.
    pub blocks: AtomicUsize,
    /// Those with one such value, or one next to which the others vanish.
    pub single: AtomicUsize,
    /// Those with a value that is not finite.
    pub special: AtomicUsize,
}

impl Found {
    /// Whether sums of integers are right for the factor; otherwise their results must not be used.
    pub fn suits(&self) -> bool {
        self.special.load(Relaxed) == 0 && 2 * self.single.load(Relaxed) <= self.blocks.load(Relaxed)
    }
}

/// Packs lines of any element type into fp32 panels.
///
/// # Safety
/// The lines and steps are inside the factor, and the destination has room for the panels and is
/// accessed by no other thread. The processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd>(job: Pack) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match job.factor.kind {
            ElementType::F32 => pack_type::<S, f32>(job),
            ElementType::F16 => pack_type::<S, f16>(job),
            ElementType::I8 => pack_type::<S, i8>(job),
        }
    }
}

#[inline(always)]
unsafe fn pack_type<S: Simd, T: Element>(job: Pack) {
    // SAFETY: the caller guarantees it.
    unsafe {
        if let Some(tables) = job.factor.tables {
            super::unfold::pack::<S, T>(&job, tables);
        } else if job.width == 1 && job.factor.depth == 1 {
            for line in 0..job.lines {
                let (from, to) = (source::<T>(&job, line, 0), job.to.cast::<f32>().add(line * job.depth));
                let mut p = 0;
                while p + S::LANES <= job.depth {
                    S::store(to.add(p), T::load::<S>(from.add(p)));
                    p += S::LANES;
                }
                if p < job.depth {
                    S::store_part(to.add(p), T::load_part::<S>(from.add(p), job.depth - p), job.depth - p);
                }
            }
        } else if job.factor.line == 1 {
            neighboring_lines::<S, T>(&job);
        } else if job.factor.depth == 1 {
            neighboring_steps::<S, T>(&job);
        } else {
            scattered::<S, T>(&job);
        }
    }
}

/// Memory to prefetch: `runs` runs of bytes, one every `pitch` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefetch {
    /// Start of the first run.
    pub at: *const u8,
    /// Length of a run in bytes.
    pub bytes: usize,
    /// Bytes from one run to the next.
    pub pitch: isize,
    pub runs: usize,
}

impl Prefetch {
    /// Nothing to prefetch: no runs.
    pub const NOTHING: Prefetch = Prefetch { at: std::ptr::null(), bytes: 0, pitch: 0, runs: 0 };

    /// Part `part` of `parts` of the memory that [`pack`] will read for a job; nothing if its
    /// elements are scattered.
    pub fn of(job: &Pack, part: usize, parts: usize) -> Prefetch {
        let Factor { line, depth, tables, .. } = job.factor;
        if tables.is_some() {
            return Prefetch::NOTHING;
        }
        let (runs, length, pitch) = match (line, depth) {
            (1, _) => (job.depth, job.lines, depth),
            (_, 1) => (job.lines, job.depth, line),
            _ => return Prefetch::NOTHING,
        };
        let (begin, end) = (runs * part / parts, runs * (part + 1) / parts);
        let (size, first) = (job.factor.size(), job.factor.at(job.first, job.from));
        let pitch = pitch.wrapping_mul(size as isize);
        let at = first.wrapping_offset(pitch.wrapping_mul(begin as isize));
        let into = at.addr() % LINE;
        Prefetch { at: at.wrapping_sub(into), bytes: into + length * size, pitch, runs: end - begin }
    }

    /// Number of cache lines.
    fn lines(&self) -> usize {
        self.runs * self.bytes.div_ceil(LINE)
    }

    /// The same memory in `parts` equal parts, one for each call of [`PrefetchParts::some`]: a
    /// burst of prefetches would overflow the fill buffers and be dropped.
    #[inline(always)]
    pub fn by(self, parts: usize) -> PrefetchParts {
        PrefetchParts { share: self.lines().div_ceil(parts.max(1)), left: self, asked: 0 }
    }
}

/// Memory that is prefetched little by little.
pub(super) struct PrefetchParts {
    left: Prefetch,
    /// Cache lines of a part.
    share: usize,
    /// Bytes of the current run that were prefetched.
    asked: usize,
}

impl PrefetchParts {
    /// Prefetches the next part.
    #[inline(always)]
    pub fn some(&mut self, prefetch: impl Fn(*const u8)) {
        for _ in 0..self.share {
            if self.left.runs > 0 {
                prefetch(self.left.at.wrapping_add(self.asked));
                self.asked += LINE;
                if self.asked >= self.left.bytes {
                    self.left.at = self.left.at.wrapping_offset(self.left.pitch);
                    (self.left.runs, self.asked) = (self.left.runs - 1, 0);
                }
            }
        }
    }
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// The address of element `p` of line `i` of the job.
#[inline(always)]
pub(super) fn source<T>(job: &Pack, i: usize, p: usize) -> *const T {
    job.factor.at(job.first + i, job.from + p).cast()
}

/// The number of lines of panel `q`, and the elements of one step.
#[inline(always)]
pub(super) fn panel_lines(job: &Pack, q: usize) -> (usize, usize) {
    let lines = job.width.min(job.lines - q * job.width);
    (lines, if lines == job.width { job.width } else { job.last })
}

/// Panel `q` of elements `P`: the number of its lines, the elements of one step, and its address.
#[inline(always)]
pub(super) fn panel<P>(job: &Pack, q: usize) -> (usize, usize, *mut P) {
    let (lines, pitch) = panel_lines(job, q);
    (lines, pitch, job.to.cast::<P>().wrapping_add(q * job.width * job.depth))
}

#[inline(always)]
unsafe fn neighboring_lines<S: Simd, T: Element>(job: &Pack) {
    let panels = job.lines.div_ceil(job.width);
    for group in (0..panels).step_by(INTERLEAVED_PANELS) {
        for p in 0..job.depth {
            for q in group..panels.min(group + INTERLEAVED_PANELS) {
                let (lines, pitch, to) = panel::<f32>(job, q);
                let from = source::<T>(job, q * job.width, p);
                // SAFETY: reads `lines` elements of the factor and writes `pitch` elements of the
                // panel, less than a vector more.
                unsafe {
                    let to = to.add(p * pitch);
                    let mut i = 0;
                    while i + S::LANES <= lines {
                        S::store(to.add(i), T::load::<S>(from.add(i)));
                        i += S::LANES;
                    }
                    if i < pitch {
                        S::store_part(to.add(i), T::load_part::<S>(from.add(i), lines - i), pitch - i);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn neighboring_steps<S: Simd, T: Element>(job: &Pack) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel::<f32>(job, q);
        for i in (0..lines).step_by(S::LANES) {
            let first = source::<T>(job, q * job.width + i, 0);
            let (count, width) = (S::LANES.min(lines - i), S::LANES.min(pitch - i));
            let mut p = 0;
            // SAFETY: reads steps of `count` lines of the factor and writes `width` elements of as
            // many steps of the panel.
            unsafe {
                // The last line stands in for missing lines: its values are not stored, or only
                // into padding.
                let line = |r: usize| first.wrapping_offset(job.factor.line * r.min(count - 1) as isize);
                while p + S::LANES <= job.depth {
                    let rows = if count == S::LANES {
                        let first = first.wrapping_add(p);
                        transposed::<S>(|r| T::load::<S>(first.wrapping_offset(job.factor.line * r as isize)))
                    } else {
                        transposed::<S>(|r| T::load::<S>(line(r).wrapping_add(p)))
                    };
                    let to = to.add(p * pitch + i);
                    // What a store writes beyond a step of a narrow panel, the stores of the
                    // following steps overwrite, if they exist.
                    let behind = (job.depth - p - (S::LANES - 1)) * pitch;
                    if width == S::LANES || (i == 0 && behind >= S::LANES) {
                        for s in 0..S::LANES {
                            S::store(to.add(s * pitch), rows.as_ref()[s]);
                        }
                    } else {
                        for s in 0..S::LANES {
                            S::store_part(to.add(s * pitch), rows.as_ref()[s], width);
                        }
                    }
                    p += S::LANES;
                }
                if p < job.depth {
                    let steps = job.depth - p;
                    let rows = transposed::<S>(|r| T::load_part::<S>(line(r).wrapping_add(p), steps));
                    let to = to.add(p * pitch + i);
                    for (s, row) in rows.as_ref().iter().enumerate().take(steps) {
                        S::store_part(to.add(s * pitch), *row, width);
                    }
                }
            }
        }
    }
}

/// Vector `s` of the result holds value `s` of each vector. The loop has a constant length, so that
/// all vectors stay in registers.
#[inline(always)]
pub(super) unsafe fn transposed<S: Simd>(line: impl Fn(usize) -> S::V) -> S::Rows {
    // SAFETY: the caller guarantees that the processor supports the set.
    unsafe {
        let mut rows = S::zeros();
        for r in 0..S::LANES {
            rows.as_mut()[r] = line(r);
        }
        S::transpose(rows)
    }
}

#[inline(always)]
unsafe fn scattered<S: Simd, T: Element>(job: &Pack) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel::<f32>(job, q);
        for p in 0..job.depth {
            for i in (0..lines).step_by(S::LANES) {
                let count = S::LANES.min(lines - i);
                let width = S::LANES.min(pitch - i);
                // SAFETY: reads `count` elements of the factor and writes `width` elements of the
                // panel.
                unsafe {
                    let first = source::<T>(job, q * job.width + i, p).read();
                    let mut gathered = [first; 16];
                    for (r, x) in gathered.iter_mut().enumerate().take(count).skip(1) {
                        *x = source::<T>(job, q * job.width + i + r, p).read();
                    }
                    let row = T::load_part::<S>(gathered.as_ptr(), count);
                    S::store_part(to.add(p * pitch + i), row, width);
                }
            }
        }
    }
}
