//! Where the rows of a model's tensors come from: memory, or mapped files.

use super::{Error, Layer, Part, Slot, Weights};
use crate::config::Config;
use ferrane_host::{convert, pool};
use half::f16;
use std::ops::Range;

/// Values in one task of the pool.
const TASK: usize = 1 << 16;

/// The tensors of a model, whose rows are read on demand.
///
/// A row is the last axis of [`Slot::shape`]: a norm is one row, and the projections of experts
/// `[experts, out, in]` have `experts · out` rows. Reading does not allocate memory for a whole
/// tensor, and runs on the calling thread, so that callers divide the rows among threads.
pub trait WeightSource: Sync {
    /// Checks that the source has exactly the tensors of `config`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] or [`Error::Shape`] for the first tensor that differs.
    fn check(&self, config: &Config) -> Result<(), Error>;

    /// Reads rows in fp32. The length of `out` is that of the rows together.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the model has no such rows, or they have another length.
    fn rows(&self, slot: Slot, rows: Range<usize>, out: &mut [f32]) -> Result<(), Error>;

    /// Reads rows in fp16, rounded to nearest even.
    ///
    /// # Errors
    /// As [`WeightSource::rows`].
    fn rows_f16(&self, slot: Slot, rows: Range<usize>, out: &mut [f16]) -> Result<(), Error>;

    /// Notes that these rows will not be read soon: memory that a file's pages take is released.
    fn release(&self, _slot: Slot, _rows: Range<usize>) {}
}

/// Number of rows, and of values in each.
pub(crate) fn rows_of(shape: &[usize]) -> [usize; 2] {
    let width = shape.last().copied().unwrap_or(1);
    [shape.iter().rev().skip(1).product(), width]
}

/// The error for rows that a tensor of `values` values does not have, or of another length.
pub(super) fn mismatch(slot: Slot, expected: usize, found: usize) -> Error {
    Error::Mismatch { name: slot.name(), expected, found }
}

impl<T> Layer<T> {
    /// A tensor of the layer; `None` if the model does not have it.
    pub fn part(&self, part: Part) -> Option<&[T]> {
        Some(match part {
            Part::AttnNorm => &self.attn_norm,
            Part::Wq => &self.wq,
            Part::Wk => &self.wk,
            Part::Wv => &self.wv,
            Part::Wo => &self.wo,
            Part::Bq => self.bq.as_deref()?,
            Part::Bk => self.bk.as_deref()?,
            Part::Bv => self.bv.as_deref()?,
            Part::QNorm => self.q_norm.as_deref()?,
            Part::KNorm => self.k_norm.as_deref()?,
            Part::FfnNorm => &self.ffn_norm,
            Part::W1 => &self.w1,
            Part::W3 => &self.w3,
            Part::W2 => &self.w2,
            Part::PostAttnNorm => self.post_attn_norm.as_deref()?,
            Part::PostFfnNorm => self.post_ffn_norm.as_deref()?,
            Part::Router => self.router.as_deref()?,
        })
    }
}

impl Weights {
    /// A tensor; `None` if the model does not have it.
    pub fn tensor(&self, slot: Slot) -> Option<&[f32]> {
        match slot {
            Slot::Embed => Some(&self.embed),
            Slot::Layer(index, part) => self.layers.get(index)?.part(part),
            Slot::Norm => Some(&self.norm),
            Slot::Classifier => self.classifier.as_deref(),
        }
    }

    /// Reads all tensors in fp32, on the threads of the pool.
    ///
    /// # Errors
    /// As [`WeightSource::check`].
    pub fn read(source: &dyn WeightSource, config: &Config) -> Result<Weights, Error> {
        source.check(config)?;
        let mut weights = Weights::zeros(config);
        for (slot, tensor) in Slot::list(config).into_iter().zip(weights.tensors_mut(config)) {
            fill(source, slot, &tensor.shape, tensor.data)?;
        }
        Ok(weights)
    }

    /// The values of rows of a tensor.
    fn slice(&self, slot: Slot, rows: Range<usize>, length: usize) -> Result<&[f32], Error> {
        let data = self.tensor(slot).unwrap_or_default();
        let count = rows.end.saturating_sub(rows.start);
        let width = length.checked_div(count).unwrap_or(0);
        let found = data.get(rows.start.saturating_mul(width)..rows.end.saturating_mul(width));
        found.filter(|values| values.len() == length).ok_or_else(|| mismatch(slot, data.len(), length))
    }
}

impl Layer {
    /// Reads the tensors of a layer in fp32, on the threads of the pool.
    ///
    /// # Errors
    /// As [`WeightSource::rows`].
    pub fn read(source: &dyn WeightSource, config: &Config, index: usize) -> Result<Layer, Error> {
        let mut layer = Layer::zeros(config, index);
        for (part, values) in layer.parts_mut() {
            fill(source, Slot::Layer(index, part), &part.shape_in(config, index), values)?;
        }
        Ok(layer)
    }
}

/// Reads a whole tensor of this shape.
pub(crate) fn fill(source: &dyn WeightSource, slot: Slot, shape: &[usize], out: &mut [f32]) -> Result<(), Error> {
    let width = rows_of(shape)[1].max(1);
    let rows = (TASK / width).max(1);
    pool::try_for_each_chunk_mut(out, rows * width, |task, out| {
        let range = task * rows..task * rows + out.len() / width;
        source.rows(slot, range.clone(), out)?;
        source.release(slot, range);
        Ok(())
    })
}

impl WeightSource for Weights {
    fn check(&self, config: &Config) -> Result<(), Error> {
        Weights::check(self, config)
    }

    fn rows(&self, slot: Slot, rows: Range<usize>, out: &mut [f32]) -> Result<(), Error> {
        out.copy_from_slice(self.slice(slot, rows, out.len())?);
        Ok(())
    }

    fn rows_f16(&self, slot: Slot, rows: Range<usize>, out: &mut [f16]) -> Result<(), Error> {
        convert::f32_to_f16(self.slice(slot, rows, out.len())?, out);
        Ok(())
    }
}
