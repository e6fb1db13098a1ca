//! Models and devices named on the command line.

use std::path::Path;

use ferrane::diag::did_you_mean;
use ferrane::llm::config;
use ferrane::llm::grammar::{Constraint, Grammar};
use ferrane::llm::model::Model;

use crate::args::{GrammarArgs, Residual, WeightsForm, WeightsType};
use crate::error::{Error, Result};
use crate::files;
use ferrane::llm::decode::quantize::WeightType;
use ferrane::llm::layout;

/// Value of `--device` that means no device.
pub const REFERENCE: &str = "reference";

/// Opens the device `name`; `None` for the reference.
pub fn device(name: &str) -> Result<Option<ferrane::Device>> {
    if name == REFERENCE {
        return Ok(None);
    }
    let device = name.split('?').next().unwrap_or(name);
    let known: Vec<&str> = ferrane::devices().iter().map(|d| d.name).chain([REFERENCE]).collect();
    if device == REFERENCE {
        return Err(Error::new(format!("--device {name}: `{REFERENCE}` has no options; write --device {REFERENCE}")));
    }
    if !known.contains(&device) {
        let near = did_you_mean(device, known.iter().copied());
        return Err(Error::new(format!("unknown device `{device}`{near} (known: {})", known.join(", "))));
    }
    Ok(Some(ferrane::open(name)?))
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
    crate::out::quoted(&std::env::args().next().unwrap_or_else(|| "ferrane".into()))
}
