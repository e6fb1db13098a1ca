//! Folders of Hugging Face: `config.json`, `model.safetensors`, the tokenizer, and the files about
//! generation and chats.
//!
//! A model that was read from such a folder keeps its files. Others get a configuration of the
//! family Llama, Mistral, Qwen2 or Qwen3, a `tokenizer.json` if their vocabulary has that form, and
//! a `generation_config.json` with the ids that end a text.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use ferrane_host::fs::AtomicFolder;
use serde_json::{Map, Value};

use super::hub::{self, Hub};
use super::{Error, Saved, SavedWeights, check, ends, prepared, tensors, untrained};
use crate::chat;
use crate::model::Model;
use crate::tokenizer::{HfTokenizer, Tokenizer};
use crate::weights::{Slot, file_tensors};

/// Writes a model, with its adapter merged, to a new folder that `transformers` loads. `progress`
/// is called with the number of tensors that are done, and returns whether to continue.
///
/// # Errors
/// [`Error::Exists`] unless `overwrite` is set, [`Error::Source`] if the target is or contains what
/// is read, [`Error::Config`] for a model that no family of Hugging Face is like, [`Error::Range`],
/// [`Error::Unwritable`] for [`SavedWeights::Q8_0`], [`Error::Cancelled`]; the model's files cannot
/// be read or the folder cannot be written. The target is then as it was.
pub fn huggingface(
    model: &Model,
    weights: SavedWeights,
    target: &Path,
    overwrite: bool,
    progress: &mut dyn FnMut(usize) -> bool,
) -> Result<Saved, Error> {
    check(model, target, overwrite)?;
    if weights == SavedWeights::Q8_0 {
        let reason = "a folder of Hugging Face has no q8_0; write fp16 or fp32, or a GGUF file";
        return Err(Error::Unwritable { reason: reason.into() });
    }
    let (config, values) = prepared(model)?;
    let hub = Hub::find(&model.path, &config)?;
    let (mut fields, architecture) = hub::configuration(&config, hub.as_ref())?;
    fields.remove("dtype");
    let dtype = if weights == SavedWeights::Fp32 { "float32" } else { "float16" };
    fields.insert("torch_dtype".into(), dtype.into());
    if hub.is_none() {
        fields.extend(special_ids(model));
    }
    let folder = AtomicFolder::create(target).map_err(Error::io(target))?;
    let mut saved = Saved::default();
    let named: Vec<(Slot, &[f32])> =
        Slot::list(&config).into_iter().zip(values.tensors(&config).into_iter().map(|tensor| tensor.data)).collect();
    let mut entries = Vec::new();
    for tensor in file_tensors(&config, architecture) {
        entries.push(tensors::plain(&tensor, &tensors::values(&tensor, &named), weights)?);
        if !progress(entries.len()) {
            return Err(Error::Cancelled);
        }
    }
    tensors::save(&folder.path().join("model.safetensors"), "pt", &entries)?;
    saved.tensors = entries.len();
    saved.weight_bytes = entries.iter().map(|entry| entry.bytes.len() as u64).sum();
    hub::write_json(folder.path(), "config.json", &fields)?;
    match &hub {
        Some(hub) => hub.copy(folder.path(), !model.has_given_tokenizer())?,
        None => generation(model, folder.path(), &mut saved)?,
    }
    vocabulary(model, hub.as_ref(), folder.path(), &mut saved)?;
    for entry in fs::read_dir(folder.path()).map_err(Error::io(target))? {
        saved.files.push(entry.map_err(Error::io(target))?.file_name().to_string_lossy().into_owned());
    }
    saved.files.sort();
    folder.commit(overwrite).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::Exists(target.to_path_buf()),
        _ => Error::io(target)(e),
    })?;
    Ok(saved)
}

/// The ids that begin and end a text, as `config.json` and `generation_config.json` have them.
fn special_ids(model: &Model) -> Map<String, Value> {
    let ids = |list: Vec<u32>| match list[..] {
        [] => Value::Null,
        [one] => one.into(),
        _ => list.into(),
    };
    let bos = model.tokenizer.as_ref().and_then(Tokenizer::bos);
    Map::from_iter([("bos_token_id".to_string(), bos.into()), ("eos_token_id".to_string(), ids(ends(model)))])
}

/// Writes the files about generation and chats of a model that has none.
fn generation(model: &Model, folder: &Path, saved: &mut Saved) -> Result<(), Error> {
    let mut fields = special_ids(model);
    if let Some((ids, note)) = untrained(model) {
        fields.insert("suppress_tokens".into(), ids.into());
        saved.notes.push(format!("{note}, and generation_config.json suppresses them"));
    }
    hub::write_json(folder, "generation_config.json", &fields)?;
    for (name, source) in chat::sources(&model.path)? {
        if name == chat::DEFAULT {
            let path = folder.join("chat_template.jinja");
            fs::write(&path, source).map_err(Error::io(&path))?;
        } else {
            saved.notes.push(format!("the chat template named {name} is left out"));
        }
    }
    Ok(())
}

/// Writes a `tokenizer.json` unless the folder has one, or the vocabulary in its own format if it
/// has no such form.
fn vocabulary(model: &Model, hub: Option<&Hub>, folder: &Path, saved: &mut Saved) -> Result<(), Error> {
    let Some(tokenizer) = &model.tokenizer else {
        saved.notes.push("the model has no tokenizer, and neither has the folder".into());
        return Ok(());
    };
    if folder.join("tokenizer.json").is_file() {
        return Ok(());
    }
    // The files of a byte-level vocabulary have other names, and their reader is transformers.
    if hub.is_some() && folder.join("vocab.json").is_file() {
        return Ok(());
    }
    match tokenizer.to_hf() {
        Ok(HfTokenizer { json, mut config, note }) => {
            saved.notes.extend(note.map(|note| format!("tokenizer.json: {note}")));
            let path = folder.join("tokenizer.json");
            fs::write(&path, json).map_err(Error::io(&path))?;
            if !folder.join("tokenizer_config.json").is_file() {
                config.insert("model_max_length".into(), model.config.max_seq.into());
                hub::write_json(folder, "tokenizer_config.json", &config)?;
            }
            // Some readers prefer the file of SentencePiece.
            if tokenizer.file_name() == "tokenizer.model" {
                tokenizer.save(folder.join("tokenizer.model"))?;
            }
        }
        Err(reason) => {
            let name = tokenizer.file_name();
            tokenizer.save(folder.join(name))?;
            saved.notes.push(format!("the folder has {name} and no tokenizer.json: {reason}"));
        }
    }
    Ok(())
}
