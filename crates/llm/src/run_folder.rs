//! Where a training run keeps its weights, and which ids its loss ran over.
//!
//! `ferrane-train` writes these folders (its module `checkpoint` has the whole layout) and takes
//! the names from here. To open a trained model it is enough to know where the newest weights lie
//! and what `state.json` says of the vocabulary, and that is all that this module reads.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use crate::compaction::Compaction;
use crate::weights::Error;

/// The file with the weights of a checkpoint.
pub const MODEL: &str = "model.safetensors";
/// The file with the state of a checkpoint: everything but weights and moments.
pub const STATE: &str = "state.json";

/// The name of the folder of the checkpoint after `step` updates: `step-000100`.
pub fn step_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// The step of a checkpoint's folder, by its name.
pub fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    if digits.len() < 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The steps of all checkpoints in a run's folder, ascending.
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

/// The file with the weights: of a run's folder (its newest checkpoint), of a checkpoint's folder,
/// or the file itself. `None` if the folder is neither.
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

/// The ids that the loss of a checkpoint ran over, if they were not all. `model` is the file that
/// [`find_model`] found; weights that lie in no checkpoint have none.
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
