//! The kernels of channels-last convolutions, on the best instruction set of this processor.

use super::gather::Gather;
use super::isa;
use super::planar::Planar;
use super::strip::{PITCH, Strip};
use super::taps::{PaddedTaps, Taps};
use super::unfold::Pixels;
use super::winograd::{TilePixels, TileSums};

impl Strip<'_> {
    /// Multiplies `rows` rows, at most [`tile_rows`], with a panel of `columns` columns, whole
    /// vectors and at most a full panel.
    ///
    /// # Safety
    /// `a` has `rows` rows of the runs, `b` the same number of steps of `columns` values; `partial`
    /// has room for the sums of the tile unless this is the first and the last block; so many
    /// results are writable, as many biases are readable, and nothing else accesses the results; if
    /// a step adds an addend, it has an element for each result.
    pub(crate) unsafe fn run(&self, rows: usize, columns: usize) {
        let kernels = isa::best();
        // SAFETY: the caller guarantees it; `best` returns kernels that this processor supports.
        unsafe { kernels.strips[rows - 1][columns / kernels.lanes - 1](self) }
    }
}

impl Planar<'_> {
    /// Multiplies [`planar_rows`] positions with a panel of `columns` columns, whole vectors and at
    /// most a full panel; neighboring positions see pixels at a distance of `step` elements.
    ///
    /// # Safety
    /// `a` has a pixel for each offset and position, `b` a step of `columns` values for each
    /// offset; fewer positions are skipped than there are; so many results are writable, as many
    /// biases are readable, and nothing else accesses the results; if a step adds an addend, it has
    /// an element for each result.
    pub(crate) unsafe fn run(&self, step: usize, columns: usize) {
        let kernels = isa::best();
        let last = (kernels.planar_rows(columns) - 1) * step;
        let reach = || self.offsets.iter().max().map_or(0, |most| most + last + 1);
        debug_assert!(self.a.len() >= reach() && self.b.len() >= self.offsets.len() * columns);
        // SAFETY: the caller guarantees it; `best` returns kernels that this processor supports.
        unsafe { kernels.planars[step - 1][columns / kernels.lanes - 1](self) }
    }
}

/// Columns of a full panel, and lanes of a vector: panels have whole vectors.
pub(crate) fn panel_width() -> (usize, usize) {
    let kernels = isa::best();
    (kernels.cols, kernels.lanes)
}

/// The most rows of a tile.
pub(crate) fn tile_rows() -> usize {
    isa::best().rows
}

/// Rows of a planar tile of so many columns, whole vectors.
pub(crate) fn planar_rows(columns: usize) -> usize {
    isa::best().planar_rows(columns)
}

impl Gather<'_> {
    /// Gathers `count` positions from `first` on, [`PITCH`] elements each.
    ///
    /// # Safety
    /// The pixels inside the image are elements of `pixels`, `count` positions from `first` on
    /// exist, and runs of more than one tap have pixels without gaps. If there is a prologue,
    /// runs have one tap, and it has values for each element of a run.
    ///
    /// # Panics
    /// If `to` has fewer than `count` · `PITCH` elements, or a row exceeds a block.
    pub(crate) unsafe fn rows(&self, first: usize, count: usize, to: &mut [f32]) {
        let length: usize = self.runs.iter().map(|r| r.taps * r.channels).sum();
        assert!(to.len() >= count * PITCH && length <= PITCH - 16, "rows without room");
        let kernels = isa::best();
        // SAFETY: the caller guarantees it, and `to` has room for the rows and a vector more.
        unsafe {
            match self.pixels {
                Pixels::F32(s) => (kernels.gather)(self, s.as_ptr().cast(), first, count, to.as_mut_ptr()),
                Pixels::F16(s) => (kernels.gather_f16)(self, s.as_ptr().cast(), first, count, to.as_mut_ptr()),
            }
        }
    }
}

impl Taps<'_> {
    /// Computes the results; the filter begins at `origin` for the first one.
    ///
    /// # Safety
    /// Every tap of every position is a pixel of `channels` elements, each tap has weights, if any
    /// has, and the results are writable and nothing else accesses them; if a step adds an addend,
    /// it has an element for each result.
    pub unsafe fn run(&self, pixels: Pixels<'_>, origin: isize) {
        let kernels = isa::best();
        // SAFETY: the caller guarantees it.
        unsafe {
            match pixels {
                Pixels::F32(s) => (kernels.taps)(self, s.as_ptr().wrapping_offset(origin).cast()),
                Pixels::F16(s) => (kernels.taps_f16)(self, s.as_ptr().wrapping_offset(origin).cast()),
            }
        }
    }
}

impl PaddedTaps<'_> {
    /// Computes the results from the pixels from `origin` on; `copy` is the beginning of the copy.
    ///
    /// # Safety
    /// The pixels that are copied are elements, at most a vector of channels of each; the copy has
    /// room for them and a vector for each tap of each position, and nothing else accesses it; each
    /// tap has weights, and the results are writable and nothing else accesses them; if a step adds
    /// an addend, it has an element for each result.
    pub unsafe fn run(&self, pixels: Pixels<'_>, origin: usize, copy: *const f32) {
        let kernels = isa::best();
        // SAFETY: the caller guarantees it.
        unsafe {
            match pixels {
                Pixels::F32(s) => (kernels.padded)(self, s.as_ptr().wrapping_add(origin).cast(), copy),
                Pixels::F16(s) => (kernels.padded_f16)(self, s.as_ptr().wrapping_add(origin).cast(), copy),
            }
        }
    }
}

impl TilePixels<'_> {
    /// Transforms the pixels; false if one of them is infinite, NaN, or so large that the transform
    /// may overflow.
    ///
    /// # Safety
    /// The pixels are elements, and there is room for so many channels at each place.
    pub(crate) unsafe fn run(&self) -> bool {
        let kernels = isa::best();
        // SAFETY: the caller guarantees it; `best` returns kernels that this processor supports.
        unsafe {
            match self.pixels {
                Pixels::F32(s) => (kernels.tile_pixels)(self, s.as_ptr().cast()),
                Pixels::F16(s) => (kernels.tile_pixels_f16)(self, s.as_ptr().cast()),
            }
        }
    }
}

impl TileSums<'_> {
    /// Transforms the sums and stores the results.
    ///
    /// # Safety
    /// The sums of all values are readable, whole vectors of them; the results are writable and
    /// nothing else accesses them; if a step adds an addend, it has an element for each result.
    pub(crate) unsafe fn run(&self) {
        // SAFETY: the caller guarantees it; `best` returns kernels that this processor supports.
        unsafe { (isa::best().tile_sums)(self) }
    }
}
