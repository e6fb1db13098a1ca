//! A whole model as a Core ML package: one program with the functions `decode` and `prefill`.
//!
//! | function | inputs | output |
//! |---|---|---|
//! | `decode` | `input_ids` int32 `[1, 1]`, `current_pos` int32 `[1]` | `logits` |
//! | `prefill` | `input_ids` int32 `[1, prefill]`, `current_pos`, `last_index` int32 `[1]` | `logits` of the token with this index |
//!
//! Both have the states `key_cache` and `value_cache`, fp16 `[layers, kv_heads, context,
//! head_dim]`, and read the same weights, which the package holds once. `logits` is fp16 `[parts,
//! vocab / parts]`: read row after row, its elements are in the order of the ids.
//!
//! A caller feeds a prompt through `prefill`, window after window, fills the last window with any
//! id, and continues with `decode`. `current_pos` counts the positions so far; with the tokens of
//! the call it must not exceed the context. Rows of the fill lie in the caches, but no query sees
//! them before a later call has replaced them, because a query sees only what is before it.
//!
//! ```no_run
//! use ferrane_llm::export::{self, Options};
//! use ferrane_llm::model::Model;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("models/llama")?;
//! let exported = export::export(&model, &Options::default(), &mut |_| {})?;
//! exported.write("llama.mlpackage", false)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`export_parts`] writes several packages, each below a size. The first one takes `input_ids`,
//! the last one has `last_index` and returns `logits`. The others return `hidden_out`, the residual
//! stream, fp16 `[1, dim, 1, tokens]`, which the next one takes as `hidden`. The states of a
//! package are those of its layers; one without layers has neither states nor `current_pos`.

mod chunks;
mod encoding;
mod error;
mod metadata;
pub mod program;
mod store;

use std::ops::Range;
use std::path::Path;

use ferrane_mil::package::{Description, WriteOptions, write_package};
use ferrane_mil::{Program, WeightId};

use crate::config::{Config, MAX_POSITIONS};
use crate::model::Model;
use crate::weights::WeightSource;
use chunks::ModelPart;
pub use encoding::WeightEncoding;
pub use error::Error;
use program::CallShape;
use store::StoredModel;

/// Name of the function for one token.
pub const DECODE: &str = "decode";
/// Name of the function for a window of a prompt.
pub const PREFILL: &str = "prefill";

/// Positions in the caches if nothing else is asked for and the model has as many.
const CONTEXT: usize = 2048;
/// Tokens in a window of a prompt if nothing else is asked for.
const WINDOW: usize = 64;

/// Options of [`export`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// How the matrices are stored.
    pub weights: WeightEncoding,
    /// Positions in the caches, a multiple of `prefill` and at most the model's context; `None`:
    /// the largest such number up to 2048.
    pub context: Option<usize>,
    /// Tokens in a window of `prefill`, at least 2; `None`: 64, or the largest power of two within
    /// a shorter context.
    pub prefill: Option<usize>,
}

/// A model, or a part of one, as a program and the description of its package.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The functions `decode` and `prefill`.
    pub program: Program,
    /// Ports, and the metadata that an app reads.
    pub description: Description,
    /// Positions in the caches.
    pub context: usize,
    /// Tokens in a window of `prefill`.
    pub prefill: usize,
    /// The layers of the model that are in the package.
    pub layers: Range<usize>,
    /// Bytes of all weights and tables.
    pub weight_bytes: u64,
    /// Files of the model's folder that the metadata does not hold, each with the reason.
    pub left_out: Vec<String>,
}

impl Exported {
    /// Writes the package.
    ///
    /// # Errors
    /// [`Error::Package`]: `path` exists and `overwrite` is false, or the files cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, overwrite: bool) -> Result<(), Error> {
        let options = WriteOptions { overwrite, description: Some(&self.description), ..WriteOptions::default() };
        Ok(write_package(&self.program, path, &options)?)
    }
}

/// Exports a model with its adapter merged, and with the tokenizer and the templates in its folder.
/// `progress` is called with the number of layers whose weights are encoded.
///
/// # Errors
/// As [`export_weights`]; [`Error::Io`] if a file of the folder cannot be read, [`Error::Model`] if
/// the adapter cannot be merged.
pub fn export(model: &Model, options: &Options, progress: &mut dyn FnMut(usize)) -> Result<Exported, Error> {
    let exported = export_weights(&model.config, weights_of(model)?, options, progress)?;
    with_model(exported, model)
}

/// The weights with the adapter. Without one they stay in their files, with their codes if they are
/// quantized.
fn weights_of(model: &Model) -> Result<&dyn WeightSource, Error> {
    match model.adapter() {
        Some(_) => Ok(model.fp32_weights()?),
        None => Ok(&model.weights),
    }
}

/// As [`export`], in several packages of at most `bytes` bytes of weights and tables, which are
/// called one after the other. The first one holds the tokenizer and the templates.
///
/// # Errors
/// As [`export`]; [`Error::Option`] if the embedding, the classifier or a layer needs more bytes.
pub fn export_parts(
    model: &Model,
    options: &Options,
    bytes: u64,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Exported>, Error> {
    let mut parts = export_weight_parts(&model.config, weights_of(model)?, options, bytes, progress)?;
    if !parts.is_empty() {
        let first = with_model(parts.remove(0), model)?;
        parts.insert(0, first);
    }
    Ok(parts)
}

/// As [`export_parts`]; the metadata then holds only the sizes.
///
/// # Errors
/// As [`export_parts`].
pub fn export_weight_parts(
    config: &Config,
    weights: &dyn WeightSource,
    options: &Options,
    bytes: u64,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Exported>, Error> {
    check(config, weights)?;
    let (context, prefill) = sizes(config, options)?;
    let shapes = [1, prefill].map(|tokens| CallShape { context, tokens });
    let parts = chunks::split(config, options.weights, &shapes, bytes)?;
    let count = parts.len();
    let exported = parts.iter().enumerate().map(|(i, part)| {
        let mut exported = export_part(config, weights, options, part, progress)?;
        exported.description = exported.description.with_metadata([
            ("ferrane.part", format!("{} of {count}", i + 1)),
            ("ferrane.layers", format!("{}..{}", part.layers.start, part.layers.end)),
        ]);
        Ok(exported)
    });
    exported.collect()
}

/// Adds the tokenizer and the templates of a model's folder to the metadata, and the ids whose
/// logits no training has seen.
fn with_model(mut exported: Exported, model: &Model) -> Result<Exported, Error> {
    let metadata = metadata::of_folder(&model.path)?;
    exported.description = exported.description.with_metadata(metadata.entries);
    let untrained = model.untrained();
    if !untrained.is_empty() {
        let ids = untrained.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        exported.description = exported.description.with_metadata([("ferrane.suppress_tokens", ids)]);
    }
    exported.left_out = metadata.left_out;
    Ok(exported)
}

/// Exports weights; the metadata then holds only the sizes.
///
/// # Errors
/// [`Error::Unsupported`] for a mixture of experts; [`Error::Option`]; [`Error::Range`] for weights
/// beyond fp16; [`Error::Weights`] for weights of another configuration.
pub fn export_weights(
    config: &Config,
    weights: &dyn WeightSource,
    options: &Options,
    progress: &mut dyn FnMut(usize),
) -> Result<Exported, Error> {
    check(config, weights)?;
    export_part(config, weights, options, &ModelPart::whole(config), progress)
}

/// # Errors
/// If the model cannot be exported.
fn check(config: &Config, weights: &dyn WeightSource) -> Result<(), Error> {
    config.validate().map_err(crate::weights::Error::from)?;
    weights.check(config)?;
    if config.experts.is_some() {
        let reason = "it is a mixture of experts, and a program of Core ML computes all of them for every token";
        return Err(Error::Unsupported { reason: format!("{reason}; the fp32 reference runs it") });
    }
    Ok(())
}

/// Exports a part of a model that was checked.
fn export_part(
    config: &Config,
    weights: &dyn WeightSource,
    options: &Options,
    part: &ModelPart,
    progress: &mut dyn FnMut(usize),
) -> Result<Exported, Error> {
    let (context, prefill) = sizes(config, options)?;
    let store = StoredModel::new(config, weights, options.weights, part, progress)?;
    let mut functions = Vec::new();
    let mut records = store.records.clone();
    let mut whole = None;
    for (name, tokens) in [(DECODE, 1), (PREFILL, prefill)] {
        let mil = |source| Error::Mil { function: name, source };
        let made = program::function(config, CallShape { context, tokens }, &store, records, name).map_err(mil)?;
        functions.extend(made.functions.iter().cloned());
        records = made.weights.clone();
        whole = Some(made);
    }
    let Some(program) = whole.map(|program| Program { functions, ..program }) else {
        return Err(Error::Description { reason: "the program has no function".into() });
    };
    let records = (0..program.weights.len() as u32).filter_map(|id| program.weights.bytes(WeightId(id)));
    let weight_bytes = records.map(|bytes| bytes.len() as u64).sum();
    let description = Description::of(&program).map_err(|reason| Error::Description { reason })?;
    let description = description.with_metadata([
        ("ferrane.context", context.to_string()),
        ("ferrane.prefill", prefill.to_string()),
        ("ferrane.vocab", config.vocab.to_string()),
        ("ferrane.weights", options.weights.name().to_string()),
        ("ferrane.config", serde_json::to_string(config).unwrap_or_default()),
    ]);
    let layers = part.layers.clone();
    Ok(Exported { program, description, context, prefill, layers, weight_bytes, left_out: Vec::new() })
}

/// The context and the window of a prompt.
fn sizes(config: &Config, options: &Options) -> Result<(usize, usize), Error> {
    let most = options.context.unwrap_or(config.max_seq.min(CONTEXT));
    let refuse = |option, value, reason: String| Err(Error::Option { option, value, reason });
    if most < 2 || most > config.max_seq.min(MAX_POSITIONS) {
        let reason = format!("must be from 2 to the model's {} positions", config.max_seq);
        return refuse("context", most, reason);
    }
    let prefill = options.prefill.unwrap_or(WINDOW.min(1 << most.ilog2()));
    if prefill < 2 || prefill > most {
        return refuse("prefill", prefill, format!("must be from 2 to the {most} positions of the context"));
    }
    match most % prefill {
        0 => Ok((most, prefill)),
        rest if options.context.is_none() => Ok((most - rest, prefill)),
        _ => refuse("context", most, format!("must be a multiple of the window of {prefill} tokens")),
    }
}
