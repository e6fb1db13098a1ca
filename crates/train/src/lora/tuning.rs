//! The state of a run that trains adapters, in addition to the adapters themselves.

use ferrane_llm::config::Config;
use ferrane_llm::weights::Weights;
use sha2::{Digest as _, Sha256};

use super::adapters::matrix;
use super::{Adapters, Error, LoraOptions};
use crate::optim::{AdamW, Gradients};

/// The frozen matrices that are adapted, and the moments of the adapters.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    options: LoraOptions,
    /// In the order of [`Adapters::layers`].
    base: Vec<Vec<f32>>,
    /// Hash of all frozen weights.
    digest: String,
    m: Adapters,
    v: Adapters,
}

/// Adapters with their moments, as a checkpoint stores them.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAdapters {
    /// Rank, scale and targets.
    pub options: LoraOptions,
    /// [`digest`] of the frozen weights.
    pub base: String,
    /// A and B of each adapted matrix.
    pub values: Adapters,
    /// First moment of each value of A and B.
    pub m: Adapters,
    /// Second moment of each value of A and B.
    pub v: Adapters,
}

/// SHA-256 of a model's weights, in hexadecimal.
pub fn digest(config: &Config, weights: &Weights) -> String {
    let (mut hash, mut bytes) = (Sha256::new(), Vec::new());
    for tensor in weights.tensors(config) {
        for block in tensor.data.chunks(1 << 16) {
            bytes.clear();
            bytes.extend(block.iter().flat_map(|value| value.to_le_bytes()));
            hash.update(&bytes);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Tuning {
    /// New adapters for these weights.
    ///
    /// # Errors
    /// As [`LoraOptions::parts`].
    pub fn begin(
        config: &Config,
        weights: &Weights,
        options: &LoraOptions,
        seed: u64,
    ) -> Result<(Tuning, Adapters), Error> {
        let values = Adapters::init(config, options, seed)?;
        let zeros = Adapters::zeros(config, options)?;
        let tuning = Tuning {
            options: options.clone(),
            base: base(weights, &values),
            digest: digest(config, weights),
            m: zeros.clone(),
            v: zeros,
        };
        Ok((tuning, values))
    }

    /// Continues with stored adapters: `weights` are the frozen ones, and get the adapters'
    /// changes.
    ///
    /// # Errors
    /// [`Error::OtherBase`] if they are not those that the adapters were begun with.
    pub fn resume(config: &Config, weights: &mut Weights, stored: StoredAdapters) -> Result<(Tuning, Adapters), Error> {
        let StoredAdapters { options, base: expected, values, m, v } = stored;
        let digest = digest(config, weights);
        if digest != expected {
            return Err(Error::other_base(&expected, &digest));
        }
        let base = base(weights, &values);
        values.merge(&base, weights)?;
        Ok((Tuning { options, base, digest, m, v }, values))
    }

    /// Rank, scale and targets.
    pub fn options(&self) -> &LoraOptions {
        &self.options
    }

    /// Hash of the frozen weights.
    pub fn base_digest(&self) -> &str {
        &self.digest
    }

    /// First and second moments of the adapters.
    pub fn moments(&self) -> (&Adapters, &Adapters) {
        (&self.m, &self.v)
    }

    /// Bytes of the frozen copies.
    pub fn base_bytes(&self) -> usize {
        self.base.iter().map(|matrix| size_of_val(matrix.as_slice())).sum()
    }

    /// Makes an update of the adapters with their gradients times `factor`, and writes the new sums
    /// to `weights`. The gradients are empty afterward. `count` is the number of the update, from
    /// 1.
    ///
    /// # Errors
    /// [`Error::Sizes`] if gradients, moments and weights do not fit each other.
    pub fn update(
        &mut self,
        optimizer: &AdamW,
        weights: &mut Weights,
        gradients: &mut Gradients,
        lr: f64,
        factor: f64,
        count: u64,
    ) -> Result<(), Error> {
        let Some((values, sums)) = gradients.update_adapters() else {
            return Err(Error::Sizes("there are no gradients of adapters".into()));
        };
        let moments = self.m.values_mut().zip(self.v.values_mut());
        for ((w, g), (m, v)) in values.values_mut().zip(sums.values()).zip(moments) {
            optimizer.update_values(w, g, m, v, lr, factor, count);
        }
        values.merge(&self.base, weights)?;
        gradients.clear();
        Ok(())
    }
}

fn base(weights: &Weights, adapters: &Adapters) -> Vec<Vec<f32>> {
    let layers = weights.layers.iter().zip(adapters.layers());
    layers.flat_map(|(layer, factors)| factors.iter().map(|f| matrix(layer, f.part).to_vec())).collect()
}
