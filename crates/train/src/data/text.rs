//! Text to ids: splits a text into documents, encodes them, and caches the ids next to the file.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use ferrane_host::fs::{Durability, replace};
use ferrane_host::pool;
use ferrane_llm::tokenizer::Tokenizer;
use sha2::{Digest as _, Sha256};

use super::ids::Width;
use super::{Error, Ids};

/// The separator between two documents of a text, usually on a separate line.
pub const SEPARATOR: &str = "<|endoftext|>";

/// Part of the cache's hash. It must change if the encoding of text changes, so that old caches are
/// not used.
const RULE: &[u8] = b"ferrane ids 1";

/// The documents of `text`: the parts between [`SEPARATOR`]s, without leading and trailing line
/// ends. Empty documents and a byte order mark at the start are left out.
pub fn documents(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.split(SEPARATOR).map(|document| document.trim_matches(['\n', '\r'])).filter(|document| !document.is_empty())
}

/// The ids of all documents. Each document starts with the id that begins a sequence; if the
/// vocabulary has none, with the id that ends one, if any. Documents are encoded in parallel and
/// concatenated in order.
pub(super) fn encode(text: &str, tokenizer: &Tokenizer) -> Vec<u32> {
    let mark = tokenizer.bos().or(tokenizer.eos());
    let mut parts: Vec<(&str, Vec<u32>)> = documents(text).map(|document| (document, Vec::new())).collect();
    pool::for_each_chunk_mut(&mut parts, 16, |_, parts| {
        for (document, ids) in parts {
            *ids = tokenizer.encode(document);
        }
    });
    let count = parts.iter().map(|(_, ids)| ids.len() + 1).sum();
    let mut all = Vec::with_capacity(count);
    for (_, ids) in parts {
        all.extend(mark);
        all.extend(ids);
    }
    all
}

/// The ids of the text file `path`, from its cache if there is one. Otherwise the text is encoded
/// and the cache written; if no folder is writable, the ids stay in memory.
pub(super) fn open(path: &Path, text: &[u8], tokenizer: &Tokenizer, folder: Option<&Path>) -> Result<Ids, Error> {
    let not_utf8 = |e: std::str::Utf8Error| Error::NotUtf8 { path: path.to_path_buf(), offset: e.valid_up_to() };
    let text = std::str::from_utf8(text).map_err(not_utf8)?;
    let width = if tokenizer.vocab_size() <= 1 << 16 { Width::Two } else { Width::Four };
    let name = cache_name(path, text, tokenizer, width);
    let beside = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let places: Vec<PathBuf> =
        [Some(beside.as_path()), folder].into_iter().flatten().map(|place| place.join(&name)).collect();
    for place in &places {
        // A damaged cache is silently written again.
        let cached = place.is_file().then(|| Ids::map(place, width)).and_then(Result::ok);
        if let Some(ids) = cached.filter(|ids| !ids.is_empty() && ids.check(place, tokenizer.vocab_size()).is_ok()) {
            tracing::debug!(target: "ferrane::cache", hit = true, path = %place.display(), "ids of a text");
            return Ok(ids);
        }
    }
    tracing::debug!(target: "ferrane::cache", hit = false, path = %path.display(), "ids of a text");
    let ids = encode(text, tokenizer);
    if ids.is_empty() {
        return Err(Error::Empty(path.to_path_buf()));
    }
    let bytes = width.pack(&ids);
    for place in &places {
        if write(place, &bytes).is_ok() {
            return Ids::map(place, width);
        }
    }
    Ok(Ids::packed(bytes, width))
}

fn cache_name(path: &Path, text: &str, tokenizer: &Tokenizer, width: Width) -> String {
    let mut hash = Sha256::new();
    hash.update(RULE);
    hash.update(tokenizer.digest());
    hash.update(text);
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = path.file_name().map_or(Cow::Borrowed("data"), |name| name.to_string_lossy());
    format!("{name}.ids-{hash}.{}", width.extension())
}

/// Replaces a file atomically, unless its folder is write-protected.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A privileged user could write to a protected folder, but must not.
    if std::fs::metadata(folder)?.permissions().readonly() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    replace(path, bytes, Durability::Synced)
}
