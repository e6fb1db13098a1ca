//! The left factor in fixed point, and what every kernel for codes is given.
//!
//! A chunk is 16 words of 32 bits of a row: 128 int4 codes or 64 int8 codes. Word `i` is lane `i`.

/// Values of the left factor that share a unit; blocks of scales are multiples of it.
pub const CODED_BLOCK: usize = 32;

/// Words of a chunk.
pub(super) const LANES: usize = 16;

/// Codes in a word.
pub(super) const fn codes_in_word(bits: usize) -> usize {
    32 / bits
}

/// The sums, as an address that several threads share.
pub(super) struct Sums(pub *mut f32);

// SAFETY: threads write different columns, and the memory outlives the product.
unsafe impl Sync for Sums {}

impl Sums {
    pub(super) fn get(&self) -> *mut f32 {
        self.0
    }
}

/// Some columns of a product.
pub(super) struct Job<'a> {
    pub codes: &'a [u8],
    pub scales: &'a [u8],
    /// Codes that share a scale.
    pub block: usize,
    pub k: usize,
    /// The prepared rows of the left factor, one after the other.
    pub prepared: &'a [u8],
    /// The first row of the codes, and their number.
    pub first: usize,
    pub count: usize,
    /// Elements from one row of sums to the next.
    pub pitch: usize,
}

/// The most rows whose integers have 22 or 23 bits; those of more rows have 16.
const WIDE_ROWS: usize = 2;

/// The width of the integers of the left factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// 22 bits and a sign, 21 with int8 codes: for few rows, where the time is that of reading the
    /// codes.
    Wide,
    /// 15 bits and a sign, as dot products of pairs take them.
    Narrow,
}

impl Width {
    /// That of a product with so many rows.
    pub(super) fn of(rows: usize) -> Width {
        if rows > WIDE_ROWS { Width::Narrow } else { Width::Wide }
    }
}

/// A chunk of the left factor in fixed point.
pub(super) struct Fixed {
    pub values: [i32; 128],
    /// The unit of each lane.
    pub units: [f32; LANES],
}

/// 1.5 · 2²³: a number of up to 2²² that is added to it is rounded to an integer, which stands in
/// the low bits of the sum.
const WHOLE: f32 = 12_582_912.0;

/// The least exponent of a block's largest value: below it, units would be subnormal.
const LEAST: i32 = -90;

/// What makes integers of `width` bits and a sign of values whose largest magnitude has these
/// bits, and the unit of the integers, which is its inverse.
#[inline(always)]
pub(super) fn exponent(largest: u32, width: i32) -> (f32, f32) {
    // All magnitudes are below two to this.
    let exponent = ((largest >> 23) as i32 - 126).max(LEAST);
    let power = |e: i32| f32::from_bits(((127 + e) as u32) << 23);
    (power(width - exponent), power(exponent - width))
}

/// The nearest integer of a value of at most 2²².
#[inline(always)]
pub(super) fn whole(value: f32) -> i32 {
    (value + WHOLE).to_bits() as i32 - WHOLE.to_bits() as i32
}

impl Fixed {
    /// Rounds a chunk, or the end of a row, to integers; false if a value is not finite.
    #[inline(always)]
    pub(super) fn round(&mut self, x: &[f32], bits: usize, width: Width) -> bool {
        // Magnitudes up to 2²² times int4 codes, or 2²¹ times int8 codes, have lane sums below 2³¹.
        let (width, most) = match (width, bits) {
            (Width::Wide, 4) => (22, i32::MAX),
            (Width::Wide, _) => (21, i32::MAX),
            // The largest value may be rounded up to 2¹⁵.
            (Width::Narrow, _) => (15, i32::from(i16::MAX)),
        };
        let lanes = CODED_BLOCK / codes_in_word(bits);
        self.values[x.len()..].fill(0);
        self.units = [0.0; LANES];
        let mut top = 0u32;
        for (b, block) in x.chunks(CODED_BLOCK).enumerate() {
            let mut largest = 0u32;
            for value in block {
                largest = largest.max(value.to_bits() & 0x7FFF_FFFF);
            }
            top = top.max(largest);
            let (factor, unit) = exponent(largest, width);
            self.units[b * lanes..(b + 1) * lanes].fill(unit);
            for (to, value) in self.values[b * CODED_BLOCK..].iter_mut().zip(block) {
                *to = whole(value * factor).min(most);
            }
        }
        top < 0x7F80_0000
    }

    /// Writes value `j` of each lane, then value `j + 1`, and the units.
    pub(super) fn lanes(&self, bits: usize, to: &mut [u8]) {
        let per_lane = codes_in_word(bits);
        let mut words = to.chunks_exact_mut(4);
        for j in 0..per_lane {
            for (lane, word) in (0..LANES).zip(words.by_ref()) {
                word.copy_from_slice(&self.values[lane * per_lane + j].to_ne_bytes());
            }
        }
        for (unit, word) in self.units.iter().zip(words) {
            word.copy_from_slice(&unit.to_ne_bytes());
        }
    }
}

/// The sum of the accumulators: halves, quarters, and so on.
#[inline(always)]
pub(super) fn sum(lanes: [f32; LANES]) -> f32 {
    let mut all = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            all[i] += all[i + width];
        }
        width /= 2;
    }
    all[0]
}
