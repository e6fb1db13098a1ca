//! Which ids are trained on and which are validated on.

use std::ops::Range;

use super::Error;

/// The training part at the front and the validation part after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Positions of the training ids.
    pub train: Range<usize>,
    /// Positions of the validation ids.
    pub valid: Range<usize>,
}

impl Split {
    /// The share of the ids that is trained on.
    pub const TRAIN: f64 = 0.95;

    /// Cuts `count` ids after the share `train` of them, rounded down. Both parts hold at least one
    /// window of `seq` + 1 ids: in short data the validation part grows to that.
    ///
    /// # Errors
    /// [`Error::TooShort`] when there is no room for both.
    pub fn new(count: usize, train: f64, seq: usize) -> Result<Split, Error> {
        let window = seq.saturating_add(1);
        let need = window.saturating_mul(2);
        if count < need {
            return Err(Error::TooShort { found: count, need, seq });
        }
        // A share that is no number becomes 0, and the cut is kept so that both parts hold a
        // window.
        let cut = ((count as f64 * train) as usize).clamp(window, count - window);
        Ok(Split { train: 0..cut, valid: cut..count })
    }

    /// The starts of up to `count` evenly spaced validation windows of `seq` + 1 ids: `j · stride`
    /// after the start of the validation part, where stride is (ids − seq − 1) / count, rounded
    /// down. Where that would be 0, every window there is.
    pub fn windows(&self, count: usize, seq: usize) -> Vec<usize> {
        let Some(room) = self.valid.len().checked_sub(seq.saturating_add(1)) else { return Vec::new() };
        let stride = (room / count.max(1)).max(1);
        (0..count.min(room / stride + 1)).map(|j| self.valid.start + j * stride).collect()
    }

    /// The starts of `count` evenly spaced windows of `seq` + 1 ids in data that are all for
    /// evaluation; of all that do not overlap if `count` is 0.
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

    /// How many places a training window of `seq` + 1 ids can start at.
    pub fn positions(&self, seq: usize) -> usize {
        self.train.len().saturating_sub(seq)
    }
}
