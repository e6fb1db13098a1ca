//! The files of a training run that opening a model reads: the newest weights, and the ids that the
//! loss ran over.
//!
//! `ferrane-train` writes these folders (its module `checkpoint` documents the whole layout) and
//! uses the names defined here. Of `state.json` this module reads only the vocabulary.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use crate::compaction::Compaction;
use crate::weights::Error;

/// Name of a checkpoint's file with the weights.
pub const MODEL: &str = "model.safetensors";
/// Name of a checkpoint's file with its state: everything except weights and moments.
pub const STATE: &str = "state.json";

/// The name of the folder of the checkpoint after `step` updates: `step-000100`.
pub fn step_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// The step that the name of a checkpoint's folder states; `None` for another name.
pub fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    if digits.len() < 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The steps of all checkpoints in a run's folder, in ascending order.
///
/// # Errors
/// The folder cannot be read.
pub fn steps(root: &Path) -> io::Result<Vec<u64>> {
    let mut steps = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            steps.extend(step_of(&entry.file_name().to_string_lossy()));
        }
    }
    steps.sort_unstable();
    Ok(steps)
}

/// The file with the weights for a run's folder (its newest checkpoint), for a checkpoint's folder,
/// or for the file itself. `None` if the folder is neither.
///
/// # Errors
/// [`Error::Io`] for a folder that cannot be read.
pub fn find_model(path: &Path) -> Result<Option<PathBuf>, Error> {
    if path.is_file() {
        return Ok(Some(path.to_path_buf()));
    }
    let here = path.join(MODEL);
    if here.is_file() {
        return Ok(Some(here));
    }
    if !path.is_dir() {
        return Ok(None);
    }
    let steps = steps(path).map_err(|e| Error::io(path, e))?;
    Ok(steps.into_iter().rev().map(|step| path.join(step_name(step)).join(MODEL)).find(|p| p.is_file()))
}

/// The ids that the loss of a checkpoint ran over; `None` if it ran over all. `model` is the file
/// that [`find_model`] returned; `None` also for weights outside a checkpoint.
///
/// # Errors
/// [`Error::Io`], or [`Error::Format`] for a damaged `state.json`.
pub fn compaction(model: &Path) -> Result<Option<Compaction>, Error> {
    #[derive(Deserialize)]
    struct State {
        #[serde(default)]
        compaction: Option<Compaction>,
    }
    if model.file_name().is_none_or(|name| name != MODEL) {
        return Ok(None);
    }
    let path = model.with_file_name(STATE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(&path, e)),
    };
    let state: State = serde_json::from_slice(&text).map_err(|e| Error::format(&path, e.to_string()))?;
    Ok(state.compaction)
}
