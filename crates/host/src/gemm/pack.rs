//! Packing: lines of a factor of any type and strides become fp32 panels in the order in which a tile reads them.
//!
//! A panel holds `width` lines, step of depth after step of depth. Where lines or steps are neighbours in memory whole
//! vectors are read, converted and, for the latter, transposed.

use half::f16;

use super::isa::{Element, Kind, Pack, Simd};

/// Panels that are filled side by side where neighbours in memory belong to neighbouring panels.
pub(super) const ABREAST: usize = 4;

/// Packs.
///
/// # Safety
/// The lines and steps are inside the factor, and the destination has room for the panels and is nobody else's. The
/// processor has the set.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd>(job: Pack) {
    // SAFETY: the caller's promise.
    unsafe {
        match job.factor.kind {
            Kind::F32 => pack_type::<S, f32>(job),
            Kind::F16 => pack_type::<S, f16>(job),
            Kind::I8 => pack_type::<S, i8>(job),
        }
    }
}

#[inline(always)]
unsafe fn pack_type<S: Simd, T: Element>(job: Pack) {
    // SAFETY: the caller's promise.
    unsafe {
        if job.width == 1 && job.factor.depth == 1 {
            for line in 0..job.lines {
                let (from, to) = (source::<T>(&job, line, 0), job.to.add(line * job.depth));
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
            neighbouring_lines::<S, T>(&job);
        } else if job.factor.depth == 1 {
            neighbouring_steps::<S, T>(&job);
        } else {
            scattered::<S, T>(&job);
        }
    }
}

/// Element `p` of line `i` of those to be packed.
#[inline(always)]
fn source<T>(job: &Pack, i: usize, p: usize) -> *const T {
    job.factor.at(job.first + i, job.from + p).cast()
}

/// Panel `q`: its lines, elements of one step, and place.
#[inline(always)]
fn panel(job: &Pack, q: usize) -> (usize, usize, *mut f32) {
    let lines = job.width.min(job.lines - q * job.width);
    let pitch = if lines == job.width { job.width } else { job.last };
    (lines, pitch, job.to.wrapping_add(q * job.width * job.depth))
}

#[inline(always)]
unsafe fn neighbouring_lines<S: Simd, T: Element>(job: &Pack) {
    let panels = job.lines.div_ceil(job.width);
    for group in (0..panels).step_by(ABREAST) {
        for p in 0..job.depth {
            for q in group..panels.min(group + ABREAST) {
                let (lines, pitch, to) = panel(job, q);
                let from = source::<T>(job, q * job.width, p);
                // SAFETY: `lines` elements of the factor and `pitch` of the panel, which is less than a vector more.
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
unsafe fn neighbouring_steps<S: Simd, T: Element>(job: &Pack) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel(job, q);
        for p in (0..job.depth).step_by(S::LANES) {
            let steps = S::LANES.min(job.depth - p);
            for i in (0..lines).step_by(S::LANES) {
                let count = S::LANES.min(lines - i);
                let width = S::LANES.min(pitch - i);
                // SAFETY: `steps` elements of `count` lines of the factor, and `width` elements of `steps` steps.
                unsafe {
                    // There are as many rows as lanes.
                    let mut rows = S::zeros();
                    for (r, row) in rows.as_mut().iter_mut().enumerate().take(count) {
                        let from = source::<T>(job, q * job.width + i + r, p);
                        *row = if steps == S::LANES { T::load::<S>(from) } else { T::load_part::<S>(from, steps) };
                    }
                    let rows = S::transpose(rows);
                    let to = to.add(p * pitch + i);
                    for (s, row) in rows.as_ref().iter().enumerate().take(steps) {
                        if width == S::LANES {
                            S::store(to.add(s * pitch), *row);
                        } else {
                            S::store_part(to.add(s * pitch), *row, width);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn scattered<S: Simd, T: Element>(job: &Pack) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel(job, q);
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
