//! Products of two factors of bytes, with sums of 32 bits: what layers with 8-bit weights between
//! 8-bit activations consist of.
//!
//! The left factor has signed or unsigned bytes, row by row; the right one signed bytes, packed
//! once in panels of vectors of columns. A step of a kernel multiplies several neighbors along K of
//! each column, [`ByteKernel::depth`], with as many of a row, which it broadcasts:
//!
//! | kernel | lanes | depth | tile |
//! |---|---|---|---|
//! | AVX-512 VNNI | 16 | 4 | 6 × 64 |
//! | AVX-VNNI | 8 | 4 | 6 × 16 |
//! | AVX2 | 8 | 2 | 6 × 16 |
//! | plain loops | 8 | 2 | 6 × 16 |
//!
//! VNNI multiplies unsigned by signed bytes, so its panels hold code + 128. A sum therefore begins
//! at -128 times the sum of its row, which is computed when the row is gathered. The others widen
//! both factors to 16 bits.
//!
//! *Range.* A product of two bytes is at most 255 · 128 in magnitude after a zero point has been
//! subtracted, so sums of up to [`MOST_DEPTH`] products fit 32 bits; sums wrap on the way, which
//! does not change the result. Every kernel gives the same sums. The conversion to fp32 rounds
//! those of 2²⁴ and more, which take more than 512 products.

use std::ops::Range;

use super::error::GemmError;
use super::scratch::with_scratch;
use crate::pool;

mod finish;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use finish::Requantize;
pub(crate) use finish::{ByteFinish, ByteStore};

/// The longest sums: 65,793 · 255 · 128 is the last multiple below 2³¹.
pub const MOST_DEPTH: usize = 65_793;

/// Rows of a tile.
const TALL: usize = 6;
/// The most columns of a tile.
const WIDE: usize = 64;
/// Rows that a task gathers: with 512 bytes each, 48 KiB, which stay in the L2 cache.
const TASK_ROWS: usize = 16 * TALL;

/// A way to compute the sums: the same by each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteKernel {
    Plain,
    /// Pairs of 16-bit integers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Quadruples of bytes in vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// Quadruples of bytes in vectors of 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl ByteKernel {
    pub fn best() -> ByteKernel {
        ByteKernel::all().last().copied().unwrap_or(ByteKernel::Plain)
    }

    /// The kernels that this processor supports, the fastest last.
    pub fn all() -> &'static [ByteKernel] {
        static ALL: std::sync::OnceLock<Vec<ByteKernel>> = std::sync::OnceLock::new();
        ALL.get_or_init(|| {
            #[cfg(not(target_arch = "x86_64"))]
            let vectors: [(ByteKernel, bool); 0] = [];
            #[cfg(target_arch = "x86_64")]
            let vectors = {
                use super::{bfp, isa};
                [
                    (ByteKernel::Avx2, isa::has_avx2()),
                    (ByteKernel::AvxVnni, isa::has_avx2() && x86::has_avx_vnni()),
                    (ByteKernel::Avx512, isa::has_avx512() && bfp::has_avx512_vnni()),
                ]
            };
            let supported = vectors.into_iter().filter(|(_, has)| *has).map(|(kernel, _)| kernel);
            std::iter::once(ByteKernel::Plain).chain(supported).collect()
        })
    }

    /// Columns of a vector.
    fn lanes(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            ByteKernel::Avx512 => 16,
            _ => 8,
        }
    }

    /// The most vectors of a panel.
    fn vectors(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            ByteKernel::Avx512 => 4,
            _ => 2,
        }
    }

    /// Neighbors along K that a step multiplies.
    fn depth(self) -> usize {
        if self.is_unsigned() { 4 } else { 2 }
    }

    /// True if panels hold code + 128.
    fn is_unsigned(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            ByteKernel::AvxVnni | ByteKernel::Avx512 => true,
            _ => false,
        }
    }
}

/// The shape of a right factor and of its panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteShape {
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    kernel: ByteKernel,
}

impl ByteShape {
    /// `None` for sums that may not fit 32 bits, and for a factor that cannot be addressed.
    pub fn new(n: usize, k: usize) -> Option<ByteShape> {
        ByteShape::with(ByteKernel::best(), n, k)
    }

    fn with(kernel: ByteKernel, n: usize, k: usize) -> Option<ByteShape> {
        let columns = n.checked_next_multiple_of(kernel.lanes())?;
        let addressed = columns.checked_mul(k.max(1).checked_next_multiple_of(kernel.depth())?)?;
        (n > 0 && k > 0 && k <= MOST_DEPTH && addressed < isize::MAX as usize / 8).then_some(ByteShape { n, k, kernel })
    }

    /// Steps of a kernel along K.
    fn steps(&self) -> usize {
        self.k.div_ceil(self.kernel.depth())
    }

    /// Columns of all panels: whole vectors.
    fn columns(&self) -> usize {
        self.n.next_multiple_of(self.kernel.lanes())
    }

    /// Bytes of the panels.
    pub fn packed_len(&self) -> usize {
        self.columns() * self.steps() * self.kernel.depth()
    }

    /// The first column and the vectors of each panel. Those of the last columns are narrower.
    fn panels(self) -> impl Iterator<Item = (usize, usize)> {
        let (lanes, most, columns) = (self.kernel.lanes(), self.kernel.vectors(), self.columns());
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = at;
            let left = (columns - first) / lanes;
            let vectors = (0..=most.ilog2()).rev().map(|power| 1 << power).find(|&v| v <= left)?;
            at += vectors * lanes;
            Some((first, vectors))
        })
    }

    /// Packs the codes of each column: those that are not there are such that they add nothing.
    ///
    /// # Errors
    /// [`GemmError::OutOfBounds`] if `to` has fewer bytes than the panels.
    pub fn pack(&self, code: impl Fn(usize, usize) -> i8, to: &mut [i8]) -> Result<(), GemmError> {
        let to = self.cut(to.len())?.map_or(&mut [][..], |len| &mut to[..len]);
        let (lanes, depth, steps) = (self.kernel.lanes(), self.kernel.depth(), self.steps());
        let flip = if self.kernel.is_unsigned() { i8::MIN } else { 0 };
        for (first, vectors) in self.panels() {
            let width = vectors * lanes;
            let panel = &mut to[first * steps * depth..][..width * steps * depth];
            for (step, line) in panel.chunks_exact_mut(width * depth).enumerate() {
                for (at, to) in line.iter_mut().enumerate() {
                    let (column, k) = (first + at / depth, step * depth + at % depth);
                    // Rows have zeros after their last element.
                    *to = if column < self.n && k < self.k { code(column, k) ^ flip } else { 0 };
                }
            }
        }
        Ok(())
    }

    /// The bytes of the panels, if there are so many.
    fn cut(&self, len: usize) -> Result<Option<usize>, GemmError> {
        let (rows, cols) = (self.k, self.n);
        match self.packed_len() {
            wanted if wanted <= len => Ok(Some(wanted)),
            _ => Err(GemmError::OutOfBounds { rows, cols, row_stride: 1, col_stride: 1, offset: 0, len }),
        }
    }
}

/// A product whose operands were checked.
pub(crate) struct ByteProduct<'a> {
    pub shape: ByteShape,
    pub rows: usize,
    /// As [`ByteShape::pack`] has written them.
    pub weights: &'a [i8],
    /// Writes the `k` signed bytes of a row.
    pub gather: &'a (dyn Fn(usize, &mut [i8]) + Sync),
    pub finish: ByteFinish<'a>,
}

impl ByteProduct<'_> {
    /// Computes all results.
    ///
    /// # Errors
    /// [`GemmError`] if the panels are too short or scratch memory cannot be allocated.
    ///
    /// # Safety
    /// The results of all rows are writable, and nothing else accesses them; the finish has values
    /// for each column.
    pub unsafe fn run(&self, parallel: bool) -> Result<(), GemmError> {
        self.shape.cut(self.weights.len())?;
        let threads = if parallel { pool::threads() } else { 1 };
        let (mut blocks, panels) = (self.rows.div_ceil(TASK_ROWS), self.shape.panels().count());
        let mut parts = 1;
        if blocks < threads {
            parts = threads.div_ceil(blocks.max(1)).clamp(1, panels);
        } else if blocks < 4 * threads {
            blocks = blocks.next_multiple_of(threads);
        }
        // Whole tiles, but for the last block.
        let share = self.rows.div_ceil(blocks.max(1)).next_multiple_of(TALL);
        let tasks = blocks * parts;
        pool::try_for_each_range(tasks, if parallel { 1 } else { tasks.max(1) }, |tasks| {
            for task in tasks {
                let (block, part) = (task / parts, task % parts);
                let rows = (block * share).min(self.rows)..self.rows.min((block + 1) * share);
                let panels = part * panels / parts..(part + 1) * panels / parts;
                if rows.is_empty() || panels.is_empty() {
                    continue;
                }
                // SAFETY: the caller guarantees the results; tasks have different rows or panels.
                with_scratch([rows.len() * self.shape.steps(), 0, 0], |[left, _, _]| unsafe {
                    self.block(rows, panels, bytemuck::cast_slice_mut(left));
                })?;
            }
            Ok(())
        })
    }

    /// Gathers some rows and multiplies them with some panels.
    ///
    /// # Safety
    /// As of [`ByteProduct::run`], for these results.
    unsafe fn block(&self, rows: Range<usize>, panels: Range<usize>, left: &mut [i32]) {
        let (kernel, steps, lanes) = (self.shape.kernel, self.shape.steps(), self.shape.kernel.lanes());
        let mut begins = [0i32; TASK_ROWS];
        for ((row, to), begin) in rows.clone().zip(left.chunks_exact_mut(steps)).zip(&mut begins) {
            let sum = self.row(row, to);
            *begin = if kernel.is_unsigned() { sum.wrapping_mul(-128) } else { 0 };
        }
        let mut sums = [0i32; TALL * WIDE];
        for (first, vectors) in self.shape.panels().skip(panels.start).take(panels.len()) {
            let width = vectors * lanes;
            let right = &self.weights[first * steps * kernel.depth()..][..width * steps * kernel.depth()];
            for at in (0..rows.len()).step_by(TALL) {
                let count = TALL.min(rows.len() - at);
                let left = &left[at * steps..(at + count) * steps];
                let tile = Tile { left, begins: &begins[at..at + count], right, steps, vectors };
                tile.run(kernel, &mut sums);
                let columns = first..self.shape.n.min(first + width);
                // SAFETY: the caller guarantees the results of these rows and columns.
                unsafe { self.finish.tile(&mut sums, width, rows.start + at..rows.start + at + count, columns) };
            }
        }
    }

    /// Gathers a row as the kernel reads it, with zeros after it. Returns the sum of its elements.
    fn row(&self, row: usize, to: &mut [i32]) -> i32 {
        let k = self.shape.k;
        if self.shape.kernel.is_unsigned() {
            let to: &mut [i8] = bytemuck::cast_slice_mut(to);
            let (to, rest) = to.split_at_mut(k);
            rest.fill(0);
            (self.gather)(row, to);
            let mut sum = 0i32;
            crate::vectorize!({
                for &x in &*to {
                    sum = sum.wrapping_add(i32::from(x));
                }
            });
            return sum;
        }
        let to: &mut [i16] = bytemuck::cast_slice_mut(to);
        // The bytes lie in the second half until they are widened, from the first on.
        let half = to.len();
        let bytes: &mut [i8] = bytemuck::cast_slice_mut(to);
        (self.gather)(row, &mut bytes[half..half + k]);
        for i in 0..half {
            let bytes: &[i8] = bytemuck::cast_slice(to);
            let byte = if i < k { bytes[half + i] } else { 0 };
            to[i] = i16::from(byte);
        }
        0
    }
}

/// At most [`TALL`] rows and a panel.
struct Tile<'a> {
    /// The rows, `steps` integers each, of bytes or pairs.
    left: &'a [i32],
    /// Where the sums of each row begin.
    begins: &'a [i32],
    right: &'a [i8],
    steps: usize,
    vectors: usize,
}

impl Tile<'_> {
    /// Writes the sums of each row, one after the other.
    fn run(&self, kernel: ByteKernel, sums: &mut [i32; TALL * WIDE]) {
        let width = self.vectors * kernel.lanes();
        assert!(
            self.begins.len() <= TALL
                && width <= WIDE
                && self.left.len() == self.begins.len() * self.steps
                && self.right.len() == width * self.steps * kernel.depth()
        );
        match kernel {
            ByteKernel::Plain => crate::vectorize!(self.plain(sums)),
            // SAFETY: the sizes were checked, and the kernels are made only where the processor
            // supports them.
            #[cfg(target_arch = "x86_64")]
            ByteKernel::Avx2 => unsafe { x86::avx2(self, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            ByteKernel::AvxVnni => unsafe { x86::avx_vnni(self, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            ByteKernel::Avx512 => unsafe { x86::avx512(self, sums) },
        }
    }

    #[inline(always)]
    fn plain(&self, sums: &mut [i32; TALL * WIDE]) {
        const LANES: usize = 8;
        let width = self.vectors * LANES;
        for (i, &begin) in self.begins.iter().enumerate() {
            let row = &self.left[i * self.steps..][..self.steps];
            for v in 0..self.vectors {
                let mut all = [begin; LANES];
                for (step, pair) in row.iter().enumerate() {
                    let (a, b) = ((pair << 16) >> 16, pair >> 16);
                    let codes = &self.right[(step * width + v * LANES) * 2..][..2 * LANES];
                    for lane in 0..LANES {
                        let (x, y) = (i32::from(codes[2 * lane]), i32::from(codes[2 * lane + 1]));
                        all[lane] = all[lane].wrapping_add(a * x + b * y);
                    }
                }
                sums[i * width + v * LANES..][..LANES].copy_from_slice(&all);
            }
        }
    }
}
