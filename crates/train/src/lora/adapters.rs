//! The matrices of adapters. Their gradients and moments have the same type.

use ferrane_host::gemm::{Epilogue, GemmError, Operand, Output, View, ViewMut, gemm};
use ferrane_host::pool;
use ferrane_llm::config::Config;
use ferrane_llm::lora::AdapterMatrices;
use ferrane_llm::random::Rng;
use ferrane_llm::weights::{Layer, Part, Weights};

use super::{Error, LoraOptions};

/// The first random stream of adapters; those below it belong to weights.
const STREAM: u64 = 1 << 63;
/// Number of rows of an adapted matrix that one task computes.
const ROWS: usize = 64;

/// The matrices A and B of one adapted matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Factors {
    /// The projection that is adapted, one of `ferrane_llm::lora::TARGETS`.
    pub part: Part,
    /// `A`, `[rank, in]`.
    pub a: Vec<f32>,
    /// `B`, `[out, rank]`, without the scale.
    pub b: Vec<f32>,
}

/// The adapters of a model, or something for each of their values.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapters {
    rank: usize,
    scale: f64,
    layers: Vec<Vec<Factors>>,
}

impl Adapters {
    /// Zeros for each target of the options.
    ///
    /// # Errors
    /// As [`LoraOptions::parts`].
    pub fn zeros(config: &Config, options: &LoraOptions) -> Result<Adapters, Error> {
        let (parts, rank) = (options.parts(config)?, options.rank);
        let of = |part: &Part| {
            let shape = part.shape(config);
            Factors { part: *part, a: vec![0.0; rank * shape[1]], b: vec![0.0; shape[0] * rank] }
        };
        let layers = (0..config.layers).map(|_| parts.iter().map(of).collect()).collect();
        Ok(Adapters { rank, scale: options.scale(), layers })
    }

    /// Adapters that change nothing yet, as PEFT begins: `A` is uniform within `1/√in`, `B` is
    /// zero.
    ///
    /// # Errors
    /// As [`LoraOptions::parts`].
    pub fn init(config: &Config, options: &LoraOptions, seed: u64) -> Result<Adapters, Error> {
        let mut adapters = Adapters::zeros(config, options)?;
        for (index, factors) in adapters.layers.iter_mut().flatten().enumerate() {
            let mut random = Rng::stream(seed, STREAM | index as u64);
            let bound = 1.0 / ((factors.a.len() / options.rank) as f64).sqrt();
            factors.a.iter_mut().for_each(|value| *value = (bound * (2.0 * random.uniform() - 1.0)) as f32);
        }
        Ok(adapters)
    }

    /// Rows of each `A`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The factor of each change.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The adapted matrices of each layer.
    pub fn layers(&self) -> &[Vec<Factors>] {
        &self.layers
    }

    /// Like [`Adapters::layers`], with mutable values.
    pub fn layers_mut(&mut self) -> &mut [Vec<Factors>] {
        &mut self.layers
    }

    /// Number of values of all matrices A and B.
    pub fn parameters(&self) -> usize {
        self.values().map(<[f32]>::len).sum()
    }

    /// All values, matrix after matrix.
    pub fn values(&self) -> impl Iterator<Item = &[f32]> {
        self.layers.iter().flatten().flat_map(|factors| [factors.a.as_slice(), factors.b.as_slice()])
    }

    /// Like [`Adapters::values`], mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Vec<f32>> {
        self.layers.iter_mut().flatten().flat_map(|factors| [&mut factors.a, &mut factors.b])
    }

    /// The matrices as they are written to a file.
    pub fn matrices(&self) -> Vec<AdapterMatrices<'_>> {
        let mut all = Vec::new();
        for (layer, factors) in self.layers.iter().enumerate() {
            all.extend(factors.iter().map(|f| AdapterMatrices { layer, part: f.part, a: &f.a, b: &f.b }));
        }
        all
    }

    /// Writes `base + scale · B · A` over each adapted matrix of `weights`. `base` has the frozen
    /// matrices in the order of [`Adapters::layers`].
    ///
    /// # Errors
    /// [`Error::Sizes`]; nothing has changed then.
    pub fn merge(&self, base: &[Vec<f32>], weights: &mut Weights) -> Result<(), Error> {
        let mut jobs = Vec::new();
        let mut base = base.iter();
        for (index, layer) in weights.layers.iter_mut().enumerate() {
            let factors = self.layers.get(index).map(Vec::as_slice).unwrap_or_default();
            let mut matrices = layer.parts_mut();
            for factors in factors {
                let at = matrices.iter().position(|(part, _)| *part == factors.part);
                let fits = |(matrix, base): &(&mut [f32], &Vec<f32>)| {
                    let cols = factors.a.len() / self.rank;
                    matrix.len() == base.len() && matrix.len() * self.rank == factors.b.len() * cols
                };
                let found = at.map(|at| matrices.swap_remove(at).1).zip(base.next()).filter(fits);
                let Some((matrix, base)) = found else {
                    return Err(Error::Sizes(format!("{} of layer {index}", factors.part.name())));
                };
                jobs.push((matrix, base, factors));
            }
        }
        for (matrix, base, Factors { a, b, .. }) in jobs {
            let (rank, cols) = (self.rank, a.len() / self.rank);
            pool::for_each_chunk_mut(matrix, ROWS * cols, |task, rows| {
                let first = task * ROWS;
                rows.copy_from_slice(&base[first * cols..][..rows.len()]);
                for (row, b) in rows.chunks_exact_mut(cols).zip(b[first * rank..].chunks_exact(rank)) {
                    for (b, a) in b.iter().zip(a.chunks_exact(cols)) {
                        // As `ferrane_llm::lora` scales B when it reads an adapter.
                        let b = (f64::from(*b) * self.scale) as f32;
                        row.iter_mut().zip(a).for_each(|(w, a)| *w += b * a);
                    }
                }
            });
        }
        Ok(())
    }

    /// Adds to `sums` the gradients of A and B that follow from those of the whole matrices, or
    /// overwrites them if this is the `first` contribution: `dB = s·dW·Aᵀ`, `dA = s·Bᵀ·dW`.
    ///
    /// # Errors
    /// [`Error::Sizes`].
    pub fn project(&self, whole: &Weights, sums: &mut Adapters, first: bool) -> Result<(), Error> {
        for (layer, (factors, sums)) in whole.layers.iter().zip(self.layers.iter().zip(&mut sums.layers)) {
            for (factors, sums) in factors.iter().zip(sums) {
                let failed = |e: GemmError| Error::Sizes(e.to_string());
                self.project_one(matrix(layer, factors.part), factors, sums, first).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn project_one(&self, dw: &[f32], of: &Factors, sums: &mut Factors, first: bool) -> Result<(), GemmError> {
        let (rank, cols, rows) = (self.rank, of.a.len() / self.rank, of.b.len() / self.rank);
        let dw = Operand::F32(View::row_major(dw, rows, cols)?);
        let a = Operand::F32(View::row_major(&of.a, rank, cols)?);
        let b = Operand::F32(View::row_major(&of.b, rows, rank)?);
        let epilogue = Epilogue { accumulate: !first, scale: self.scale as f32, ..Epilogue::default() };
        gemm(dw, a.t(), Output::F32(ViewMut::row_major(&mut sums.b, rows, rank)?), epilogue)?;
        gemm(b.t(), dw, Output::F32(ViewMut::row_major(&mut sums.a, rank, cols)?), epilogue)
    }
}

/// A matrix of a layer; empty if the layer does not have it.
pub(super) fn matrix(layer: &Layer, part: Part) -> &[f32] {
    layer.parts().into_iter().find(|(known, _)| *known == part).map_or(&[], |(_, data)| data)
}
