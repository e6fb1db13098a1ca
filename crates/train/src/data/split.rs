//! The division of the data into training and validation ids.

use std::ops::Range;

use super::Error;

/// Ranges of training and validation ids: training first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Positions of the training ids.
    pub train: Range<usize>,
    /// Positions of the validation ids.
    pub valid: Range<usize>,
}

impl Split {
    /// The default share of training ids.
    pub const TRAIN: f64 = 0.95;

    /// Splits `count` ids after the share `train` of them, rounded down. The cut is moved, if
    /// necessary, so that both parts hold at least one window of `seq` + 1 ids.
    ///
    /// # Errors
    /// [`Error::TooShort`] if `count` ids are fewer than two windows.
    pub fn new(count: usize, train: f64, seq: usize) -> Result<Split, Error> {
        let window = seq.saturating_add(1);
        let need = window.saturating_mul(2);
        if count < need {
            return Err(Error::TooShort { found: count, need, seq });
        }
        // A share of NaN becomes 0, and the clamp gives both parts a window.
        let cut = ((count as f64 * train) as usize).clamp(window, count - window);
        Ok(Split { train: 0..cut, valid: cut..count })
    }

    /// The starts of at most `count` evenly spaced validation windows of `seq` + 1 ids: `j ·
    /// stride` after the start of the validation part, where stride is (ids − seq − 1) / count,
    /// rounded down, and at least 1.
    pub fn windows(&self, count: usize, seq: usize) -> Vec<usize> {
        let Some(room) = self.valid.len().checked_sub(seq.saturating_add(1)) else { return Vec::new() };
        let stride = (room / count.max(1)).max(1);
        (0..count.min(room / stride + 1)).map(|j| self.valid.start + j * stride).collect()
    }

    /// The starts of `count` evenly spaced windows of `seq` + 1 ids over all of the data; if
    /// `count` is 0, of all windows that fit without overlap.
    ///
    /// # Errors
    /// [`Error::NoWindow`].
    pub fn evaluation(ids: usize, seq: usize, count: usize) -> Result<Vec<usize>, Error> {
        let need = seq.saturating_add(1);
        if ids < need || seq == 0 {
            return Err(Error::NoWindow { found: ids, need });
        }
        let whole = (ids - 1) / seq;
        Ok(match count {
            0 => (0..whole).map(|window| window * seq).collect(),
            count => Split { train: 0..0, valid: 0..ids }.windows(count.min(whole), seq),
        })
    }

    /// Number of positions at which a training window of `seq` + 1 ids can start.
    pub fn positions(&self, seq: usize) -> usize {
        self.train.len().saturating_sub(seq)
    }
}
