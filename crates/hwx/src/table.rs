//! Function tables: piecewise linear functions that the convolution engines evaluate.
//!
//! A table is 64 halfwords (spec: hwx.md 2.4): limits of x with the values beyond them, 33
//! equidistant samples, a line on each side between samples and limit, the distance of the samples,
//! and a mode. The mode determines where the samples are and how x is reduced to their range.
//!
//! Reading and writing are exact for any bytes. Evaluation is in `ferrane_arith::table`, which uses
//! the halfwords up to the mode.

use half::f16;

use crate::error::{Error, Result};

/// The size of a table in bytes.
pub const BYTES: usize = 128;
/// The number of samples of a table.
pub const SAMPLES: usize = 33;
/// The number of halfwords after the mode.
const REST: usize = 21;

/// A line `slope * x + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearTail {
    /// The change of y per unit of x.
    pub slope: f16,
    /// The value at x = 0.
    pub offset: f16,
}

/// A piecewise linear function, field by field as the engine reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTable {
    /// At and below this x the value is `y_min`; odd tables compare |x|.
    pub x_min: f16,
    /// At and above this x the value is `y_max`.
    pub x_max: f16,
    /// The value at and below `x_min`.
    pub y_min: f16,
    /// The value at and above `x_max`.
    pub y_max: f16,
    /// The values at equidistant x, in ascending order.
    pub samples: [f16; SAMPLES],
    /// The line between `x_min` and the first sample.
    pub left: LinearTail,
    /// The line between the last sample and `x_max`.
    pub right: LinearTail,
    /// The step between samples is `2^-distance`; 0x40 in modes without a distance.
    pub distance: u16,
    /// The position of the samples.
    pub mode: TableMode,
    /// The halfwords after the mode; 0 in every sample file.
    pub rest: [u16; REST],
}

/// The position of a table's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableMode {
    /// 1: the seventeenth sample is at x = 0.
    Centered,
    /// 2: the last sample is at x = 0. Reported, in no sample here.
    Negative,
    /// 0x60: the first sample is at x = 0; f(-x) = -f(x).
    Odd,
    /// 0x0a: the samples are those of 2^x from 0 to 1; the integral part of x is added to the
    /// exponent.
    Exp2,
    /// Another mode: 0xc9 of a logarithm, 0x67 of 1/x, 0xc5 and 0xc6 of roots, 0x63 and 0x64 of
    /// integral and fractional parts. The reduction of x is not established.
    Other(u16),
}

/// The values of a function beyond its samples, for [`FunctionTable::centered`] and
/// [`FunctionTable::odd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tail {
    /// A constant value of y.
    Constant(f64),
    /// The line `slope * x + offset`, unbounded.
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

    /// The halfword that encodes the mode.
    pub fn word(self) -> u16 {
        match self {
            TableMode::Centered => 0x01,
            TableMode::Negative => 0x02,
            TableMode::Odd => 0x60,
            TableMode::Exp2 => 0x0a,
            TableMode::Other(word) => word,
        }
    }

    /// The number of samples between the first one and x = 0.
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
    /// Decodes a table; any bytes are valid.
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

    /// Encodes the table; an unchanged one gives back the bytes that were decoded.
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

    /// A table of a function around 0, with samples from `-16 / 2^distance` to `16 / 2^distance`.
    ///
    /// # Errors
    /// E0705 if `distance` exceeds 14 or fp16 cannot hold the function's value at a sample.
    pub fn centered(function: impl Fn(f64) -> f64, distance: u16, left: Tail, right: Tail) -> Result<FunctionTable> {
        FunctionTable::of(TableMode::Centered, function, distance, left, right)
    }

    /// A table of a function with f(-x) = -f(x), with samples from 0 to `32 / 2^distance`. Errors
    /// as [`FunctionTable::centered`].
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
            return Err(Error::kernel(
                None,
                format!("the step between samples is from 2^-14 to 2^-0, not 2^-{distance}"),
            ));
        }
        let step = 2f64.powi(-i32::from(distance));
        let x = |i: usize| (i as f64 - before) * step;
        let samples: [f16; SAMPLES] = std::array::from_fn(|i| f16::from_f64(function(x(i))));
        if let Some(i) = samples.iter().position(|s| !s.is_finite()) {
            return Err(Error::kernel(None, format!("the function has no value at {} that fp16 can hold", x(i))));
        }
        // A constant begins at the outermost sample; a line is unbounded.
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
