//! Ferrane's own format of a model: safetensors with the names of [`Weights::tensors`] and the
//! configuration as JSON in the metadata, so one file is complete.

use super::container::{self, Container};
use super::stored::{StoredTensor, StoredWeights};
use super::{Error, Slot, Weights};
use crate::config::Config;
use ferrane_host::fs::{AtomicFile, Durability};
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// Metadata key that holds the configuration as JSON.
pub const CONFIG_KEY: &str = "ferrane.config";

/// Reads the configuration that [`write()`] stores in a file; `None` if the file has none.
///
/// # Errors
/// [`Error::Format`] for JSON that is not a configuration, [`Error::Config`] for an invalid one.
pub fn config(file: &Container) -> Result<Option<Config>, Error> {
    let Some(text) = file.metadata().get(CONFIG_KEY) else { return Ok(None) };
    let config: Config = serde_json::from_str(text)
        .map_err(|e| Error::format(file.path(), format!("{CONFIG_KEY} in the metadata: {e}")))?;
    config.validate()?;
    Ok(Some(config))
}

/// Finds the tensors that [`Weights::tensors`] names; other tensors are refused.
///
/// # Errors
/// [`Error::Missing`], [`Error::Shape`], [`Error::Dtype`], [`Error::Unknown`].
pub fn open(file: &Container, config: &Config) -> Result<StoredWeights, Error> {
    check_names(file, config)?;
    StoredWeights::new(file.path(), config, |slot| {
        let shape = slot.shape(config);
        let piece = file.piece(&slot.name(), &shape, 0..shape.iter().product())?;
        Ok(StoredTensor { shape, pieces: vec![piece], pairs: None, offset: 0.0 })
    })
}

/// Like [`open`], and reads the tensors in fp32.
///
/// # Errors
/// As [`open`].
pub fn read(file: &Container, config: &Config) -> Result<Weights, Error> {
    Weights::read(&open(file, config)?, config)
}

/// Checks names and shapes before anything is allocated.
fn check_names(file: &Container, config: &Config) -> Result<(), Error> {
    let mut known = HashSet::new();
    for slot in Slot::list(config) {
        let name = slot.name();
        file.expect(&name, &slot.shape(config))?;
        known.insert(name);
    }
    let unknown: Vec<String> = file.names().filter(|n| !known.contains(*n)).map(str::to_string).collect();
    if unknown.is_empty() { Ok(()) } else { Err(Error::unknown(file.path(), &unknown)) }
}

/// Loads a file that [`save`] wrote.
///
/// # Errors
/// As [`Container::open`], [`config`] and [`read`]; [`Error::Format`] for a file without a
/// configuration.
pub fn load(path: &Path) -> Result<(Config, Weights), Error> {
    let file = Container::open(path)?;
    let Some(config) = config(&file)? else {
        return Err(Error::format(path, format!("no {CONFIG_KEY} in the metadata")));
    };
    let weights = read(&file, &config)?;
    Ok((config, weights))
}

/// Writes a model as one stream, without a second copy in memory.
///
/// # Errors
/// [`Error::Mismatch`] if the weights do not fit the configuration, [`Error::Io`] (with `what` as
/// the file) if writing fails.
pub fn write(out: &mut impl Write, what: &Path, config: &Config, weights: &Weights) -> Result<(), Error> {
    config.validate()?;
    weights.check(config)?;
    let text = serde_json::to_string(config).map_err(|e| Error::format(what, e.to_string()))?;
    container::write(out, &[(CONFIG_KEY, &text)], &weights.tensors(config)).map_err(|e| Error::io(what, e))
}

/// Writes a model to a file. An existing file is replaced atomically; if that fails, it stays
/// unchanged.
///
/// # Errors
/// As [`write()`].
pub fn save(path: &Path, config: &Config, weights: &Weights) -> Result<(), Error> {
    let io = |e| Error::io(path, e);
    let mut file = AtomicFile::create(path).map_err(io)?;
    write(&mut file, path, config, weights)?;
    file.commit(Durability::Synced).map_err(io)
}
