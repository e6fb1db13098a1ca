//! `Manifest.json` of a package (coreml-containers §1).
//!
//! Only format 1 is read. The root model is the entry that `rootModelIdentifier` names; its path is
//! relative to `Data/` and must not lead out of it. Identifiers are derived from the model's bytes,
//! so that equal programs give equal packages.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::error::PackageError;
use super::inside;

/// The largest manifest that is read, in bytes; real ones have a few entries.
const MAX_BYTES: u64 = 1 << 20;

/// The file of the root model of the package at `folder`.
pub(super) fn root_model(folder: &Path) -> Result<PathBuf, PackageError> {
    let path = folder.join("Manifest.json");
    let refuse = |reason: String| PackageError::Manifest { path: path.clone(), reason };
    let size = std::fs::metadata(&path).map_err(PackageError::io(&path))?.len();
    if size > MAX_BYTES {
        return Err(refuse(format!("{size} bytes, more than {MAX_BYTES}")));
    }
    let bytes = std::fs::read(&path).map_err(PackageError::io(&path))?;
    let manifest: Value = serde_json::from_slice(&bytes).map_err(|e| refuse(format!("no JSON: {e}")))?;
    let text = |key: &str| manifest[key].as_str().ok_or_else(|| refuse(format!("no `{key}`")));
    let version = text("fileFormatVersion")?;
    if version.split('.').next() != Some("1") {
        return Err(refuse(format!("the format version is {version:.40}; only 1 is known")));
    }
    let root = text("rootModelIdentifier")?;
    let entry = &manifest["itemInfoEntries"][root];
    let relative = entry["path"].as_str();
    let relative =
        relative.ok_or_else(|| refuse(format!("the root model `{root:.60}` is not an entry with a path")))?;
    let found =
        inside(&folder.join("Data"), relative).map_err(|e| refuse(format!("the path \"{relative:.60}\" {e}")))?;
    found.ok_or_else(|| refuse(format!("the root model \"{relative:.60}\" is not there")))
}

/// The manifest of a package with this model, with or without weights.
pub(super) fn write(model: &[u8], weights: bool) -> String {
    let entry = |name: &str, description: &str| {
        json!({
            "author": "com.apple.CoreML",
            "description": description,
            "name": name,
            "path": format!("com.apple.CoreML/{name}"),
        })
    };
    let root = identifier(model, "model");
    let mut entries = serde_json::Map::new();
    entries.insert(root.clone(), entry("model.mlmodel", "CoreML Model Specification"));
    if weights {
        entries.insert(identifier(model, "weights"), entry("weights", "CoreML Model Weights"));
    }
    let manifest = json!({ "fileFormatVersion": "1.0.0", "itemInfoEntries": entries, "rootModelIdentifier": root });
    format!("{manifest:#}\n")
}

/// A UUID of version 8: FNV-1a over a label and the bytes. It only has to differ from the other
/// UUIDs of its package.
fn identifier(model: &[u8], of: &str) -> String {
    let hash = model.iter().chain(of.as_bytes()).fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    let version = 0xf_u128 << 76;
    let variant = 0x3_u128 << 62;
    let uuid = hash & !version & !variant | 8 << 76 | 2 << 62;
    let hex = format!("{uuid:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_uuids_of_the_model() {
        let a = identifier(b"a", "model");
        // RFC 9562: version 8 in the third group, variant 10 in the fourth.
        assert!(
            a.len() == 36 && a.as_bytes()[14] == b'8' && matches!(a.as_bytes()[19], b'8' | b'9' | b'a' | b'b'),
            "{a}"
        );
        assert_eq!(a, identifier(b"a", "model"));
        assert_ne!(a, identifier(b"b", "model"));
        assert_ne!(a, identifier(b"a", "weights"));
    }
}
