//! Products of pixels that lie in rows of single channels with packed columns: the first layer of a
//! convolutional network.
//!
//! As in a [`strip`](super::strip), a pixel is broadcast and multiplies vectors of output channels.
//! The pixels of a tile's positions are `STEP` elements from each other, and a table says where the
//! pixel of each step along K lies.

use super::strip::{Results, store_sums};
use super::vector::Simd;

/// One tile: [`planar_rows`](super::planar_rows) neighboring positions times one panel.
#[derive(Clone, Copy)]
pub(crate) struct Planar<'a> {
    /// For each step along K, the distance of its pixel from where the filter of the first position
    /// begins.
    pub offsets: &'a [usize],
    /// The pixels, from where that filter begins.
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub out: Results<'a>,
    /// Columns that are stored; the panel may have more.
    pub cols: usize,
    /// The first positions, which are not stored.
    pub skipped: usize,
}

/// The largest distance of the pixels that a tap sees from neighboring positions.
pub(crate) const PLANAR_STEPS: usize = 2;

/// Rows of a tile of one vector, if other tiles have at most so many rows: with enough registers, a
/// divisor of the usual widths of first layers' results.
pub(super) const fn tall<S: Simd>(rows: usize) -> usize {
    if S::REGISTERS < 32 || rows > 14 { rows } else { 14 }
}

/// [`planar`] of one size.
pub(super) type PlanarKernel = unsafe fn(&Planar<'_>);

/// Multiplies `M` positions with a panel of `N` vectors.
///
/// # Safety
/// `a` has the pixels of `M` positions for each offset, and `b` as many steps of `N` vectors as
/// there are offsets; fewer than `M` positions are skipped; the results are writable and nothing
/// else accesses them; the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn planar<S: Simd, const M: usize, const N: usize, const STEP: usize>(job: &Planar<'_>) {
    // SAFETY: the caller guarantees it.
    unsafe {
        job.out.prefetch::<S>(M, job.cols);
        let mut sums = [[S::splat(0.0); N]; M];
        let mut b = job.b.as_ptr();
        for offset in job.offsets {
            let a = job.a.as_ptr().add(*offset);
            let mut line = [S::splat(0.0); N];
            for (v, x) in line.iter_mut().enumerate() {
                *x = S::load(b.add(v * S::LANES));
            }
            b = b.add(N * S::LANES);
            for i in 0..M {
                let x = S::splat(*a.add(i * STEP));
                for v in 0..N {
                    sums[i][v] = S::fma(x, line[v], sums[i][v]);
                }
            }
        }
        store_sums::<S, M, N>(sums, job.skipped, &job.out, job.cols);
    }
}
