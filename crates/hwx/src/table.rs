//! Tables of functions: what the convolution engines look results up in.
//!
//! A table is 64 halfwords (spec: hwx.md 2.4): limits of x with the values beyond them, 33 samples
//! at equal distances, a straight line for each side between samples and limit, the distance, and a
//! mode. The mode says which x the samples are at, and how x is brought there.
//!
//! Reading and writing are exact for any bytes. How the engine comes from x to a value is
//! `ferrane_arith::table`'s, which evaluates the halfwords up to the mode.

use half::f16;

use crate::error::{Error, Result};

/// Bytes of a table.
pub const BYTES: usize = 128;
/// Samples of a table.
pub const SAMPLES: usize = 33;
/// Halfwords behind the mode.
const REST: usize = 21;

/// A straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearTail {
    /// y for each x.
    pub slope: f16,
    /// y at x = 0.
    pub offset: f16,
}

/// A table of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTable {
    /// At this x and left of it the value is `y_min`; in odd tables of |x|.
    pub x_min: f16,
    /// At this x and right of it the value is `y_max`.
    pub x_max: f16,
    /// The value from `x_min` on.
    pub y_min: f16,
    /// The value from `x_max` on.
    pub y_max: f16,
    /// Values at equal distances.
    pub samples: [f16; SAMPLES],
    /// Between `x_min` and the first sample.
    pub left: LinearTail,
    /// Between the last sample and `x_max`.
    pub right: LinearTail,
    /// Samples are 2 to the power of minus this apart; 0x40 where that means nothing.
    pub distance: u16,
    /// What the samples are at.
    pub mode: TableMode,
    /// The halfwords behind the mode, 0 in every sample.
    pub rest: [u16; REST],
}

/// Where the samples of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableMode {
    /// 1: the seventeenth sample is at x = 0.
    Centered,
    /// 2: the last sample is at x = 0. Reported, in no sample here.
    Negative,
    /// 0x60: the first sample is at x = 0; f(-x) = -f(x).
    Odd,
    /// 0x0a: the samples are those of 2^x from 0 to 1; the whole part of x is added to the
    /// exponent.
    Exp2,
    /// Another one: 0xc9 of a logarithm, 0x67 of 1/x, 0xc5 and 0xc6 of roots, 0x63 and 0x64 of
    /// parts of numbers. How x is brought to the samples is not established.
    Other(u16),
}

/// What a function is beyond its samples, for [`FunctionTable::centered`] and [`FunctionTable::odd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tail {
    /// One value.
    Constant(f64),
    /// `slope * x + offset`, without an end.
    Line(f64, f64),
}

impl TableMode {
    fn of(word: u16) -> TableMode {
        match word {
            0x01 => TableMode::Centered,
            0x02 => TableMode::Negative,
            0x60 => TableMode::Odd,
            0x0a => TableMode::Exp2,
            other => TableMode::Other(other),
        }
    }

    /// Its halfword in a table.
    pub fn word(self) -> u16 {
        match self {
            TableMode::Centered => 0x01,
            TableMode::Negative => 0x02,
            TableMode::Odd => 0x60,
            TableMode::Exp2 => 0x0a,
            TableMode::Other(word) => word,
        }
    }

    /// The distance from the first sample to x = 0, in samples.
    fn before_zero(self) -> Option<f64> {
        match self {
            TableMode::Centered => Some(16.0),
            TableMode::Negative => Some(32.0),
            TableMode::Odd | TableMode::Exp2 => Some(0.0),
            TableMode::Other(_) => None,
        }
    }
}

impl FunctionTable {
    /// Reads a table.
    pub fn decode(bytes: &[u8; BYTES]) -> FunctionTable {
        let word = |i: usize| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
        let at = |i: usize| f16::from_bits(word(i));
        FunctionTable {
            x_min: at(0),
            x_max: at(1),
            y_min: at(2),
            y_max: at(3),
            samples: std::array::from_fn(|i| at(4 + i)),
            left: LinearTail { slope: at(37), offset: at(38) },
            right: LinearTail { slope: at(39), offset: at(40) },
            distance: word(41),
            mode: TableMode::of(word(42)),
            rest: std::array::from_fn(|i| word(43 + i)),
        }
    }

    /// Writes it: the bytes that were read, if nothing was changed.
    pub fn encode(&self) -> [u8; BYTES] {
        let limits = [self.x_min, self.x_max, self.y_min, self.y_max];
        let lines = [self.left.slope, self.left.offset, self.right.slope, self.right.offset];
        let floats = limits.iter().chain(&self.samples).chain(&lines).map(|f| f.to_bits());
        let words = floats.chain([self.distance, self.mode.word()]).chain(self.rest);
        let mut bytes = [0; BYTES];
        for (place, word) in bytes.chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// A table of a function around 0: samples from `-16 / 2^distance` to `16 / 2^distance`. An
    /// error if the distance is not 0 to 14 or the function has no number at a sample.
    pub fn centered(function: impl Fn(f64) -> f64, distance: u16, left: Tail, right: Tail) -> Result<FunctionTable> {
        FunctionTable::of(TableMode::Centered, function, distance, left, right)
    }

    /// A table of a function with f(-x) = -f(x): samples from 0 to `32 / 2^distance`. Errors as
    /// [`FunctionTable::centered`].
    pub fn odd(function: impl Fn(f64) -> f64, distance: u16, right: Tail) -> Result<FunctionTable> {
        FunctionTable::of(TableMode::Odd, function, distance, Tail::Constant(0.0), right)
    }

    fn of(
        mode: TableMode,
        function: impl Fn(f64) -> f64,
        distance: u16,
        left: Tail,
        right: Tail,
    ) -> Result<FunctionTable> {
        let before = mode.before_zero().unwrap_or(0.0);
        if distance > 14 {
            return Err(Error::kernel(None, format!("samples are 2^-0 to 2^-14 apart, not 2^-{distance}")));
        }
        let step = 2f64.powi(-i32::from(distance));
        let x = |i: usize| (i as f64 - before) * step;
        let samples: [f16; SAMPLES] = std::array::from_fn(|i| f16::from_f64(function(x(i))));
        if let Some(i) = samples.iter().position(|s| !s.is_finite()) {
            return Err(Error::kernel(None, format!("the function has no value at {} that fp16 can hold", x(i))));
        }
        // A constant begins at the outer sample, a line has no end.
        let side = |tail: Tail, end: f64, outward: f64| match tail {
            Tail::Constant(y) => (end, y, (0.0, y)),
            Tail::Line(slope, offset) => {
                let y = if slope == 0.0 { offset } else { slope * outward };
                (outward, y, (slope, offset))
            }
        };
        let (x_min, y_min, left) = side(left, x(0), f64::NEG_INFINITY);
        let (x_max, y_max, right) = side(right, x(SAMPLES - 1), f64::INFINITY);
        let line = |(slope, offset)| LinearTail { slope: f16::from_f64(slope), offset: f16::from_f64(offset) };
        Ok(FunctionTable {
            x_min: f16::from_f64(x_min),
            x_max: f16::from_f64(x_max),
            y_min: f16::from_f64(y_min),
            y_max: f16::from_f64(y_max),
            samples,
            left: line(left),
            right: line(right),
            distance,
            mode,
            rest: [0; REST],
        })
    }
}
