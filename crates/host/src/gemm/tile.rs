//! The microkernel: an MR × NR tile of results, held in registers over one block along K, and its
//! epilogue.

use super::finish::{Finish, Store, StridedOutput, finish};
use super::pack::Prefetch;
use super::vector::{Element, Simd};

/// Steps along K between two prefetches.
const PREFETCH_INTERVAL: usize = 16;

/// A chunk of the output and one block along K of the packed panels that are multiplied into it.
#[derive(Clone, Copy)]
pub(super) struct PanelBlock<'a> {
    /// The kernels for the type of the columns.
    pub tiles: &'static [&'static [Tile]],
    /// Length of the block along K.
    pub depth: usize,
    /// Steps along K that precede the block in the panels of rows and of columns.
    pub done: [usize; 2],
    /// Steps along K that precede the chunk in the panels of rows: these may hold all of K.
    pub skipped: usize,
    /// Rows of a tile; the last tiles may have fewer.
    pub height: usize,
    /// The first panel of rows.
    pub a: *const f32,
    /// Elements from one panel of rows to the next.
    pub a_panel: usize,
    /// The first panel of columns.
    pub b: *const u8,
    /// Elements from one panel of columns to the next.
    pub b_panel: usize,
    /// Partial sums of earlier blocks, tile after tile, if there are several blocks.
    pub partial: *mut f32,
    /// This is the first block: there are no partial sums.
    pub first: bool,
    /// This is the last block: the epilogue runs and the results are stored.
    pub last: bool,
    /// Row and column of the output at which the chunk begins.
    pub corner: (usize, usize),
    /// Rows and columns of the chunk.
    pub size: (usize, usize),
    /// The whole output, not the chunk.
    pub out: StridedOutput,
    /// The epilogue of the whole output.
    pub finish: Finish<'a>,
}

// SAFETY: the addresses point into scratch that outlives the block; tasks read panels and write the
// sums and results of different tiles.
unsafe impl Sync for PanelBlock<'_> {}

impl<'a> PanelBlock<'a> {
    /// The same chunk over the `depth` steps that follow the first `done` steps of the panels.
    pub fn block(&self, done: usize, depth: usize, first: bool, last: bool) -> PanelBlock<'a> {
        PanelBlock { depth, done: [done; 2], first, last, ..*self }
    }

    /// The same chunk with a single panel of columns, which holds the steps of this block only.
    pub fn panel(&self, b: *const u8) -> PanelBlock<'a> {
        PanelBlock { b, b_panel: 0, done: [self.done[0], 0], ..*self }
    }
}

/// [`tile`] of one size.
pub(super) type Tile = unsafe fn(&PanelBlock<'_>, Spot);

/// A tile of a chunk: the index of its panel of rows and of its panel of columns.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub i: usize,
    pub j: usize,
    /// Memory that the tile prefetches.
    pub ahead: Prefetch,
}

/// Computes a tile of `M` rows and `N` vectors of columns of type `C`; the tiles before it have
/// `full` columns.
///
/// # Safety
/// As [`PanelBlock::run`]; the tile has that size.
#[inline(always)]
pub(super) unsafe fn tile<S: Simd, C: Element, const M: usize, const N: usize>(
    block: &PanelBlock<'_>,
    spot: Spot,
    full: usize,
) {
    let width = N * S::LANES;
    // SAFETY: the panels hold `depth` steps of `M` and of `width` values.
    let sums = unsafe {
        let a = block.a.add(spot.i * block.a_panel + (block.skipped + block.done[0]) * M);
        let b = block.b.cast::<C>().add(spot.j * block.b_panel + block.done[1] * width);
        let mut sums = [[S::splat(0.0); N]; M];
        let mut ahead = spot.ahead.by(block.depth / PREFETCH_INTERVAL);
        let mut p = 0;
        while p < block.depth {
            ahead.some(|at| S::prefetch(at));
            let end = block.depth.min(p + PREFETCH_INTERVAL);
            while p < end {
                let mut line = [S::splat(0.0); N];
                for (v, x) in line.iter_mut().enumerate() {
                    *x = C::load::<S>(b.add(p * width + v * S::LANES));
                }
                S::step(&mut sums, a.add(p * M), line);
                p += 1;
            }
        }
        sums
    };
    // SAFETY: the caller guarantees it.
    unsafe { complete::<S, M, N>(block, spot, full, sums) };
}

/// Adds the sums of a block to those of earlier ones, and stores them as partial sums or results.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub(super) unsafe fn complete<S: Simd, const M: usize, const N: usize>(
    block: &PanelBlock<'_>,
    spot: Spot,
    full: usize,
    mut sums: [[S::V; N]; M],
) {
    let width = N * S::LANES;
    let (row, col) = (block.corner.0 + spot.i * block.height, block.corner.1 + spot.j * full);
    if !(block.first && block.last) {
        let tiles = block.size.0.div_ceil(block.height);
        // SAFETY: there is room for the sums of all full tiles, and this task owns these.
        unsafe {
            let partial = block.partial.add((spot.j * tiles + spot.i) * block.height * full);
            if !block.first {
                for i in 0..M {
                    for v in 0..N {
                        sums[i][v] = S::add(S::load(partial.add(i * width + v * S::LANES)), sums[i][v]);
                    }
                }
            }
            if !block.last {
                for i in 0..M {
                    for v in 0..N {
                        S::store(partial.add(i * width + v * S::LANES), sums[i][v]);
                    }
                }
                return;
            }
        }
    }
    let cols = width.min(block.size.1 - spot.j * full);
    // SAFETY: the tile is inside the output and owned by this task; whole vectors are stored only
    // if the row of the tile is whole.
    unsafe {
        if cols == width && block.out.col == 1 {
            store::<S, M, N>(sums, row, col, block);
        } else {
            let mut buffer = [[[0f32; 16]; N]; M];
            let pitch = N * 16;
            let base = buffer.as_mut_ptr().cast::<f32>();
            for i in 0..M {
                for v in 0..N {
                    S::store(base.add(i * pitch + v * S::LANES), sums[i][v]);
                }
            }
            finish(base, pitch, (M, cols), (row, col), block.out, &block.finish);
        }
    }
}

/// Applies the epilogue to a tile with whole rows and stores it.
#[inline(always)]
unsafe fn store<S: Simd, const M: usize, const N: usize>(
    mut sums: [[S::V; N]; M],
    row: usize,
    col: usize,
    block: &PanelBlock<'_>,
) {
    let (finish, out) = (&block.finish, block.out);
    let at = |i: usize, v: usize| (row + i) as isize * out.row + (col + v * S::LANES) as isize;
    // SAFETY: the caller guarantees it; the epilogue's vectors cover the output.
    unsafe {
        if finish.scale != 1.0 {
            let scale = S::splat(finish.scale);
            for i in 0..M {
                for v in 0..N {
                    sums[i][v] = S::mul(sums[i][v], scale);
                }
            }
        }
        if let Some(scales) = finish.row_scales {
            for i in 0..M {
                let scale = S::splat(*scales.get_unchecked(row + i));
                for v in 0..N {
                    sums[i][v] = S::mul(sums[i][v], scale);
                }
            }
        }
        if let Some(scales) = finish.col_scales {
            for v in 0..N {
                let scale = S::load(scales.as_ptr().add(col + v * S::LANES));
                for i in 0..M {
                    sums[i][v] = S::mul(sums[i][v], scale);
                }
            }
        }
        if let (true, Store::F32(base)) = (finish.accumulate, out.store) {
            for i in 0..M {
                for v in 0..N {
                    sums[i][v] = S::add(sums[i][v], S::load(base.offset(at(i, v))));
                }
            }
        }
        if let Some(bias) = finish.row_bias {
            for i in 0..M {
                let bias = S::splat(*bias.get_unchecked(row + i));
                for v in 0..N {
                    sums[i][v] = S::add(sums[i][v], bias);
                }
            }
        }
        if let Some(bias) = finish.col_bias {
            for v in 0..N {
                let bias = S::load(bias.as_ptr().add(col + v * S::LANES));
                for i in 0..M {
                    sums[i][v] = S::add(sums[i][v], bias);
                }
            }
        }
        match out.store {
            Store::F32(base) => {
                if finish.round {
                    for i in 0..M {
                        for v in 0..N {
                            sums[i][v] = S::round(sums[i][v]);
                        }
                    }
                }
                for i in 0..M {
                    for v in 0..N {
                        S::store(base.offset(at(i, v)), sums[i][v]);
                    }
                }
            }
            Store::F16(base) => {
                for i in 0..M {
                    for v in 0..N {
                        S::store_f16(base.offset(at(i, v)), sums[i][v]);
                    }
                }
            }
        }
    }
}
