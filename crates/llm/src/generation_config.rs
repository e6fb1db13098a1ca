//! What a model's files say about generation: `generation_config.json`, and the ids that end a text
//! in `config.json`.
//!
//! Chat models often end an answer with another token than a text; `generation_config.json` lists
//! all of them. It also recommends options of sampling. [`GenerationConfig::apply`] gives these to
//! whatever the caller left open.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sample::Sampling;

/// Why a file about generation cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The file is not JSON, or a field has another form.
    #[error("{}: {message}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// The field or the mistake in JSON.
        message: String,
    },
}

/// Recommendations of a model for generation. `None`: the files say nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationConfig {
    /// The ids that end a text; empty if no file states any.
    pub stop: Vec<u32>,
    /// `suppress_tokens`: the ids that must not be generated. A model that was trained over a part
    /// of its vocabulary lists the others here.
    pub suppress: Vec<u32>,
    /// Whether tokens are drawn; otherwise the most probable one is taken.
    pub do_sample: Option<bool>,
    /// [`Sampling::temperature`].
    pub temperature: Option<f32>,
    /// [`Sampling::top_k`].
    pub top_k: Option<usize>,
    /// [`Sampling::top_p`].
    pub top_p: Option<f32>,
    /// [`Sampling::min_p`].
    pub min_p: Option<f32>,
    /// [`Sampling::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
}

impl GenerationConfig {
    /// Reads `generation_config.json` in a model's folder, and `config.json` if that states no ids
    /// that end a text. `path` may also be a `.safetensors` or `.json` file in the folder; other
    /// files have no recommendations.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`]. Missing files are no error.
    pub fn find(path: impl AsRef<Path>) -> Result<GenerationConfig, Error> {
        let path = path.as_ref();
        if path.is_file() && !path.extension().is_some_and(|e| e == "safetensors" || e == "json") {
            return Ok(GenerationConfig::default());
        }
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let mut found = match read(&folder.join("generation_config.json"))? {
            Some((file, value)) => GenerationConfig::from_json(&value).map_err(|m| format(&file, m))?,
            None => GenerationConfig::default(),
        };
        if found.stop.is_empty()
            && let Some((file, value)) = read(&folder.join("config.json"))?
        {
            found.stop = ids(&value, "eos_token_id").map_err(|m| format(&file, m))?;
        }
        Ok(found)
    }

    /// Takes the fields of a `generation_config.json`. Fields that say nothing about the options
    /// here are ignored.
    fn from_json(value: &Value) -> Result<GenerationConfig, String> {
        let present = |key: &str| value.get(key).filter(|value| !value.is_null());
        let number = |key: &str| match present(key) {
            None => Ok(None),
            Some(value) => {
                value.as_f64().map(|v| Some(v as f32)).ok_or_else(|| format!("`{key}` is {value}, not a number"))
            }
        };
        let top_k = present("top_k").map(|value| {
            let k = value.as_u64().and_then(|k| usize::try_from(k).ok());
            k.ok_or_else(|| format!("`top_k` is {value}, not a whole number"))
        });
        let found = GenerationConfig {
            stop: ids(value, "eos_token_id")?,
            suppress: ids(value, "suppress_tokens")?,
            do_sample: present("do_sample").and_then(Value::as_bool),
            temperature: number("temperature")?,
            top_k: top_k.transpose()?,
            top_p: number("top_p")?,
            min_p: number("min_p")?,
            repetition_penalty: number("repetition_penalty")?,
        };
        found.apply(Sampling::default()).validate().map_err(|e| e.to_string())?;
        Ok(found)
    }

    /// `sampling` with the recommended options in place of its own. A model that recommends not to
    /// draw gets a temperature of 0.
    #[must_use]
    pub fn apply(&self, sampling: Sampling) -> Sampling {
        let temperature = match self.do_sample {
            Some(false) => Some(0.0),
            _ => self.temperature,
        };
        Sampling {
            temperature: temperature.unwrap_or(sampling.temperature),
            top_k: self.top_k.or(sampling.top_k),
            top_p: self.top_p.unwrap_or(sampling.top_p),
            min_p: self.min_p.unwrap_or(sampling.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(sampling.repetition_penalty),
            ..sampling
        }
    }
}

/// A field with ids: one, a list, or nothing.
fn ids(value: &Value, field: &str) -> Result<Vec<u32>, String> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let found = match value.get(field) {
        None | Some(Value::Null) => Some(vec![]),
        Some(Value::Array(list)) => list.iter().map(id).collect(),
        Some(one) => id(one).map(|id| vec![id]),
    };
    found.ok_or_else(|| format!("`{field}` is {}, not an id or a list of ids", value[field]))
}

fn format(path: &Path, message: String) -> Error {
    Error::Format { path: path.to_path_buf(), message }
}

fn read(path: &Path) -> Result<Option<(PathBuf, Value)>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { path: path.to_path_buf(), source }),
    };
    let value = serde_json::from_slice(&bytes).map_err(|e| format(path, e.to_string()))?;
    Ok(Some((path.to_path_buf(), value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_model_recommend_options() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let find = || GenerationConfig::find(folder.path());
        assert_eq!(find().unwrap(), GenerationConfig::default());
        write("config.json", r#"{"eos_token_id": 7}"#);
        assert_eq!(find().unwrap().stop, [7]);
        write(
            "generation_config.json",
            r#"{"eos_token_id": [5, 6], "suppress_tokens": [1, 3], "do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
                "repetition_penalty": 1.05, "transformers_version": "4.37.0"}"#,
        );
        let found = find().unwrap();
        assert_eq!((&found.stop[..], &found.suppress[..]), (&[5, 6][..], &[1, 3][..]));
        let base = Sampling { temperature: 0.1, min_p: 0.3, seed: Some(1), ..Sampling::default() };
        let expected =
            Sampling { temperature: 0.7, top_k: Some(20), top_p: 0.8, repetition_penalty: 1.05, ..base.clone() };
        assert_eq!(found.apply(base.clone()), expected);
        assert_eq!(GenerationConfig { do_sample: Some(false), ..found }.apply(base).temperature, 0.0);
        // A file without ids leaves them to `config.json`.
        write("generation_config.json", r#"{"temperature": 0.6}"#);
        assert_eq!((find().unwrap().stop, find().unwrap().temperature), (vec![7], Some(0.6)));
        for damaged in [
            "{",
            r#"{"eos_token_id": "x"}"#,
            r#"{"eos_token_id": [-1]}"#,
            r#"{"top_p": 3}"#,
            r#"{"top_k": 0.5}"#,
            r#"{"temperature": "hot"}"#,
        ] {
            write("generation_config.json", damaged);
            assert!(matches!(find(), Err(Error::Format { .. })), "{damaged}");
        }
    }
}
