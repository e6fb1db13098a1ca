//! Chat templates in the files of a model.

use std::path::Path;

use ferrane_gguf::{File, MetadataValue};
use serde_json::{Map, Value as Json};

use super::{DEFAULT, Error, Template};
use crate::weights::gguf;

/// The special tokens of a `tokenizer_config.json` that templates may print.
const TOKENS: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl Template {
    /// The template in the metadata of a GGUF file or in a model's folder, with the model's special
    /// tokens; `None` if there is none. `path` may also be a file in the folder. As in
    /// `transformers`, `chat_template.jinja` (with further ones in `additional_chat_templates`) is
    /// preferred to `chat_template.json`, and that to the `tokenizer_config.json`, which has one
    /// template or a list of named ones.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`] for damaged files, [`Error::Syntax`].
    pub fn find(path: impl AsRef<Path>) -> Result<Option<Template>, Error> {
        let path = path.as_ref();
        let sources = sources(path)?;
        if sources.is_empty() {
            return Ok(None);
        }
        let tokens = match gguf_file(path)? {
            Some(file) if gguf::chat_template(&file, None).is_some() => tokens_of_gguf(&file),
            _ => special_tokens(&read_json(&folder(path).join("tokenizer_config.json"))?.unwrap_or(Json::Null)),
        };
        Ok(Some(Template::from_named(sources)?.with_tokens(tokens)))
    }
}

/// The templates that [`Template::find`] compiles, by their names; empty if there are none.
pub(crate) fn sources(path: &Path) -> Result<Vec<(String, String)>, Error> {
    if let Some(file) = gguf_file(path)?
        && let Some(default) = gguf::chat_template(&file, None)
    {
        let names = file.get("tokenizer.chat_templates").and_then(MetadataValue::as_array);
        let more = names.and_then(|list| list.strings()).unwrap_or_default().iter().filter(|name| *name != DEFAULT);
        let more = more.filter_map(|name| Some((name.clone(), gguf::chat_template(&file, Some(name))?.to_string())));
        return Ok(std::iter::once((DEFAULT.to_string(), default.to_string())).chain(more).collect());
    }
    let folder = folder(path);
    if let Some(source) = read(&folder.join("chat_template.jinja"))? {
        let mut sources = vec![(DEFAULT.to_string(), source)];
        sources.extend(additional(&folder.join("additional_chat_templates"))?);
        return Ok(sources);
    }
    let file = folder.join("chat_template.json");
    if let Some(json) = read_json(&file)? {
        return named(&file, json.get("chat_template"));
    }
    let file = folder.join("tokenizer_config.json");
    named(&file, read_json(&file)?.unwrap_or(Json::Null).get("chat_template"))
}

/// The folder of a model's files.
fn folder(path: &Path) -> &Path {
    if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) }
}

/// A GGUF file, or the only one of a folder.
fn gguf_file(path: &Path) -> Result<Option<File>, Error> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    let file = match path.is_file() && File::recognize(path).map_err(io)? {
        true => File::open(path),
        false => match gguf::only_file(path) {
            Some(file) => File::open(file),
            None => return Ok(None),
        },
    };
    file.map(Some).map_err(|e| Error::Format { path: path.to_path_buf(), message: e.to_string() })
}

/// The special tokens that the metadata of a GGUF file name.
fn tokens_of_gguf(file: &File) -> Map<String, Json> {
    let tokens = file.get("tokenizer.ggml.tokens").and_then(MetadataValue::as_array).and_then(|list| list.strings());
    let special = |(key, id): (&str, &str)| {
        let id = file.get(&format!("tokenizer.ggml.{id}_token_id"))?.as_u64()?;
        let token = tokens?.get(usize::try_from(id).ok()?)?;
        Some((format!("{key}_token"), Json::from(token.as_str())))
    };
    let ids = [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")];
    ids.into_iter().filter_map(special).collect()
}

/// The special tokens that a `tokenizer_config.json` states, as strings or as objects with
/// `content`.
fn special_tokens(config: &Json) -> Map<String, Json> {
    let text = |key: &str| {
        let token = config.get(key)?;
        let token = token.as_str().or_else(|| token.get("content")?.as_str())?;
        Some((key.to_string(), Json::from(token)))
    };
    TOKENS.into_iter().filter_map(text).collect()
}

/// One template, or a list of `{"name", "template"}`.
fn named(path: &Path, value: Option<&Json>) -> Result<Vec<(String, String)>, Error> {
    let wrong = |message: &str| Error::Format { path: path.to_path_buf(), message: message.into() };
    match value {
        None | Some(Json::Null) => Ok(vec![]),
        Some(Json::String(source)) => Ok(vec![(DEFAULT.into(), source.clone())]),
        Some(Json::Array(list)) => {
            let pair = |item: &Json| {
                let text = |key: &str| item.get(key)?.as_str().map(str::to_string);
                text("name").zip(text("template"))
            };
            let pairs: Option<Vec<_>> = list.iter().map(pair).collect();
            pairs.ok_or_else(|| wrong("an item of `chat_template` has no `name` or no `template`"))
        }
        Some(_) => Err(wrong("`chat_template` is neither text nor a list")),
    }
}

/// The templates `NAME.jinja` of a folder, by ascending name.
fn additional(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let io = |source| Error::Io { path: folder.to_path_buf(), source };
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let (Some(name), Some(source)) = (name.strip_suffix(".jinja"), read(&path)?) {
            found.push((name.to_string(), source));
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>, Error> {
    if !path.is_file() {
        return Ok(None);
    }
    std::fs::read_to_string(path).map(Some).map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

fn read_json(path: &Path) -> Result<Option<Json>, Error> {
    let wrong = |e: serde_json::Error| Error::Format { path: path.to_path_buf(), message: e.to_string() };
    read(path)?.map(|text| serde_json::from_str(&text)).transpose().map_err(wrong)
}
