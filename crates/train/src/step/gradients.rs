//! The worker queue of weight gradients.
//!
//! A weight gradient is a product of two activations over the tokens of a window, `[a, S] · [b, S]ᵀ`. It needs nothing of the
//! device, so it runs beside the next requests: the step sends products, one worker takes them in order and owns the gradients
//! meanwhile. One worker in order means one order of sums, whatever the timing.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ferrane_host::f16;
use ferrane_host::gemm::{Epilogue, GemmError, Operand, Output, View, ViewMut, gemm};
use ferrane_host::pool;
use ferrane_llm::weights::{Part, Weights};

use crate::data::Compaction;

/// An activation `[channels, S]`.
pub enum Rows<'a> {
    /// As the device gave it.
    Half(&'a [f16]),
    /// As the CPU keeps it.
    Full(&'a [f32]),
    /// As the CPU computed it; the buffer goes back to the step afterwards.
    Owned(Vec<f32>),
}

impl Rows<'_> {
    fn view(&self, s: usize) -> Result<Operand<'_>, GemmError> {
        Ok(match self {
            Rows::Half(v) => Operand::F16(View::row_major(v, v.len() / s, s)?),
            Rows::Full(v) => Operand::F32(View::row_major(v, v.len() / s, s)?),
            Rows::Owned(v) => Operand::F32(View::row_major(v, v.len() / s, s)?),
        })
    }
}

/// The matrix whose gradient a product belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Matrix {
    /// A matrix of a layer.
    Layer(usize, Part),
    /// The classifier, which may be the embedding: rows of the compact vocabulary.
    Classifier,
}

/// The gradient of `matrix` grows by `lhs · rhsᵀ`.
pub struct Product<'a> {
    /// The matrix, `[rows of lhs, rows of rhs]`.
    pub matrix: Matrix,
    /// `[rows of the matrix, S]`.
    pub lhs: Rows<'a>,
    /// `[columns of the matrix, S]`.
    pub rhs: Rows<'a>,
}

/// Buffers that products own, between uses.
#[derive(Default)]
pub struct Spare(Vec<Vec<f32>>);

impl Spare {
    /// A buffer of that length with any content.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        match self.0.iter().position(|b| b.len() == len) {
            Some(i) => self.0.swap_remove(i),
            None => vec![0.0; len],
        }
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buffer: Vec<f32>) {
        self.0.push(buffer);
    }
}

/// Works until the senders are gone. Returns the time spent in products.
///
/// # Errors
/// Operands that do not belong together: a mistake of the step, not of its input.
pub fn work(
    products: Receiver<Product<'_>>,
    spare: Sender<Vec<f32>>,
    gradients: &mut Weights,
    vocabulary: &Compaction,
    compact: &mut Vec<f32>,
    s: usize,
) -> Result<Duration, GemmError> {
    let mut busy = Duration::ZERO;
    for product in products {
        let begun = Instant::now();
        match product.matrix {
            Matrix::Layer(layer, part) => {
                let found = gradients
                    .layers
                    .get_mut(layer)
                    .and_then(|l| l.parts_mut().into_iter().find(|(p, _)| *p == part).map(|(_, data)| data));
                if let Some(out) = found {
                    multiply(&product, out, s, true)?;
                }
            }
            Matrix::Classifier => {
                let out = gradients.classifier.as_mut().unwrap_or(&mut gradients.embed);
                if vocabulary.is_identity() {
                    multiply(&product, out, s, true)?;
                } else {
                    let rows = product.lhs.view(s)?.shape().0;
                    let dim = product.rhs.view(s)?.shape().0;
                    compact.resize(rows * dim, 0.0);
                    multiply(&product, compact, s, false)?;
                    scatter_add(compact, vocabulary.compact_to_full(), dim, out);
                }
            }
        }
        for rows in [product.lhs, product.rhs] {
            if let Rows::Owned(buffer) = rows {
                // The step may have ended early; then nobody wants the buffer.
                let _ = spare.send(buffer);
            }
        }
        busy += begun.elapsed();
    }
    Ok(busy)
}

fn multiply(product: &Product<'_>, out: &mut [f32], s: usize, accumulate: bool) -> Result<(), GemmError> {
    let (lhs, rhs) = (product.lhs.view(s)?, product.rhs.view(s)?);
    let (rows, cols) = (lhs.shape().0, rhs.shape().0);
    let out = Output::F32(ViewMut::row_major(out, rows, cols)?);
    gemm(lhs, rhs.t(), out, Epilogue { accumulate, ..Epilogue::default() })
}

/// Adds row i of `compact` to row `ids[i]` of `out`; `ids` ascend, so tasks own disjoint parts of `out`.
fn scatter_add(compact: &[f32], ids: &[u32], dim: usize, out: &mut [f32]) {
    const ROWS: usize = 1024;
    pool::for_each_chunk_mut(out, ROWS * dim, |task, out| {
        let first = task * ROWS;
        let begin = ids.partition_point(|&id| (id as usize) < first);
        let end = ids.partition_point(|&id| (id as usize) < first + out.len() / dim);
        for i in begin..end {
            let row = &mut out[(ids[i] as usize - first) * dim..][..dim];
            row.iter_mut().zip(&compact[i * dim..][..dim]).for_each(|(o, c)| *o += c);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn products_arrive_where_they_belong_and_buffers_come_back() {
        let config =
            ferrane_llm::config::Config { vocab: 5, dim: 2, ..ferrane_llm::config::preset("stories260k").unwrap() };
        let mut gradients = Weights::zeros(&config);
        gradients.embed[2] = 1.0;
        let vocabulary = Compaction::used([4, 1, 1], 5);
        let (send, receive) = channel();
        let (give, returned) = channel();
        // Two tokens; compact rows 0 and 1 are full rows 1 and 4.
        let (dlogits, x) = ([1.0, 2.0, 3.0, 4.0], vec![1.0, 0.0, 0.0, 1.0]);
        send.send(Product { matrix: Matrix::Classifier, lhs: Rows::Full(&dlogits), rhs: Rows::Owned(x) }).unwrap();
        drop(send);
        work(receive, give, &mut gradients, &vocabulary, &mut Vec::new(), 2).unwrap();
        assert_eq!(gradients.embed, [0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
        let mut spare = Spare::default();
        spare.give(returned.recv().unwrap());
        assert_eq!((spare.take(4).len(), spare.take(3)), (4, vec![0.0; 3]));
    }
}
