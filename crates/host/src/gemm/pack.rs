//! Packing: lines of a factor of any type and strides become fp32 panels in the order in which a
//! tile reads them.
//!
//! A panel holds `width` lines, step of depth after step of depth. Where lines or steps are
//! neighbors in memory whole vectors are read, converted and, for the latter, transposed.

use half::f16;

use super::vector::{Element, ElementType, Factor, Simd};

/// Panels that are filled side by side where neighbors in memory belong to neighboring panels.
pub(super) const INTERLEAVED_PANELS: usize = 4;

/// What [`pack`] is to do: lines `lines` of a factor from depth `from` on, `depth`
/// steps, into panels of `width` lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    pub factor: Factor,
    pub first: usize,
    pub lines: usize,
    pub from: usize,
    pub depth: usize,
    pub width: usize,
    /// Elements of one step of the last panel, if that is not full: its lines, or more, which
    /// nobody looks at.
    pub last: usize,
    /// fp32, or, for `halves::pack`, fp16.
    pub to: *mut u8,
}

/// Packs.
///
/// # Safety
/// The lines and steps are inside the factor, and the destination has room for the panels and is
/// nobody else's. The processor has the set.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd>(job: Pack) {
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
    unsafe {
        if job.width == 1 && job.factor.depth == 1 {
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

/// Memory that will be read: runs of bytes, `pitch` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefetch {
    /// Where the first run begins.
    pub at: *const u8,
    /// Of a run.
    pub bytes: usize,
    /// From one run to the next.
    pub pitch: isize,
    pub runs: usize,
}

impl Prefetch {
    /// Nothing.
    pub const NOTHING: Prefetch = Prefetch { at: std::ptr::null(), bytes: 0, pitch: 0, runs: 0 };

    /// Part `part` of `parts` of what [`pack`] will read for a job; nothing where its elements are
    /// scattered.
    pub fn of(job: &Pack, part: usize, parts: usize) -> Prefetch {
        let Factor { line, depth, .. } = job.factor;
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

    /// Lines of memory.
    pub fn lines(&self) -> usize {
        self.runs * self.bytes.div_ceil(LINE)
    }
}

/// Bytes of a line of memory.
pub(super) const LINE: usize = 64;

/// Element `p` of line `i` of those to be packed.
#[inline(always)]
pub(super) fn source<T>(job: &Pack, i: usize, p: usize) -> *const T {
    job.factor.at(job.first + i, job.from + p).cast()
}

/// Panel `q` of elements `P`: its lines, elements of one step, and place.
#[inline(always)]
pub(super) fn panel<P>(job: &Pack, q: usize) -> (usize, usize, *mut P) {
    let lines = job.width.min(job.lines - q * job.width);
    let pitch = if lines == job.width { job.width } else { job.last };
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
                // SAFETY: `lines` elements of the factor and `pitch` of the panel, which is less
                // than a vector more.
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
            // SAFETY: steps of `count` lines of the factor, and `width` elements of as many steps
            // of the panel.
            unsafe {
                // The last line in the place of those that are not there: its values are not
                // stored, or where nobody reads.
                let line = |r: usize| first.wrapping_offset(job.factor.line * r.min(count - 1) as isize);
                while p + S::LANES <= job.depth {
                    let rows = if count == S::LANES {
                        let first = first.wrapping_add(p);
                        transposed::<S>(|r| T::load::<S>(first.wrapping_offset(job.factor.line * r as isize)))
                    } else {
                        transposed::<S>(|r| T::load::<S>(line(r).wrapping_add(p)))
                    };
                    let to = to.add(p * pitch + i);
                    // What reaches over a step of a narrow panel is written again by the next ones,
                    // if they are there.
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

/// Vector `s` of the result holds value `s` of each vector. The loop has a fixed length, so that
/// all stay in registers.
#[inline(always)]
unsafe fn transposed<S: Simd>(line: impl Fn(usize) -> S::V) -> S::Rows {
    // SAFETY: the caller's promise: the processor has the set.
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
                // SAFETY: `count` elements of the factor and `width` of the panel.
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
