//! GGUF files of the architectures llama, qwen2 and qwen3.
//!
//! A model that was read from a GGUF file keeps its metadata, and with them its tokenizer. For
//! others they are made of the configuration, the tokenizer and the chat template.

use std::path::{Path, PathBuf};

use ferrane_gguf::{File, MetadataValue, TensorType, Writer, quantize_q8_0};
use serde_json::Value;

use super::tensors::halves;
use super::{Error, Saved, SavedWeights, check, ends, prepared, untrained};
use crate::chat;
use crate::config::{Activation, Config, RopeScaling};
use crate::model::Model;
use crate::weights::{Slot, TensorKind, gguf};

/// The version of the block types, which files with them state.
const QUANTIZATION_VERSION: u32 = 2;
/// The key of the name for people.
const NAME: &str = "general.name";

/// A tensor of the file.
struct WrittenTensor {
    name: String,
    shape: Vec<usize>,
    ty: TensorType,
    bytes: Vec<u8>,
}

/// Writes a model, with its adapter merged, to a GGUF file that llama.cpp opens. `progress` is
/// called with the number of tensors that are done, and returns whether to continue.
///
/// # Errors
/// [`Error::Exists`] unless `overwrite` is set, [`Error::Source`] if the target is or contains what
/// is read, [`Error::Unwritable`] for a model that none of the architectures is like,
/// [`Error::Tokenizer`] for a vocabulary without a form in the file, [`Error::Range`],
/// [`Error::Cancelled`]; the model's files cannot be read or the file cannot be written. The target
/// is then as it was.
pub fn gguf(
    model: &Model,
    weights: SavedWeights,
    target: &Path,
    overwrite: bool,
    progress: &mut dyn FnMut(usize) -> bool,
) -> Result<Saved, Error> {
    check(model, target, overwrite)?;
    let source = source(&model.path)?;
    let mut saved = Saved::default();
    // Before the weights are read: most refusals are about metadata.
    let metadata = metadata(model, source.as_ref(), weights, &mut saved)?;
    let (config, values) = prepared(model)?;
    let architecture = match &source {
        Some(file) => gguf::architecture(file)?,
        None => architecture(&config)?,
    };
    let mut tensors: Vec<WrittenTensor> = divisors(&config, source.as_ref())?.into_iter().collect();
    let mut rounded = Vec::new();
    for (slot, tensor) in Slot::list(&config).into_iter().zip(values.tensors(&config)) {
        let cols = if tensor.shape.len() == 1 { 1 } else { tensor.shape.last().copied().unwrap_or(1) };
        let order = gguf::file_rows(architecture, slot, &config);
        let ordered = order.map(|order| gguf::ordered(tensor.data, cols, &order));
        let ordered = ordered.as_deref().unwrap_or(tensor.data);
        let range = || {
            let value = ordered.iter().copied().find(|v| !v.is_finite() || v.abs() > 65504.0).unwrap_or(f32::NAN);
            Error::Range { name: slot.name(), value }
        };
        let (ty, bytes) = match (weights, tensor.kind) {
            (SavedWeights::Fp32, _) | (_, TensorKind::Norm | TensorKind::Bias) => {
                (TensorType::F32, ordered.iter().flat_map(|value| value.to_le_bytes()).collect())
            }
            (SavedWeights::Q8_0, _) if cols.is_multiple_of(TensorType::Q8_0.block_values()) => {
                (TensorType::Q8_0, quantize_q8_0(ordered).ok_or_else(range)?)
            }
            (form, _) => {
                if form == SavedWeights::Q8_0 {
                    rounded.push(slot.name());
                }
                (TensorType::F16, halves(&slot.name(), ordered)?)
            }
        };
        saved.weight_bytes += bytes.len() as u64;
        tensors.push(WrittenTensor { name: gguf::name(slot), shape: tensor.shape, ty, bytes });
        if !progress(tensors.len()) {
            return Err(Error::Cancelled);
        }
    }
    if !rounded.is_empty() {
        saved.notes.push(format!("fp16, because their rows are not whole blocks of 32: {}", rounded.join(", ")));
    }
    let mut writer = Writer::new();
    for (key, value) in metadata {
        writer.metadata(&key, value)?;
    }
    for tensor in &tensors {
        writer.tensor(&tensor.name, &tensor.shape, tensor.ty, &tensor.bytes)?;
    }
    writer.save(target)?;
    saved.tensors = tensors.len();
    saved.files = target.file_name().map(|name| name.to_string_lossy().into_owned()).into_iter().collect();
    Ok(saved)
}

/// The GGUF file that a model was read from, if it was one.
fn source(path: &Path) -> Result<Option<File>, Error> {
    let file: Option<PathBuf> = match path.is_dir() {
        true if path.join("config.json").is_file() => None,
        true => gguf::only_file(path),
        false => Some(path.to_path_buf()),
    };
    match file {
        Some(file) if File::recognize(&file).map_err(Error::io(&file))? => Ok(Some(File::open(&file)?)),
        _ => Ok(None),
    }
}

/// All metadata of the file.
fn metadata(
    model: &Model,
    source: Option<&File>,
    weights: SavedWeights,
    saved: &mut Saved,
) -> Result<Vec<(String, MetadataValue)>, Error> {
    let file_type: u32 = match weights {
        SavedWeights::Fp32 => 0,
        SavedWeights::Fp16 => 1,
        SavedWeights::Q8_0 => 7,
    };
    let mut list = match source {
        Some(file) => file.header().metadata().to_vec(),
        None => {
            let mut config = model.config.clone();
            // `prepare` changes the weights so that these have no effect.
            config.residual_scale = 1.0;
            described(&config, &name(&model.path))?
        }
    };
    list.retain(|(key, _)| !["general.file_type", "general.quantization_version"].contains(&key.as_str()));
    let after = list.iter().take_while(|(key, _)| key.starts_with("general.")).count();
    list.insert(after, ("general.file_type".into(), file_type.into()));
    list.insert(after + 1, ("general.quantization_version".into(), QUANTIZATION_VERSION.into()));
    if source.is_none() || model.has_given_tokenizer() {
        list.retain(|(key, _)| !key.starts_with("tokenizer.ggml."));
        match &model.tokenizer {
            Some(tokenizer) => list.extend(tokenizer.to_gguf(model.config.vocab, &ends(model))?),
            None => saved.notes.push("the model has no tokenizer, and neither has the file".into()),
        }
    }
    if source.is_none() {
        for (name, template) in chat::sources(&model.path)? {
            match name == chat::DEFAULT {
                true => list.push(("tokenizer.chat_template".into(), template.into())),
                false => saved.notes.push(format!("the chat template named {name} is left out")),
            }
        }
        saved.notes.extend(untrained(model).map(|(_, note)| note));
    }
    Ok(list)
}

/// A name for people, from the path.
fn name(path: &Path) -> String {
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    stem.map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned())
}

/// The architecture that computes what the configuration says.
///
/// # Errors
/// [`Error::Unwritable`] with the fields that none of them has.
fn architecture(config: &Config) -> Result<&'static str, Error> {
    let plain = Config {
        local_rope: None,
        post_norms: false,
        experts: None,
        activation: Activation::Silu,
        embed_scale: 1.0,
        score_scale: None,
        attn_softcap: None,
        logit_softcap: None,
        layer_attention: Vec::new(),
        residual_scale: 1.0,
        ..config.clone()
    };
    let fields = |config: &Config| serde_json::to_value(config).unwrap_or(Value::Null);
    let (ours, theirs) = (fields(config), fields(&plain));
    let mut lost: Vec<String> = ours
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| theirs.get(key) != Some(value))
        .map(|(key, _)| key.clone())
        .collect();
    if config.rope.rotated.is_some() {
        lost.push("rope.rotated".into());
    }
    let found = match (config.qk_norm, config.qkv_bias, config.sliding_window) {
        (true, false, None) => "qwen3",
        (false, true, None) => "qwen2",
        (false, ..) => "llama",
        (true, ..) => {
            lost.push("qk_norm together with qkv_bias or sliding_window".into());
            ""
        }
    };
    if lost.is_empty() {
        return Ok(found);
    }
    let reason = format!("GGUF's architectures llama, qwen2 and qwen3 have no form for `{}`", lost.join("`, `"));
    Err(Error::Unwritable { reason: format!("{reason}; write a folder of Hugging Face") })
}

/// The metadata about the model, without the tokenizer.
fn described(config: &Config, name: &str) -> Result<Vec<(String, MetadataValue)>, Error> {
    let architecture = architecture(config)?;
    let mut list: Vec<(String, MetadataValue)> = vec![
        ("general.architecture".into(), architecture.into()),
        ("general.type".into(), "model".into()),
        (NAME.into(), name.into()),
    ];
    let mut put = |key: &str, value: MetadataValue| list.push((format!("{architecture}.{key}"), value));
    let sizes = [
        ("vocab_size", config.vocab),
        ("context_length", config.max_seq),
        ("embedding_length", config.dim),
        ("block_count", config.layers),
        ("feed_forward_length", config.hidden),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_dim),
        ("attention.value_length", config.head_dim),
        ("rope.dimension_count", config.head_dim),
    ];
    // A valid configuration keeps every size far below the range of u32.
    sizes.into_iter().for_each(|(key, size)| put(key, (size as u32).into()));
    put("attention.layer_norm_rms_epsilon", config.norm_eps.into());
    put("rope.freq_base", config.rope.base.into());
    if let Some(window) = config.sliding_window {
        put("attention.sliding_window", u32::try_from(window).unwrap_or(u32::MAX).into());
    }
    match &config.rope.scaling {
        None | Some(RopeScaling::Llama3 { .. } | RopeScaling::LongRope { .. }) => {}
        Some(RopeScaling::Linear { factor }) => {
            put("rope.scaling.type", "linear".into());
            put("rope.scaling.factor", (*factor as f32).into());
        }
        Some(RopeScaling::Yarn { factor, original, attention, beta_fast, beta_slow, truncate }) => {
            if (*beta_fast, *beta_slow, *truncate) != (32.0, 1.0, true) {
                let reason = "llama.cpp's YaRN has beta_fast 32, beta_slow 1 and whole pairs; write a folder";
                return Err(Error::Unwritable { reason: reason.into() });
            }
            put("rope.scaling.type", "yarn".into());
            put("rope.scaling.factor", (*factor as f32).into());
            put("rope.scaling.original_context_length", (*original as u32).into());
            // llama.cpp multiplies by the factor of the definition.
            let own = attention / (1.0 + 0.1 * factor.max(f64::MIN_POSITIVE).ln());
            put("rope.scaling.attn_factor", (own as f32).into());
        }
    }
    Ok(list)
}

/// The tensor of divisors of the rotary frequencies, if the model has any.
fn divisors(config: &Config, source: Option<&File>) -> Result<Option<WrittenTensor>, Error> {
    let pack = |values: Vec<f32>| WrittenTensor {
        name: gguf::DIVISORS.into(),
        shape: vec![values.len()],
        ty: TensorType::F32,
        bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    if let Some(file) = source {
        let Some(info) = file.tensor(gguf::DIVISORS) else { return Ok(None) };
        let mut values = vec![0.0; info.elements()];
        file.read(info, &mut values)?;
        return Ok(Some(pack(values)));
    }
    let pairs = 0..config.head_dim / 2;
    match &config.rope.scaling {
        Some(RopeScaling::Llama3 { factor, low, high, original }) => {
            let divisor = |pair: usize| {
                let frequency = f64::from(config.rope.base).powf(-2.0 * pair as f64 / config.head_dim as f64);
                // As `Rope::rotation` scales them.
                let turns = *original as f64 * frequency / std::f64::consts::TAU;
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 / (share + (1.0 - share) / factor)) as f32
            };
            Ok(Some(pack(pairs.map(divisor).collect())))
        }
        Some(RopeScaling::LongRope { short, long, attention, .. }) => {
            if short != long || *attention != 1.0 {
                let reason = "LongRoPE with two sets of frequencies is written only to a folder of Hugging Face";
                return Err(Error::Unwritable { reason: reason.into() });
            }
            Ok(Some(pack(short.iter().map(|divisor| *divisor as f32).collect())))
        }
        _ => Ok(None),
    }
}
