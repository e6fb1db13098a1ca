//! Cases as the `onnx` package ships them: `test_NAME/model.onnx` with
//! `test_data_set_0/input_0.pb`, …

use std::path::Path;

use ferrane_onnx::{ElementType, Tensor};

use super::case::{Case, Read};
use super::lists::Plain;

/// Reads every case of a folder, in the order of their names.
///
/// # Errors
/// The folder cannot be listed.
pub fn read_folders(folder: &Path) -> Result<Vec<Read>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| n.starts_with("test_")).collect();
    names.sort_unstable();
    Ok(names.into_iter().map(|name| (name.clone(), one(&folder.join(&name)))).collect())
}

fn one(folder: &Path) -> Result<Case, String> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let plain = Plain::wrap(&read("model.onnx")?, |name| read(&format!("test_data_set_0/{name}")))?;
    let Plain { model, inputs, outputs } = plain;
    // Values that were written by hand have four digits, the last of which may be off by one.
    let by_hand = |t: &Tensor| t.element() == ElementType::Float && t.values().iter().all(|v| four_digits(*v));
    let spread = if outputs.iter().all(|(_, t)| by_hand(t)) { 5e-5 } else { 0.0 };
    Ok(Case { model, inputs, outputs, spread })
}

fn four_digits(v: f64) -> bool {
    let scaled = v * 1e4;
    (scaled - scaled.round()).abs() < 1e-3
}
