//! Products of many rows with codes, as sums of 16-bit integers: the prefill of a language model.
//!
//! Both factors become panels of 16-bit integers, in pairs along the sum, which is what the dot
//! products of VNNI take. A row of the left factor is in fixed point for each block of
//! [`CODED_BLOCK`] values: integers of 16 bits in units of a power of two, as in
//! [`super::blocks`] but narrower. Codes are widened. The sum of a block is an exact integer; it is
//! scaled by unit and scale and added in fp32 with a fused multiply-add, block after block. So the
//! bits depend neither on the instruction set nor on the number of threads.
//!
//! Panel of the left factor, for each [`TALL`] rows: for each block `[pair][row][2]` integers. Its
//! units are `[block][row]`. Panel of codes, for each [`WIDE`] columns of the result:
//! `[pair][column][2]`, and its scales `[block][column]`. What is beyond the edge of a factor is 0.

use half::f16;

use super::blocks::{CODED_BLOCK, Kernel, exponent, whole};
use super::widen::widen;
use crate::gemm::vector::{ElementType, Factor};
use crate::{convert, vectorize};

/// Rows of a tile.
pub(super) const TALL: usize = 6;
/// Columns of a tile.
pub(super) const WIDE: usize = 32;
/// Lanes of a vector of 32 bits.
const LANES: usize = 16;
/// Pairs of a block.
const PAIRS: usize = CODED_BLOCK / 2;

/// Rows of the left factor that are loaded together: some whole tiles.
pub(super) const GROUP: usize = 8 * TALL;

/// A block of each row of a group.
type BlockOfRows = [[f32; CODED_BLOCK]; GROUP];

/// Writes the panels and units of rows `first..first + rows` of the left factor, at most
/// [`GROUP`]; false if a value is not finite.
///
/// # Safety
/// These rows have `k` readable elements.
pub(super) unsafe fn left(
    factor: &Factor,
    (first, rows): (usize, usize),
    k: usize,
    to: &mut [i16],
    units: &mut [f32],
) -> bool {
    let mut x: BlockOfRows = [[0.0; CODED_BLOCK]; GROUP];
    let mut finite = true;
    let blocks = k / CODED_BLOCK;
    for block in 0..blocks {
        // SAFETY: the caller guarantees the elements; blocks are whole.
        unsafe { load(factor, (first, rows), block * CODED_BLOCK, &mut x) };
        let panels = to.chunks_exact_mut(k * TALL).zip(units.chunks_exact_mut(blocks * TALL));
        for (x, (to, units)) in x.chunks_exact(TALL).zip(panels) {
            let to = &mut to[block * CODED_BLOCK * TALL..][..CODED_BLOCK * TALL];
            finite &= vectorize!(fixed(x, to, &mut units[block * TALL..][..TALL]));
        }
    }
    finite
}

/// Widens a block of some rows.
///
/// # Safety
/// As [`left`], for [`CODED_BLOCK`] elements from `at` on.
unsafe fn load(factor: &Factor, (first, rows): (usize, usize), at: usize, x: &mut BlockOfRows) {
    if factor.kind == ElementType::F16 && factor.line == 1 && factor.depth >= rows as isize {
        let (depth, address) = (factor.depth as usize, factor.at(first, at).cast::<f16>());
        // SAFETY: the caller guarantees the elements of these lines, and what lies between them is
        // of the same factor.
        let from = unsafe { std::slice::from_raw_parts(address, (CODED_BLOCK - 1) * depth + rows) };
        convert::f16_to_f32_transposed(from, depth, x.as_flattened_mut(), CODED_BLOCK, CODED_BLOCK, rows);
        return;
    }
    for (i, row) in x.iter_mut().enumerate().take(rows) {
        // SAFETY: the caller guarantees the elements.
        unsafe { widen(factor, (first + i, at), row) };
    }
}

/// Rounds a block of each row of a tile to integers; false if a value is not finite.
#[inline(always)]
fn fixed(x: &[[f32; CODED_BLOCK]], to: &mut [i16], units: &mut [f32]) -> bool {
    let mut top = 0u32;
    for i in 0..TALL {
        let mut largest = 0u32;
        for value in &x[i] {
            largest = largest.max(value.to_bits() & 0x7FFF_FFFF);
        }
        top = top.max(largest);
        let (factor, unit) = exponent(largest, 15);
        units[i] = unit;
        let mut integers = [0i32; CODED_BLOCK];
        for p in 0..CODED_BLOCK {
            // The largest value may be rounded up to 2¹⁵.
            integers[p] = whole(x[i][p] * factor).min(i32::from(i16::MAX));
        }
        for p in 0..PAIRS {
            to[(p * TALL + i) * 2] = integers[2 * p] as i16;
            to[(p * TALL + i) * 2 + 1] = integers[2 * p + 1] as i16;
        }
    }
    top < 0x7F80_0000
}

/// Rows of codes that become a panel.
pub(super) struct Rows<'a> {
    pub codes: &'a [u8],
    pub scales: &'a [u8],
    /// Codes that share a scale.
    pub block: usize,
    pub k: usize,
}

impl Rows<'_> {
    /// The panel of the `count` rows from `first` on, at most [`WIDE`].
    pub(super) fn panel(&self, bits: usize, (first, count): (usize, usize), to: &mut [i16], scales: &mut [f32]) {
        match bits {
            4 => vectorize!(self.widen::<4>((first, count), to)),
            _ => vectorize!(self.widen::<8>((first, count), to)),
        }
        let groups = self.k / self.block;
        scales.fill(0.0);
        for c in 0..count {
            let own = &self.scales[2 * (first + c) * groups..][..2 * groups];
            for (block, to) in scales.chunks_exact_mut(WIDE).enumerate() {
                let at = 2 * (block * CODED_BLOCK / self.block);
                to[c] = f16::from_le_bytes([own[at], own[at + 1]]).to_f32();
            }
        }
    }

    #[inline(always)]
    fn widen<const BITS: usize>(&self, (first, count): (usize, usize), to: &mut [i16]) {
        let bytes = self.k * BITS / 8;
        let per_word = 32 / BITS / 2;
        for half in 0..WIDE / LANES {
            for at in 0..bytes / 4 {
                let mut words = [0u32; LANES];
                for (lane, word) in words.iter_mut().enumerate().take(count.saturating_sub(half * LANES)) {
                    let from = (first + half * LANES + lane) * bytes + 4 * at;
                    let code = &self.codes[from..from + 4];
                    *word = u32::from_le_bytes([code[0], code[1], code[2], code[3]]);
                }
                for pair in 0..per_word {
                    let to = &mut to[((at * per_word + pair) * WIDE + half * LANES) * 2..][..2 * LANES];
                    for lane in 0..LANES {
                        let word = words[lane] >> (2 * BITS * pair);
                        to[2 * lane] = (((word << (32 - BITS)) as i32) >> (32 - BITS)) as i16;
                        to[2 * lane + 1] = (((word << (32 - 2 * BITS)) as i32) >> (32 - BITS)) as i16;
                    }
                }
            }
        }
    }
}

/// A panel of the left factor and one of codes.
pub(super) struct Tile<'a> {
    pub left: &'a [i16],
    pub units: &'a [f32],
    pub right: &'a [i16],
    pub scales: &'a [f32],
}

impl Tile<'_> {
    /// Stores the sums, [`TALL`] rows of [`WIDE`].
    pub(super) fn run(&self, kernel: Kernel, sums: &mut [f32]) {
        match kernel {
            Kernel::Plain(_) => vectorize!(self.loops(sums)),
            // SAFETY: the kernel is made only where the processor supports it.
            #[cfg(target_arch = "x86_64")]
            Kernel::Vnni(_) => unsafe { super::vnni::tile(self, sums) },
        }
    }

    #[inline(always)]
    fn loops(&self, sums: &mut [f32]) {
        sums.fill(0.0);
        let left = self.left.chunks_exact(CODED_BLOCK * TALL).zip(self.units.chunks_exact(TALL));
        let right = self.right.chunks_exact(CODED_BLOCK * WIDE).zip(self.scales.chunks_exact(WIDE));
        for ((left, units), (right, scales)) in left.zip(right) {
            for i in 0..TALL {
                let mut whole = [0i32; WIDE];
                for p in 0..PAIRS {
                    let at = (p * TALL + i) * 2;
                    let (a, b) = (i32::from(left[at]), i32::from(left[at + 1]));
                    let codes = &right[p * 2 * WIDE..][..2 * WIDE];
                    for c in 0..WIDE {
                        whole[c] += a * i32::from(codes[2 * c]) + b * i32::from(codes[2 * c + 1]);
                    }
                }
                let sums = &mut sums[i * WIDE..][..WIDE];
                for c in 0..WIDE {
                    sums[c] = (whole[c] as f32).mul_add(scales[c] * units[i], sums[c]);
                }
            }
        }
    }
}
