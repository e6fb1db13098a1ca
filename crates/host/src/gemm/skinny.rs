//! Products with a factor of few rows: the other factor is read once, in place, at memory
//! bandwidth.
//!
//! Lines contiguous along K are multiplied and summed ([`dot`]); lines contiguous along N are
//! scaled and added ([`stream`]). The order of a sum depends on K, on which of the two runs, and on
//! the number of rows of the small factor.

use half::f16;

use super::vector::{Element, ElementType, Factor, Simd};

/// The most rows of a factor with which a product reads the other one in place, whatever its type.
pub const SKINNY: usize = 8;

/// Rows of `x` times the `count` lines from `first` on of a factor whose lines are contiguous along
/// K.
pub(super) struct Dot {
    pub x: *const f32,
    /// Elements from one row of `x` to the next.
    pub x_row: usize,
    /// Rows of `x`, from 1 to [`SKINNY`].
    pub rows: usize,
    pub factor: Factor,
    pub first: usize,
    pub count: usize,
    pub depth: usize,
    /// The sum of row `i` and line `c` is stored at `i · pitch + c`.
    pub sums: *mut f32,
    pub pitch: usize,
}

/// As [`Dot`], for a factor whose neighboring lines are contiguous. A row of sums has room for
/// whole vectors.
pub(super) struct Stream(pub Dot);

/// # Safety
/// The memory that the fields describe is readable; the sums are writable and accessed by no other
/// thread; the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(job: &Dot) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match job.factor.kind {
            ElementType::F32 => dot_type::<S, f32>(job),
            ElementType::F16 => dot_type::<S, f16>(job),
            ElementType::I8 => dot_type::<S, i8>(job),
        }
    }
}

#[inline(always)]
unsafe fn dot_type<S: Simd, T: Element>(job: &Dot) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match job.rows {
            // Short lines one by one are a single stream, which memory delivers fastest. Long ones
            // are streams of their own. The sums are the same.
            1 if job.depth * size_of::<T>() < LONG_LINE => lines::<S, T, 1, 0, 1, 2>(job),
            // As many sums as there are registers.
            1 if S::LANES == 16 => lines::<S, T, 1, 0, 8, 2>(job),
            1 => lines::<S, T, 1, 0, 4, 2>(job),
            2 => lines::<S, T, 2, 0, 4, 1>(job),
            // With 16 registers twelve sums, the lines and a row fit; four sums more would not. The
            // second half of 7 or 8 rows finds the lines in the L1 cache.
            3 if S::REGISTERS <= 16 => lines::<S, T, 3, 0, 3, 1>(job),
            4 if S::REGISTERS <= 16 => lines::<S, T, 4, 0, 3, 1>(job),
            7 if S::REGISTERS <= 16 => lines::<S, T, 4, 3, 3, 1>(job),
            8 if S::REGISTERS <= 16 => lines::<S, T, 4, 4, 3, 1>(job),
            3 => lines::<S, T, 3, 0, 4, 1>(job),
            4 => lines::<S, T, 4, 0, 4, 1>(job),
            5 => lines::<S, T, 5, 0, 2, 1>(job),
            6 => lines::<S, T, 6, 0, 2, 1>(job),
            7 => lines::<S, T, 7, 0, 2, 1>(job),
            _ => lines::<S, T, 8, 0, 2, 1>(job),
        }
    }
}

/// Bytes of a line from which on several are read at the same time.
const LONG_LINE: usize = 4096;

/// Prefetch distance in bytes: lines are too short for the hardware prefetcher to predict the next
/// ones.
const PREFETCH_DISTANCE: usize = 6 << 10;

/// `R` lines at a time, `U` vectors of each, with `M` rows and then with `N` more.
#[inline(always)]
unsafe fn lines<S: Simd, T: Element, const M: usize, const N: usize, const R: usize, const U: usize>(job: &Dot) {
    let mut c = 0;
    // SAFETY: the caller guarantees it.
    unsafe {
        while c + R <= job.count {
            some_lines::<S, T, M, R, U>(job, 0, c);
            if N > 0 {
                some_lines::<S, T, N, R, U>(job, M, c);
            }
            c += R;
        }
        while c < job.count {
            some_lines::<S, T, M, 1, U>(job, 0, c);
            if N > 0 {
                some_lines::<S, T, N, 1, U>(job, M, c);
            }
            c += 1;
        }
    }
}

/// `R` lines from line `c` on with `M` rows from row `first` on.
#[inline(always)]
unsafe fn some_lines<S: Simd, T: Element, const M: usize, const R: usize, const U: usize>(
    job: &Dot,
    first: usize,
    c: usize,
) {
    // SAFETY: the caller guarantees `R` lines of `depth` elements, and `M` rows of as many.
    unsafe {
        let x = job.x.add(first * job.x_row);
        let to = job.sums.add(first * job.pitch + c);
        let mut w = [std::ptr::null::<T>(); R];
        for (r, w) in w.iter_mut().enumerate() {
            *w = job.factor.at(job.first + c + r, 0).cast();
        }
        // The distance in whole lines, at least the lines of this call.
        let lines = PREFETCH_DISTANCE.div_ceil((job.depth * size_of::<T>()).max(1)).max(R) as isize;
        let ahead = job.factor.line.wrapping_mul(lines).wrapping_mul(size_of::<T>() as isize);
        let mut sums = [[[S::splat(0.0); R]; M]; U];
        let mut p = 0;
        while p + U * S::LANES <= job.depth {
            for u in 0..U {
                let p = p + u * S::LANES;
                let mut line = [S::splat(0.0); R];
                for r in 0..R {
                    line[r] = T::load::<S>(w[r].add(p));
                    if (p * size_of::<T>()).is_multiple_of(64) {
                        S::prefetch(w[r].add(p).cast::<u8>().wrapping_offset(ahead));
                    }
                }
                for i in 0..M {
                    let row = S::load(x.add(i * job.x_row + p));
                    for r in 0..R {
                        sums[u][i][r] = S::fma(line[r], row, sums[u][i][r]);
                    }
                }
            }
            p += U * S::LANES;
        }
        while p < job.depth {
            let n = S::LANES.min(job.depth - p);
            for i in 0..M {
                let row = S::load_part(x.add(i * job.x_row + p), n);
                for r in 0..R {
                    sums[0][i][r] = S::fma(T::load_part::<S>(w[r].add(p), n), row, sums[0][i][r]);
                }
            }
            p += n;
        }
        let mut all = sums[0];
        for more in &sums[1..] {
            for i in 0..M {
                for r in 0..R {
                    all[i][r] = S::add(all[i][r], more[i][r]);
                }
            }
        }
        write_sums::<S, M, R>(&all, to, job.pitch);
    }
}

/// Writes [`Simd::sum`] of each vector, `M` rows of `R`: as many as a vector has lanes at a time.
///
/// # Safety
/// The sum of vector `r` of row `i` is written to `i · pitch + r`; the processor supports the set.
#[inline(always)]
pub(super) unsafe fn write_sums<S: Simd, const M: usize, const R: usize>(
    vectors: &[[S::V; R]; M],
    to: *mut f32,
    pitch: usize,
) {
    // SAFETY: the caller guarantees the rows; there is room for 16 values.
    unsafe {
        // Below a quarter of the lanes, one by one is faster.
        if M * R <= S::LANES / 4 {
            for (i, row) in vectors.iter().enumerate() {
                for (r, vector) in row.iter().enumerate() {
                    to.add(i * pitch + r).write(S::sum(*vector));
                }
            }
            return;
        }
        // Indices that are constants once the loops are unrolled: the vectors stay in registers.
        for s in 0..(M * R).div_ceil(S::LANES) {
            let mut rows = S::zeros();
            for j in 0..S::LANES.min(M * R - s * S::LANES) {
                let at = s * S::LANES + j;
                rows.as_mut()[j] = vectors[at / R][at % R];
            }
            let mut sums = [0f32; 16];
            S::store(sums.as_mut_ptr(), S::sums(rows));
            for j in 0..S::LANES.min(M * R - s * S::LANES) {
                let at = s * S::LANES + j;
                to.add(at / R * pitch + at % R).write(sums[j]);
            }
        }
    }
}

/// # Safety
/// As [`dot`].
#[inline(always)]
pub(super) unsafe fn stream<S: Simd>(job: &Stream) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match job.0.factor.kind {
            ElementType::F32 => stream_type::<S, f32>(&job.0),
            ElementType::F16 => stream_type::<S, f16>(&job.0),
            ElementType::I8 => stream_type::<S, i8>(&job.0),
        }
    }
}

#[inline(always)]
unsafe fn stream_type<S: Simd, T: Element>(job: &Dot) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match job.rows {
            1 => steps::<S, T, 1, 8>(job),
            2 => steps::<S, T, 2, 8>(job),
            3 => steps::<S, T, 3, 4>(job),
            4 => steps::<S, T, 4, 4>(job),
            5 => steps::<S, T, 5, 2>(job),
            6 => steps::<S, T, 6, 2>(job),
            7 => steps::<S, T, 7, 2>(job),
            _ => steps::<S, T, 8, 2>(job),
        }
    }
}

/// `G` steps along K at a time with `M` rows.
#[inline(always)]
unsafe fn steps<S: Simd, T: Element, const M: usize, const G: usize>(job: &Dot) {
    // SAFETY: the caller guarantees that a row of sums has room for whole vectors.
    unsafe {
        for i in 0..M {
            std::ptr::write_bytes(job.sums.add(i * job.pitch), 0, job.count.next_multiple_of(S::LANES));
        }
        let mut p = 0;
        while p + G <= job.depth {
            some_steps::<S, T, M, G>(job, p);
            p += G;
        }
        while p < job.depth {
            some_steps::<S, T, M, 1>(job, p);
            p += 1;
        }
    }
}

#[inline(always)]
unsafe fn some_steps<S: Simd, T: Element, const M: usize, const G: usize>(job: &Dot, p: usize) {
    // SAFETY: the caller guarantees `G` steps of `count` elements, and `M` rows of sums.
    unsafe {
        let mut w = [std::ptr::null::<T>(); G];
        let mut x = [[S::splat(0.0); M]; G];
        for g in 0..G {
            w[g] = job.factor.at(job.first, p + g).cast();
            for i in 0..M {
                x[g][i] = S::splat(*job.x.add(i * job.x_row + p + g));
            }
        }
        let mut c = 0;
        while c < job.count {
            let n = S::LANES.min(job.count - c);
            let mut sums = [S::splat(0.0); M];
            for g in 0..G {
                let line = if n == S::LANES { T::load::<S>(w[g].add(c)) } else { T::load_part::<S>(w[g].add(c), n) };
                for i in 0..M {
                    sums[i] = if g == 0 { S::mul(line, x[g][i]) } else { S::fma(line, x[g][i], sums[i]) };
                }
            }
            for i in 0..M {
                let to = job.sums.add(i * job.pitch + c);
                S::store(to, S::add(S::load(to), sums[i]));
            }
            c += S::LANES;
        }
    }
}
