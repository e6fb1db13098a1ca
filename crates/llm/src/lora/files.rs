//! The two files of an adapter as PEFT writes them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::PREFIX;
use crate::run_folder;
use crate::weights::container;
use crate::weights::{Part, TensorKind, TensorRef};

/// Name of the file that says which modules an adapter changes.
pub const CONFIG: &str = "adapter_config.json";
/// Name of the file with the matrices.
pub const MATRICES: &str = "adapter_model.safetensors";

/// The projections that have a module of their own, by the name that PEFT selects them with.
pub const TARGETS: [(&str, Part); 7] = [
    ("q_proj", Part::Wq),
    ("k_proj", Part::Wk),
    ("v_proj", Part::Wv),
    ("o_proj", Part::Wo),
    ("gate_proj", Part::W1),
    ("up_proj", Part::W3),
    ("down_proj", Part::W2),
];

/// The matrices of one projection.
#[derive(Debug, Clone, Copy)]
pub struct AdapterMatrices<'a> {
    /// Index of the layer.
    pub layer: usize,
    /// The projection, one of [`TARGETS`].
    pub part: Part,
    /// `A`, `[rank, in]`.
    pub a: &'a [f32],
    /// `B`, `[out, rank]`, without the scale.
    pub b: &'a [f32],
}

/// The names of the tensors A and B of a projection in the file; `None` for a tensor that is not
/// one of [`TARGETS`].
pub fn tensor_names(layer: usize, part: Part) -> Option<[String; 2]> {
    let (target, _) = TARGETS.iter().find(|(_, known)| *known == part)?;
    let block = if matches!(part, Part::W1 | Part::W2 | Part::W3) { "mlp" } else { "self_attn" };
    let name = |matrix: &str| format!("{PREFIX}model.layers.{layer}.{block}.{target}.lora_{matrix}.weight");
    Some([name("A"), name("B")])
}

/// Writes `adapter_config.json` for the scale `alpha / rank` on the projections `targets`. `base`
/// is the path of the model, which PEFT opens if it is given none.
///
/// # Errors
/// Errors of the writer.
pub fn write_config(
    mut out: impl Write,
    rank: usize,
    alpha: f64,
    targets: &[String],
    base: Option<&str>,
) -> io::Result<()> {
    // A whole number is written as one, as PEFT does.
    let alpha = if alpha.fract() == 0.0 && alpha.abs() < 1e15 { json!(alpha as i64) } else { json!(alpha) };
    let config = json!({
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
    });
    serde_json::to_writer_pretty(&mut out, &config)?;
    out.write_all(b"\n")
}

/// Writes `adapter_model.safetensors`, in fp32.
///
/// # Errors
/// Errors of the writer; [`io::ErrorKind::InvalidInput`] for a tensor that has no module, or
/// matrices whose sizes do not fit the rank.
pub fn write_matrices(mut out: impl Write, rank: usize, matrices: &[AdapterMatrices<'_>]) -> io::Result<()> {
    let refuse = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let mut tensors = Vec::new();
    for AdapterMatrices { layer, part, a, b } in matrices {
        let names = tensor_names(*layer, *part);
        let [name_a, name_b] = names.ok_or_else(|| refuse(format!("{} cannot be adapted", part.name())))?;
        let columns = |data: &[f32]| data.len().checked_div(rank).unwrap_or(0);
        let tensor = |name, shape, data| TensorRef { name, kind: TensorKind::Matrix, shape, data };
        tensors.push(tensor(name_a, vec![rank, columns(a)], *a));
        tensors.push(tensor(name_b, vec![columns(b), rank], *b));
    }
    // Without this entry, some readers of safetensors take the file for one of another framework.
    container::write(&mut out, &[("format", "pt")], &tensors)
}

/// Whether a folder has an adapter, or is that of a training run whose checkpoints have one.
pub fn is_adapter(folder: &Path) -> bool {
    find(folder).join(CONFIG).is_file()
}

/// The folder with an adapter's files: `folder` itself or, if it is the folder of a training run,
/// its newest checkpoint.
pub(super) fn find(folder: &Path) -> PathBuf {
    if folder.join(CONFIG).is_file() {
        return folder.to_path_buf();
    }
    // A folder that cannot be read is reported when its configuration is opened.
    let steps = run_folder::steps(folder).unwrap_or_default();
    let checkpoints = steps.into_iter().rev().map(|step| folder.join(run_folder::step_name(step)));
    checkpoints.into_iter().find(|path| path.join(CONFIG).is_file()).unwrap_or_else(|| folder.to_path_buf())
}
