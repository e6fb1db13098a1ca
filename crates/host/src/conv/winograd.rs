//! Convolutions with 3 × 3 filters by Winograd's minimal filtering, for channels-last images.
//!
//! A task transforms the pixels of a block of tiles, multiplies each of the 36 transformed values
//! with its weights, and transforms the sums. The weights take four times their memory, so small
//! images, which use them a few times only, are computed directly.
//!
//! Errors are about twice those of a direct sum in fp32 (`gemm::winograd`). A block with a pixel
//! that is infinite, NaN or huge is computed directly: the transform would spread it over the tile.
//!
//! Invariant: blocks depend on the shape alone, so neither results nor which blocks are computed
//! directly depend on the threads.

use std::ops::Range;

use super::last::{Area, Last};
use super::padded::strides;
use super::shape::{Finish, Image, Weights};
use crate::gemm::{
    Ahead, BLOCK, GemmError, PITCH, Results, Runs, SPAN, Strip, TILE, TilePixels, TileSums, VALUES, filter,
    panel_width, tile_rows, with_scratch,
};
use crate::pool;

/// The least number of tiles for which transformed weights pay.
const TILES: usize = 9;
/// The fewest input or output channels for which the transforms of pixels and sums pay.
const CHANNELS: usize = 16;
/// Elements of the transformed pixels and the sums of a block: they stay in the L2 cache.
const SCRATCH: usize = 160 << 10;
/// Transformed weights that are not read by both threads: they leave the L2 cache.
const SHARED: usize = 256 << 10;

/// Tiles of the results.
#[derive(Clone, Debug)]
pub(super) struct Winograd {
    /// Rows and columns of tiles.
    tiles: [usize; 2],
    /// Rows of tiles of a block.
    rows: usize,
}

impl Winograd {
    /// The tiles of a convolution; `None` if it is better computed directly.
    pub(super) fn new(last: &Last) -> Option<Winograd> {
        let tiles = [1, 2].map(|a: usize| last.output[a].div_ceil(TILE));
        let plain = last.groups == 1 && last.output[0] == 1 && last.input[0] == 1 && last.pad[0] == 0;
        let square = last.taps.len() == 9
            && last.taps.iter().enumerate().all(|(i, (t, at))| *t == i && *at == [0, i / 3, i % 3])
            && last.steps == [1; 3];
        let wide = (CHANNELS..=BLOCK).contains(&last.channels) && last.outputs >= CHANNELS;
        // Rows of results that fill their tiles only in part waste products.
        let (places, room) = (last.output[1] * last.output[2], tiles[0] * tiles[1] * TILE * TILE);
        let per_tile = VALUES * (last.channels + last.columns());
        let block = SCRATCH / per_tile;
        if !(plain
            && square
            && wide
            && tiles[0] * tiles[1] >= TILES
            && 2 * places > room
            && tiles[1] <= 4 * block.max(8))
        {
            return None;
        }
        Some(Winograd { tiles, rows: (block / tiles[1]).clamp(1, tiles[0]) })
    }

    /// Values of the transformed weights.
    pub(super) fn packed_len(last: &Last) -> usize {
        VALUES * last.channels * last.columns()
    }

    /// Packs transformed weights: for each value, panels as those of a direct product.
    pub(super) fn pack(last: &Last, weights: Weights<'_>, to: &mut [f32]) {
        let (channels, part) = (last.channels, last.channels * last.columns());
        // Filters are transformed panel by panel, and then each value is moved to its own matrix.
        let mut filters: Vec<f32> = Vec::new();
        for (first, width) in last.panels() {
            filters.clear();
            filters.resize(channels * width * VALUES, 0.0);
            let outputs = width.min(last.outputs - first);
            pool::for_each_chunk_mut(&mut filters, width * VALUES, |channel, to| {
                for (column, to) in to.chunks_exact_mut(VALUES).enumerate().take(outputs) {
                    let at = ((first + column) * channels + channel) * 9;
                    let w = |i: usize| f64::from(weights.at(at + i));
                    let values = filter([[w(0), w(1), w(2)], [w(3), w(4), w(5)], [w(6), w(7), w(8)]]);
                    for (to, v) in to.iter_mut().zip(values) {
                        *to = v as f32;
                    }
                }
            });
            let panel = first * channels;
            pool::for_each_chunk_mut(to, part, |value, to| {
                for (to, filter) in to[panel..panel + channels * width].iter_mut().zip(filters.chunks_exact(VALUES)) {
                    *to = filter[value];
                }
            });
        }
    }

    /// Computes one image.
    ///
    /// # Safety
    /// As of [`Last::run`]; `weights` are what [`Winograd::pack`] wrote.
    pub(super) unsafe fn run(
        &self,
        last: &Last,
        image: &Image<'_>,
        [direct, weights]: [&[f32]; 2],
        out: Results<'_>,
        finish: Option<Finish<'_>>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let panels = last.panels().count();
        let blocks = self.tiles[0].div_ceil(self.rows);
        let threads = if parallel { pool::threads() } else { 1 };
        // Threads share large weights, or blocks.
        let split = blocks < threads || weights.len() > SHARED && blocks < 4 * threads;
        let parts = if split { threads.min(panels) } else { 1 };
        let tasks = blocks * parts;
        pool::try_for_each_range(tasks, if parallel { 1 } else { tasks }, |tasks| {
            for task in tasks {
                let (part, block) = (task / blocks, task % blocks);
                let rows = block * self.rows..self.tiles[0].min((block + 1) * self.rows);
                let panels = part * panels / parts..(part + 1) * panels / parts;
                // SAFETY: the caller guarantees it; tasks have different rows or panels.
                unsafe {
                    if !self.block(last, image, weights, out, rows.clone(), panels.clone())? {
                        last.product(
                            image,
                            direct,
                            out,
                            0..1,
                            Area::neighbors(self.positions(last, rows.clone())),
                            panels,
                        )?;
                    }
                    if parts == 1 {
                        last.finish(out, finish, self.positions(last, rows));
                    }
                }
            }
            Ok::<_, GemmError>(())
        })?;
        if parts > 1 {
            // SAFETY: all results have been written.
            unsafe { last.finish_all(out, finish, 2 * threads) };
        }
        Ok(())
    }

    /// The results of some rows of tiles.
    fn positions(&self, last: &Last, rows: Range<usize>) -> Range<usize> {
        let [_, heights, widths] = last.output;
        rows.start * TILE * widths..heights.min(rows.end * TILE) * widths
    }

    /// The results of some rows of tiles and panels; false, and nothing is written, if a pixel
    /// cannot be transformed.
    ///
    /// # Safety
    /// As of [`Last::run`].
    unsafe fn block(
        &self,
        last: &Last,
        image: &Image<'_>,
        weights: &[f32],
        out: Results<'_>,
        rows: Range<usize>,
        panels: Range<usize>,
    ) -> Result<bool, GemmError> {
        let channels = last.channels;
        let (count, full) = (rows.len() * self.tiles[1], panel_width().0);
        let [_, heights, widths] = last.output;
        // Several values lie side by side in the rows of the product.
        let beside = BLOCK / channels;
        let mut places = [0; VALUES];
        for (value, place) in places.iter_mut().enumerate() {
            *place = value / beside * count * PITCH + value % beside * channels;
        }
        let pixels = VALUES.div_ceil(beside) * count * PITCH;
        let width = panels.len() * full;
        let strides = strides(image.strides);
        let list = || last.panels().skip(panels.start).take(panels.len()).enumerate();
        let tiles = rows.flat_map(|y| (0..self.tiles[1]).map(move |x| [y, x]));
        with_scratch([pixels, VALUES * count * width, 0], |[pixels, sums, _]| {
            for (i, [y, x]) in tiles.clone().enumerate() {
                let mut at = [None; VALUES];
                for (j, at) in at.iter_mut().enumerate() {
                    let y = (y * TILE + j / SPAN).wrapping_sub(last.pad[1]);
                    let x = (x * TILE + j % SPAN).wrapping_sub(last.pad[2]);
                    if y < last.input[1] && x < last.input[2] {
                        let offset = y as isize * strides[1] + x as isize * strides[2];
                        *at = Some(image.origin.wrapping_add_signed(offset));
                    }
                }
                let to = pixels.as_mut_ptr().wrapping_add(i * PITCH);
                let tile = TilePixels { pixels: image.pixels, at, channels, to, places: &places };
                // SAFETY: the pixels are inside the image, and each tile has a row of all blocks.
                if unsafe { !tile.run() } {
                    return false;
                }
            }
            let height = count.div_ceil(count.div_ceil(tile_rows()));
            for (value, place) in places.iter().enumerate() {
                for (panel, (first, columns)) in list() {
                    let packed = value * channels * last.columns() + first * channels;
                    // The next panel, or the next value.
                    let after = packed + channels * columns;
                    let ahead = &weights[after..weights.len().min(after + channels * full)];
                    let ahead = Ahead::spread(ahead, count.div_ceil(height), channels);
                    for (part, row) in (0..count).step_by(height).enumerate() {
                        let partial = (value * panels.len() + panel) * count * full + row * columns;
                        let strip = Strip {
                            a: pixels.as_ptr().wrapping_add(place + row * PITCH),
                            runs: Runs { count: 1, length: channels, stride: 0 },
                            b: weights.as_ptr().wrapping_add(packed),
                            partial: sums.as_mut_ptr().wrapping_add(partial),
                            first: true,
                            last: false,
                            out,
                            cols: columns,
                            ahead: ahead.part(part),
                        };
                        // SAFETY: the rows were written above, the panels have all channels, and
                        // there is room for the sums of all values, panels and tiles.
                        unsafe { strip.run(height.min(count - row), columns) };
                    }
                }
            }
            for (i, [y, x]) in tiles.clone().enumerate() {
                for (panel, (first, columns)) in list() {
                    let tile = TileSums {
                        from: sums.as_ptr().wrapping_add(panel * count * full + i * columns),
                        step: panels.len() * count * full,
                        cols: columns.min(last.outputs - first),
                        out: out.at(y * TILE * widths + x * TILE, first),
                        width: widths,
                        size: [TILE.min(heights - y * TILE), TILE.min(widths - x * TILE)],
                    };
                    // SAFETY: the sums were written above; the results are inside the image, and
                    // the caller guarantees the rest.
                    unsafe { tile.run() };
                }
            }
            true
        })
    }
}
