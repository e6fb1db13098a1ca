//! What an app needs in addition to the weights: the tokenizer, the chat template, the sizes.

use std::path::{Path, PathBuf};

use super::Error;

/// Most bytes of metadata; readers hold all of it in memory.
const MOST: u64 = 12 << 20;

/// Files of a model's folder that a package carries, each under its name.
const FILES: [&str; 4] = ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// What the folder of a model gives to the metadata.
pub(super) struct FolderMetadata {
    pub(super) entries: Vec<(String, String)>,
    /// Files that are not among the entries, each with the reason.
    pub(super) left_out: Vec<String>,
}

pub(super) fn of_folder(path: &Path) -> Result<FolderMetadata, Error> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let (mut entries, mut left) = (Vec::new(), Vec::new());
    let mut room = MOST;
    for name in FILES {
        let file: PathBuf = folder.join(name);
        let failed = |source| Error::Io { file: file.display().to_string(), source };
        // A file next to a lone checkpoint may belong to another model.
        if !file.is_file() || !path.is_dir() {
            continue;
        }
        let size = file.metadata().map_err(failed)?.len();
        if size > room {
            left.push(format!("{name} has {size} bytes, and metadata holds {MOST} in all"));
            continue;
        }
        match String::from_utf8(std::fs::read(&file).map_err(failed)?) {
            Ok(text) => {
                room -= size.min(room);
                entries.push((name.to_string(), text));
            }
            Err(_) => left.push(format!("{name} is no UTF-8 text")),
        }
    }
    if !entries.iter().any(|(name, _)| name == "chat_template.jinja") {
        entries.extend(template(&entries).map(|text| ("chat_template.jinja".to_string(), text)));
    }
    for name in ["tokenizer.model", "tokenizer.bin"] {
        if path.is_dir() && folder.join(name).is_file() && !entries.iter().any(|(name, _)| name == "tokenizer.json") {
            left.push(format!("{name} is not text; ship it next to the package"));
        }
    }
    Ok(FolderMetadata { entries, left_out: left })
}

/// The template in a `tokenizer_config.json`: a text, or the one named `default` in a list.
fn template(entries: &[(String, String)]) -> Option<String> {
    let (_, config) = entries.iter().find(|(name, _)| name == "tokenizer_config.json")?;
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let template = config.get("chat_template")?;
    let named = |list: &Vec<serde_json::Value>| {
        let default = list.iter().find(|entry| entry.get("name").is_some_and(|name| name == "default"));
        default.and_then(|entry| entry.get("template")).and_then(|text| text.as_str().map(str::to_string))
    };
    template.as_str().map(str::to_string).or_else(|| template.as_array().and_then(named))
}
