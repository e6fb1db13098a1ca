//! The transforms of Winograd's minimal filtering F(4×4, 3×3), for channels-last images.
//!
//! A tile of 4 × 4 results of a 3 × 3 filter needs 6 × 6 pixels. Pixels and weights are transformed
//! to 36 values each; their products, summed over the input channels, are transformed to the
//! results. So a result takes 36/16 multiply-adds for each channel instead of 9 (Lavin and Gray,
//! "Fast Algorithms for Convolutional Neural Networks", 2015).
//!
//! The interpolation points are 0, ±3/4, ±3/2 and ∞. With 0, ±1, ±2 and ∞, which are usual, the
//! error of a sum in fp32 is about eleven times that of a direct sum, because the transforms cancel
//! large values; with these it is about twice that of a direct sum, and every coefficient but those
//! of the weights is exact.

use super::strip::Results;
use super::unfold::Pixels;
use super::vector::{Element, Simd};

/// Results of a tile along an axis.
pub(crate) const TILE: usize = 4;
/// Pixels of a tile along an axis.
pub(crate) const SPAN: usize = TILE + 2;
/// Values of a transformed tile.
pub(crate) const VALUES: usize = SPAN * SPAN;

/// The interpolation points: 0, ±A, ±B and ∞.
const A: f32 = 0.75;
const B: f32 = 1.5;

/// The pixels of a tile, and where their transform goes.
pub(crate) struct TilePixels<'a> {
    pub pixels: Pixels<'a>,
    /// Index of the first channel of each pixel; `None` for padding.
    pub at: [Option<usize>; VALUES],
    pub channels: usize,
    pub to: *mut f32,
    /// Where the channels of each transformed value go, in elements.
    pub places: &'a [usize; VALUES],
}

/// The sums of a tile, and where its results go.
pub(crate) struct TileSums<'a> {
    pub from: *const f32,
    /// Elements from one transformed value to the next.
    pub step: usize,
    /// Output channels that are stored; sums are there for whole vectors of them.
    pub cols: usize,
    pub out: Results<'a>,
    /// Positions in a row of results.
    pub width: usize,
    /// Rows and columns of the tile that are results.
    pub size: [usize; 2],
}

/// [`tile_pixels`] of one element type.
pub(super) type TilePixelsKernel = unsafe fn(&TilePixels<'_>, *const u8) -> bool;
/// [`tile_sums`].
pub(super) type TileSumsKernel = unsafe fn(&TileSums<'_>);

/// # Safety
/// As of [`TilePixels::run`]; the address is that of the pixels, the processor supports the
/// instruction set.
#[inline(always)]
pub(super) unsafe fn tile_pixels<S: Simd, C: Element>(job: &TilePixels<'_>, pixels: *const u8) -> bool {
    let pixels = pixels.cast::<C>();
    // SAFETY: the caller guarantees it.
    unsafe {
        // The sum of squares is finite unless a pixel is not, or is larger than 2⁶³.
        let mut squares = S::splat(0.0);
        let mut channel = 0;
        while channel < job.channels {
            let n = (job.channels - channel).min(S::LANES);
            let mut half = [[S::splat(0.0); SPAN]; SPAN];
            for x in 0..SPAN {
                let mut column = [S::splat(0.0); SPAN];
                for y in 0..SPAN {
                    if let Some(at) = job.at[y * SPAN + x] {
                        let from = pixels.add(at + channel);
                        column[y] = if n == S::LANES { C::load::<S>(from) } else { C::load_part::<S>(from, n) };
                        squares = S::fma(column[y], column[y], squares);
                    }
                }
                let column = spread::<S>(column);
                for y in 0..SPAN {
                    half[y][x] = column[y];
                }
            }
            for (y, half) in half.into_iter().enumerate() {
                let row = spread::<S>(half);
                for (x, v) in row.into_iter().enumerate() {
                    let to = job.to.add(job.places[y * SPAN + x] + channel);
                    if n == S::LANES { S::store(to, v) } else { S::store_part(to, v, n) }
                }
            }
            channel += S::LANES;
        }
        S::sum(squares).is_finite()
    }
}

/// Six pixels as six values.
#[inline(always)]
unsafe fn spread<S: Simd>(d: [S::V; SPAN]) -> [S::V; SPAN] {
    // SAFETY: the caller's.
    unsafe {
        let minus = |c: f32| S::splat(-c);
        let (p, q) = (S::fma(minus(B * B), d[2], d[4]), S::fma(minus(B * B), d[1], d[3]));
        let (r, s) = (S::fma(minus(A * A), d[2], d[4]), S::fma(minus(A * A), d[1], d[3]));
        let (product, sum) = (S::splat(A * A * B * B), minus(A * A + B * B));
        [
            S::fma(product, d[0], S::fma(sum, d[2], d[4])),
            S::fma(S::splat(A), q, p),
            S::fma(minus(A), q, p),
            S::fma(S::splat(B), s, r),
            S::fma(minus(B), s, r),
            S::fma(product, d[1], S::fma(sum, d[3], d[5])),
        ]
    }
}

/// # Safety
/// As of [`TileSums::run`]; the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn tile_sums<S: Simd>(job: &TileSums<'_>) {
    for col in (0..job.cols).step_by(S::LANES) {
        let n = (job.cols - col).min(S::LANES);
        // SAFETY: the caller guarantees it.
        unsafe {
            let mut half = [[S::splat(0.0); SPAN]; TILE];
            for x in 0..SPAN {
                let mut column = [S::splat(0.0); SPAN];
                for (y, v) in column.iter_mut().enumerate() {
                    *v = S::load(job.from.add((y * SPAN + x) * job.step + col));
                }
                let column = gather::<S>(column);
                for y in 0..TILE {
                    half[y][x] = column[y];
                }
            }
            for (y, half) in half.into_iter().enumerate().take(job.size[0]) {
                let row = gather::<S>(half);
                if job.size[1] == TILE {
                    job.out.store::<S, TILE>(y * job.width, col, n, row);
                    continue;
                }
                for (x, v) in row.into_iter().enumerate().take(job.size[1]) {
                    job.out.store::<S, 1>(y * job.width + x, col, n, [v]);
                }
            }
        }
    }
}

/// Six values as four results.
#[inline(always)]
unsafe fn gather<S: Simd>(m: [S::V; SPAN]) -> [S::V; TILE] {
    // SAFETY: the caller's.
    unsafe {
        let minus = S::splat(-1.0);
        let (s, d) = (S::add(m[1], m[2]), S::fma(minus, m[2], m[1]));
        let (t, e) = (S::add(m[3], m[4]), S::fma(minus, m[4], m[3]));
        let c = |c: f32| S::splat(c);
        [
            S::add(S::add(m[0], s), t),
            S::fma(c(B), e, S::mul(c(A), d)),
            S::fma(c(B * B), t, S::mul(c(A * A), s)),
            S::fma(c(B * B * B), e, S::fma(c(A * A * A), d, m[5])),
        ]
    }
}

/// The transform of a filter of 3 × 3 weights.
pub(crate) fn filter(weights: [[f64; 3]; 3]) -> [f64; VALUES] {
    let (a, b) = (f64::from(A), f64::from(B));
    let row = |point: f64, divisor: f64| [1.0 / divisor, point / divisor, point * point / divisor];
    let [at_a, at_b] = [(a, b), (b, a)].map(|(p, q)| 2.0 * p * p * (p * p - q * q));
    let rows: [[f64; 3]; SPAN] =
        [row(0.0, a * a * b * b), row(a, at_a), row(-a, at_a), row(b, at_b), row(-b, at_b), [0.0, 0.0, 1.0]];
    let mut values = [0.0; VALUES];
    for (y, a) in rows.iter().enumerate() {
        for (x, b) in rows.iter().enumerate() {
            for (a, weights) in a.iter().zip(&weights) {
                for (b, w) in b.iter().zip(weights) {
                    values[y * SPAN + x] += a * b * w;
                }
            }
        }
    }
    values
}
