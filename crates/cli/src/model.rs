//! Models and devices named on the command line.

use std::path::Path;

use ferrane::llm::config;
use ferrane::llm::grammar::{Constraint, Grammar};
use ferrane::llm::model::Model;

use crate::args::{
    CompanionArgs, ContextPolicy, GrammarArgs, LoraArg, PipelineArg, Residual, WeightsForm, WeightsType,
};
use crate::error::{Error, Result};
use crate::files;
use ferrane::llm::decode::{self, quantize::WeightType};
use ferrane::llm::layout;
use ferrane::llm::lora::Adapter;
use ferrane::llm::speculate::{self, Draft, DraftStats};
use ferrane::{OpenError, REFERENCE};

/// Opens the device `name`; `None` for the reference.
pub fn device(name: &str) -> Result<Option<ferrane::Device>> {
    ferrane::open_or_reference(name).map_err(|error| match error {
        OpenError::Device(error) => error.into(),
        OpenError::Options(_) => {
            Error::new(format!("--device {name}: `{REFERENCE}` has no options; write --device {REFERENCE}"))
        }
        error => Error::new(error.to_string()),
    })
}

/// Opens a model, with `tokenizer` if given, otherwise with the one next to it, if any.
pub fn open(checkpoint: &Path, tokenizer: Option<&Path>) -> Result<Model> {
    Ok(match tokenizer {
        Some(tokenizer) => Model::open_with_tokenizer(checkpoint, tokenizer)?,
        None => Model::open(checkpoint)?,
    })
}

/// The grammar of a text that has not begun, if one is given.
pub fn constraint(model: &Model, args: &GrammarArgs) -> Result<Option<Constraint>> {
    let text = |path: &Path| -> Result<String> {
        String::from_utf8(files::read_text(path)?).map_err(|e| files::failed(path, e))
    };
    let (grammar, path) = match (&args.json_schema, &args.grammar, &args.regex) {
        (Some(path), ..) => {
            let schema = serde_json::from_str(&text(path)?).map_err(|e| files::failed(path, e))?;
            (Grammar::JsonSchema(schema), path.as_path())
        }
        (_, Some(path), _) => (Grammar::Lark(text(path)?), path.as_path()),
        (.., Some(regex)) => (Grammar::Regex(regex.clone()), Path::new("--regex")),
        (None, None, None) => return Ok(None),
    };
    let constraint = model.grammar_tokens()?.compile(&grammar);
    constraint.map(Some).map_err(|e| files::failed(path, e))
}

/// Opens a model as [`open`] does, with the adapter of `--lora`.
pub fn open_adapted(checkpoint: &Path, tokenizer: Option<&Path>, args: &LoraArg) -> Result<Model> {
    let model = open(checkpoint, tokenizer)?;
    match &args.lora {
        Some(text) => {
            let adapter = adapter(text, &model)?;
            Ok(model.with_adapter(adapter)?)
        }
        None => Ok(model),
    }
}

/// Opens the adapter of `DIR[:SCALE]`. A folder whose name has a colon needs no scale.
fn adapter(text: &str, model: &Model) -> Result<Adapter> {
    let scaled = text.rsplit_once(':').filter(|_| !Path::new(text).exists());
    let (folder, scale) = match scaled {
        Some((folder, scale)) => {
            let number = scale.parse::<f32>().ok().filter(|scale| scale.is_finite());
            let bad = || Error::new(format!("--lora {text}: `{scale}` is not a number; write DIR:SCALE"));
            (folder, number.ok_or_else(bad)?)
        }
        None => (text, 1.0),
    };
    Ok(Adapter::open(folder, &model.config)?.scaled(scale))
}

/// Opens the draft model of a model, if one is wanted.
pub fn open_draft(args: &CompanionArgs, model: &Model) -> Result<Option<Model>> {
    let Some(path) = &args.draft else { return Ok(None) };
    if args.draft_tokens == 0 {
        return Err(Error::new("--draft-tokens 0 proposes nothing; give 1 or more, or leave --draft out"));
    }
    let draft = open(path, None)?;
    speculate::fits(&draft, model)?;
    Ok(Some(draft))
}

/// The draft, computed as the model is.
pub fn draft<'a>(
    model: Option<&'a Model>,
    device: Option<&ferrane::Device>,
    options: decode::Options,
    args: &CompanionArgs,
) -> Result<Option<Draft<'a>>> {
    let Some(model) = model else { return Ok(None) };
    // The draft may always drop the beginning of a text: what it proposes is only a proposal.
    let options = decode::Options { policy: decode::ContextPolicy::Shift, ..options };
    Ok(Some(Draft::new(model.next_logits(device, options)?, args.draft_tokens)))
}

/// What a draft was good for, for a person.
pub fn draft_text(stats: DraftStats) -> String {
    let DraftStats { accepted, proposed, .. } = stats;
    format!("{accepted} of {proposed} proposals of the draft accepted ({:.0} %)", 100.0 * stats.rate().unwrap_or(0.0))
}

/// What a draft was good for, as JSON.
pub fn draft_json(stats: DraftStats) -> serde_json::Value {
    let DraftStats { rounds, proposed, accepted } = stats;
    serde_json::json!({"rounds": rounds, "proposed": proposed, "accepted": accepted, "rate": stats.rate()})
}

/// Checks that a context holds a token.
pub fn context(context: Option<usize>) -> Result<Option<usize>> {
    match context {
        Some(0) => Err(Error::new("--context 0 holds no token; give 1 or more")),
        context => Ok(context),
    }
}

/// Checks that a window has at least one token and at most as many as a model may have positions.
pub fn window(seq: usize) -> Result<()> {
    match seq {
        0 => Err(Error::new("--seq 0 is not a window; give 1 or more")),
        1..=config::MAX_POSITIONS => Ok(()),
        _ => Err(Error::new(format!("--seq {seq}: at most {}", config::MAX_POSITIONS))),
    }
}

impl From<Residual> for layout::Residual {
    fn from(residual: Residual) -> layout::Residual {
        match residual {
            Residual::Fp32 => layout::Residual::Fp32,
            Residual::Fp16 => layout::Residual::Fp16,
        }
    }
}

impl From<WeightsForm> for layout::WeightForm {
    fn from(form: WeightsForm) -> layout::WeightForm {
        match form {
            WeightsForm::Packed => layout::WeightForm::Packed,
            WeightsForm::Inputs => layout::WeightForm::Inputs,
        }
    }
}

impl From<ContextPolicy> for decode::ContextPolicy {
    fn from(policy: ContextPolicy) -> decode::ContextPolicy {
        match policy {
            ContextPolicy::Shift => decode::ContextPolicy::Shift,
            ContextPolicy::Sinks => decode::ContextPolicy::Sinks,
            ContextPolicy::Error => decode::ContextPolicy::Error,
        }
    }
}

impl From<PipelineArg> for layout::PipelineKind {
    fn from(pipeline: PipelineArg) -> layout::PipelineKind {
        match pipeline {
            PipelineArg::Dynamic => layout::PipelineKind::Dynamic,
            PipelineArg::Static => layout::PipelineKind::Static,
            PipelineArg::StaticExtras => layout::PipelineKind::StaticExtras,
            PipelineArg::Fused => layout::PipelineKind::Fused,
        }
    }
}

impl From<WeightsType> for WeightType {
    fn from(weights: WeightsType) -> WeightType {
        match weights {
            WeightsType::Fp16 => WeightType::Fp16,
            WeightsType::Int8 => WeightType::Int8,
            WeightsType::Int4 => WeightType::Int4,
        }
    }
}

/// This program as the user called it, for commands that the user can copy.
pub fn program() -> String {
    crate::started_by().iter().map(|word| crate::out::quoted(word)).collect::<Vec<_>>().join(" ")
}
