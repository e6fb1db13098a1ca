//! The files of a checkpoint of a run that trains adapters: the adapters as PEFT stores them, and
//! their moments. The frozen weights are not stored, only their hash.

use std::io;
use std::path::Path;

use ferrane_llm::config::Config;
use ferrane_llm::lora::{self, tensor_names};
use ferrane_llm::weights::container::{self, Container};
use ferrane_llm::weights::{TensorKind, TensorRef, native};

use super::Error;
use super::store::{Hashing, OPTIMIZER};
use crate::lora::{Adapters, LoraOptions, StoredAdapters, Tuning};

/// Metadata key that holds the options of the adapters as JSON.
const OPTIONS_KEY: &str = "ferrane.lora";
/// Metadata key that holds the hash of the frozen weights.
const BASE_KEY: &str = "ferrane.base";

/// What a run that trains adapters stores, borrowed from it.
#[derive(Clone, Copy)]
pub struct AdapterSnapshot<'a> {
    /// Moments, options and the hash of the frozen weights.
    pub tuning: &'a Tuning,
    /// A and B of each adapted matrix.
    pub values: &'a Adapters,
}

/// The names of the files with adapters and moments.
pub(super) const FILES: [&str; 3] = [lora::CONFIG, lora::MATRICES, OPTIMIZER];

/// Writes one of [`FILES`]. `base` is the path of the model.
pub(super) fn write(
    file: &str,
    out: &mut Hashing<'_>,
    config: &Config,
    AdapterSnapshot { tuning, values }: AdapterSnapshot<'_>,
    base: Option<&str>,
) -> io::Result<()> {
    let options = tuning.options();
    if file == lora::CONFIG {
        // By name: PEFT knows a word for all of them only where it makes adapters.
        let parts = options.parts(config).map_err(io::Error::other)?;
        let named = lora::TARGETS.iter().filter(|(_, part)| parts.contains(part));
        let targets: Vec<String> = named.map(|(name, _)| (*name).to_owned()).collect();
        return lora::write_config(out, options.rank, options.alpha, &targets, base);
    }
    if file == lora::MATRICES {
        return lora::write_matrices(out, options.rank, &values.matrices());
    }
    let (m, v) = tuning.moments();
    let mut tensors = Vec::new();
    for (prefix, moments) in [("m", m), ("v", v)] {
        for matrices in moments.matrices() {
            let names = tensor_names(matrices.layer, matrices.part).unwrap_or_default();
            for (name, data) in names.iter().zip([matrices.a, matrices.b]) {
                let (name, shape) = (format!("{prefix}.{name}"), vec![data.len()]);
                tensors.push(TensorRef { name, kind: TensorKind::Matrix, shape, data });
            }
        }
    }
    let (model, options) = (serde_json::to_string(config)?, serde_json::to_string(options)?);
    let metadata =
        [(native::CONFIG_KEY, model.as_str()), (OPTIONS_KEY, options.as_str()), (BASE_KEY, tuning.base_digest())];
    container::write(out, &metadata, &tensors)
}

/// Reads files that were checked against their hashes.
pub(super) fn read(folder: &Path) -> Result<(Config, StoredAdapters), Error> {
    let open = |file: &str| {
        let path = folder.join(file);
        Container::open(&path).map_err(|e| Error::damaged(&path, e.to_string()))
    };
    let (optimizer, matrices) = (open(OPTIMIZER)?, open(lora::MATRICES)?);
    let damaged = |reason: String| Error::damaged(&folder.join(OPTIMIZER), reason);
    let text = |key: &str| optimizer.metadata().get(key).ok_or_else(|| damaged(format!("no {key} in the metadata")));
    let config = native::config(&optimizer).map_err(|e| damaged(e.to_string()))?;
    let config = config.ok_or_else(|| damaged(format!("no {} in the metadata", native::CONFIG_KEY)))?;
    let options: LoraOptions =
        serde_json::from_str(text(OPTIONS_KEY)?).map_err(|e| damaged(format!("{OPTIONS_KEY}: {e}")))?;
    let zeros = Adapters::zeros(&config, &options).map_err(|e| damaged(e.to_string()))?;
    let (mut values, mut m, mut v) = (zeros.clone(), zeros.clone(), zeros);
    fill(&mut values, |name, rank, data| {
        let shape = match name.contains(".lora_A.") {
            true => [rank, data.len() / rank],
            false => [data.len() / rank, rank],
        };
        matrices.read(name, &shape, data)
    })?;
    for (prefix, moments) in [("m", &mut m), ("v", &mut v)] {
        fill(moments, |name, _, data| optimizer.read(&format!("{prefix}.{name}"), &[data.len()], data))?;
    }
    let base = text(BASE_KEY)?.clone();
    Ok((config, StoredAdapters { options, base, values, m, v }))
}

/// Reads each matrix by its name, with the rank.
fn fill(
    adapters: &mut Adapters,
    read: impl Fn(&str, usize, &mut [f32]) -> Result<(), ferrane_llm::weights::Error>,
) -> Result<(), Error> {
    let rank = adapters.rank();
    for (layer, all) in adapters.layers_mut().iter_mut().enumerate() {
        for factors in all {
            let [a, b] = tensor_names(layer, factors.part).unwrap_or_default();
            read(&a, rank, &mut factors.a)?;
            read(&b, rank, &mut factors.b)?;
        }
    }
    Ok(())
}
