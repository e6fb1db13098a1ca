//! Opens a model of any supported format.

use super::container::Container;
use super::source::WeightSource as _;
use super::stored::StoredWeights;
use super::{Error, Weights, gguf, huggingface, llama2c, native};
use crate::config::{self, Config};
use crate::run_folder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Opens a model at any supported path, without reading its weights:
///
/// | path | how it is recognized |
/// |---|---|
/// | Ferrane's safetensors | the configuration in the metadata |
/// | Hugging Face `.safetensors` | `NAME_config.json` or `config.json` next to it, or `config` |
/// | Hugging Face `.index.json` | likewise |
/// | GGUF | its first four bytes; the configuration is in the metadata |
/// | a training run's folder | its newest checkpoint, `step-000100/model.safetensors` |
/// | a directory | Ferrane's `model.safetensors`, or `config.json` with an index or one `.safetensors`; otherwise its only `.gguf` |
/// | llama2.c `.bin` | any other file whose header and size agree |
///
/// `config` names a configuration file (Hugging Face or Ferrane) that overrides the one found with
/// the weights; the tensors must fit it.
///
/// # Errors
/// [`Error::NotFound`] with the files that were tried; otherwise the errors of the format's reader.
pub fn open(path: &Path, config: Option<&Path>) -> Result<(Config, StoredWeights), Error> {
    let _span = tracing::info_span!(target: "ferrane::model", "open_weights", path = %path.display()).entered();
    if path.is_dir() {
        return open_folder(path, config);
    }
    let mut start = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
    file.take(16).read_to_end(&mut start).map_err(|e| Error::io(path, e))?;
    if path.extension().is_some_and(|e| e == "json") {
        return open_json(path, config);
    }
    if start.starts_with(b"GGUF") {
        return gguf::open(&ferrane_gguf::File::open(path)?, config.map(config::read).transpose()?);
    }
    if start.starts_with(b"PK\x03\x04") {
        return Err(Error::format(path, "PyTorch archives are not supported; give the safetensors checkpoint"));
    }
    // A safetensors file starts with the header's length in eight bytes, then the JSON.
    if start.get(8) == Some(&b'{') || path.extension().is_some_and(|e| e == "safetensors") {
        return open_safetensors(path, config);
    }
    let (own, weights) = llama2c::open(path)?;
    let Some(config) = config else { return Ok((own, weights)) };
    let config = config::read(config)?;
    weights.check(&config)?;
    Ok((config, weights))
}

/// Like [`open`], and reads the weights in fp32.
///
/// # Errors
/// As [`open`].
pub fn load(path: &Path, config: Option<&Path>) -> Result<(Config, Weights), Error> {
    let (config, stored) = open(path, config)?;
    let weights = Weights::read(&stored, &config)?;
    Ok((config, weights))
}

fn open_safetensors(path: &Path, config: Option<&Path>) -> Result<(Config, StoredWeights), Error> {
    let file = Container::open(path)?;
    if let Some(own) = native::config(&file)? {
        let config = config.map(config::read).transpose()?.unwrap_or(own);
        let weights = native::open(&file, &config)?;
        return Ok((config, weights));
    }
    let beside = config_beside(path, config)?;
    huggingface::open_single(config::read(&beside)?, file)
}

/// Loads an index, or the directory of a `config.json`.
fn open_json(path: &Path, config: Option<&Path>) -> Result<(Config, StoredWeights), Error> {
    let folder = path.parent().unwrap_or(Path::new(""));
    if path.file_name().is_some_and(|n| n == "config.json") {
        return open_folder(folder, Some(config.unwrap_or(path)));
    }
    huggingface::open_hf(&config_beside(path, config)?, path)
}

/// The configuration of a weights file: `config` if given, `NAME_config.json`, or `config.json`.
fn config_beside(path: &Path, config: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(config) = config {
        return Ok(config.to_path_buf());
    }
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_suffix(".index.json").unwrap_or(&name);
    let stem = stem.strip_suffix(".safetensors").unwrap_or(stem);
    let candidates = [path.with_file_name(format!("{stem}_config.json")), path.with_file_name("config.json")];
    if let Some(found) = candidates.iter().find(|c| c.is_file()) {
        return Ok(found.clone());
    }
    let tried = format!(
        "a configuration in its metadata ({}), {} and {}",
        native::CONFIG_KEY,
        candidates[0].display(),
        candidates[1].display()
    );
    Err(Error::NotFound { path: path.display().to_string(), tried })
}

fn open_folder(folder: &Path, config: Option<&Path>) -> Result<(Config, StoredWeights), Error> {
    if !folder.join("config.json").is_file()
        && let Some(model) = run_folder::find_model(folder)?
    {
        return open_safetensors(&model, config);
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        names.push(entry.map_err(|e| Error::io(folder, e))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if !names.iter().any(|n| n.ends_with(".safetensors") || n.ends_with(".index.json"))
        && let Some(only) = gguf::only_file(folder)
    {
        return open(&only, config);
    }
    let with = |suffix: &str| names.iter().filter(|n| n.ends_with(suffix)).cloned().collect::<Vec<_>>();
    let (indices, files) = (with(".index.json"), with(".safetensors"));
    let chosen = if names.iter().any(|n| n == "model.safetensors.index.json") {
        Some("model.safetensors.index.json".to_string())
    } else if names.iter().any(|n| n == "model.safetensors") {
        Some("model.safetensors".to_string())
    } else if let [only] = indices.as_slice() {
        Some(only.clone())
    } else if let [only] = files.as_slice() {
        Some(only.clone())
    } else {
        None
    };
    let Some(chosen) = chosen else {
        let tried = format!(
            "model.safetensors.index.json, model.safetensors, one other index ({} there) and one other .safetensors \
             file ({} there), and the checkpoints of a training run, step-000100 and so on",
            indices.len(),
            files.len()
        );
        return Err(Error::NotFound { path: folder.display().to_string(), tried });
    };
    let path = folder.join(chosen);
    if path.extension().is_some_and(|e| e == "json") {
        return huggingface::open_hf(&config_beside(&path, config)?, &path);
    }
    open_safetensors(&path, config)
}
