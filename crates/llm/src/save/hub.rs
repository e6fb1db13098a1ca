//! The folder of Hugging Face that a model was read from, if any, and its files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Error;
use crate::config::{self, Config};

/// Files of a model's folder that belong to the vocabulary.
const VOCABULARY: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tokenizer.bin",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
];
/// Files of a model's folder about generation.
const GENERATION: [&str; 3] = ["generation_config.json", "chat_template.jinja", "chat_template.json"];

/// A folder with the `config.json` of the model.
#[derive(Debug)]
pub(crate) struct Hub {
    folder: PathBuf,
    fields: Map<String, Value>,
    architecture: &'static str,
}

impl Hub {
    /// The folder of a model: the path, or the folder of a file of weights. `None` if it has no
    /// `config.json`, or that of another model.
    pub(crate) fn find(source: &Path, config: &Config) -> Result<Option<Hub>, Error> {
        let weights = source.extension().is_some_and(|e| e == "safetensors" || e == "json");
        let folder = match source.parent() {
            Some(folder) if weights && source.is_file() => folder.to_path_buf(),
            _ => source.to_path_buf(),
        };
        let path = folder.join("config.json");
        let Ok(found) = config::read_hf(&path) else { return Ok(None) };
        // The file of the weights decides whether there is a classifier.
        if (Config { tied: config.tied, ..found.config }) != *config {
            return Ok(None);
        }
        let text = fs::read(&path).map_err(Error::io(&path))?;
        let Ok(Value::Object(fields)) = serde_json::from_slice(&text) else { return Ok(None) };
        Ok(Some(Hub { folder, fields, architecture: found.architecture }))
    }

    /// Whether the folder has this file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// Copies the files about generation, and those of the vocabulary if they are wanted.
    pub(crate) fn copy(&self, target: &Path, vocabulary: bool) -> Result<(), Error> {
        let names = VOCABULARY.iter().filter(|_| vocabulary).chain(&GENERATION);
        for name in names.filter(|name| self.has(name)) {
            let from = self.folder.join(name);
            fs::copy(&from, target.join(name)).map_err(Error::io(&from))?;
        }
        Ok(())
    }
}

/// The `config.json` of a model, and its architecture: that of the folder, or a new one.
pub(crate) fn configuration(config: &Config, hub: Option<&Hub>) -> Result<(Map<String, Value>, &'static str), Error> {
    let (mut fields, architecture) = match hub {
        Some(hub) => (hub.fields.clone(), hub.architecture),
        None => config::to_hf(config)?,
    };
    for field in ["quantization", "quantization_config", "quantization_palettes"] {
        fields.remove(field);
    }
    // The file of the weights decides whether there is a classifier.
    fields.insert("tie_word_embeddings".into(), config.tied.into());
    Ok((fields, architecture))
}

/// Writes a JSON object to a file of the folder.
pub(crate) fn write_json(folder: &Path, name: &str, fields: &Map<String, Value>) -> Result<(), Error> {
    let path = folder.join(name);
    let text = serde_json::to_string_pretty(fields).unwrap_or_default();
    fs::write(&path, text + "\n").map_err(Error::io(&path))
}
