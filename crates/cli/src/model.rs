//! Models, tokenizers and devices named on the command line.

use std::path::Path;

use ferrane::diag::did_you_mean;
use ferrane::llm::config::{self, Config};
use ferrane::llm::tokenizer::Tokenizer;
use ferrane::llm::weights::{self, Weights};
use ferrane::train::data::Compaction;
use ferrane::train::{checkpoint, run};

use crate::args::{Residual, WeightsForm, WeightsType};
use crate::error::{Error, Result};
use ferrane::llm::decode::quantize::WeightType;
use ferrane::llm::layout;

/// Name of the device option that means no device at all.
pub const REFERENCE: &str = "reference";

/// Opens a device; `None` for the reference.
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

/// The configuration of a preset, or of a folder with a Hugging Face config.json, or of such a
/// file.
pub fn config(name: &str) -> Result<Config> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(config::read(path)?);
    }
    if path.is_dir() && !config::PRESETS.contains(&name) {
        let file = path.join("config.json");
        if !file.is_file() {
            let presets = config::PRESETS.join(", ");
            return Err(Error::new(format!(
                "--model {name}: the folder has no config.json; give a folder that has one, or a preset ({presets})"
            )));
        }
        return Ok(config::read(&file)?);
    }
    Ok(config::preset(name)?)
}

/// Weights with their configuration: a run's folder, a checkpoint's, or any format that the library
/// reads.
pub fn load(path: &Path) -> Result<(Config, Weights)> {
    if !path.exists() {
        return Err(Error::new(format!("{}: no such checkpoint; `ferrane train` makes one", path.display())));
    }
    let own = path.is_dir() && !path.join("config.json").is_file();
    let file = match own {
        true => match checkpoint::find_model(path) {
            // A folder of another kind may still have weights.
            Err(checkpoint::Error::None(_)) if has_weights(path) => path.to_path_buf(),
            Err(checkpoint::Error::None(_)) => {
                return Err(Error::new(format!(
                    "{}: no checkpoint found here; give a run's folder, a llama2.c .bin, a .safetensors, or a Hugging Face folder",
                    path.display()
                )));
            }
            found => found?,
        },
        false => path.to_path_buf(),
    };
    Ok(weights::load(&file, None)?)
}

/// The ids that a checkpoint's loss ran over, if they were not all.
pub fn vocabulary(path: &Path) -> Option<Compaction> {
    checkpoint::find_model(path).ok().and_then(|file| checkpoint::vocabulary(&file))
}

fn has_weights(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|e| e == "safetensors"))
}

/// The tokenizer: the one named, else the one that lies with the checkpoint, if there is one.
pub fn tokenizer(named: Option<&Path>, checkpoint: &Path) -> Result<Option<Tokenizer>> {
    if let Some(path) = named {
        return Ok(Some(Tokenizer::open(path)?));
    }
    let folder = if checkpoint.is_dir() { Some(checkpoint) } else { checkpoint.parent() };
    // A run's tokenizer lies in the run's folder, above its checkpoints. Above other folders lies
    // what has nothing to do with them.
    let of_run = |f: &&Path| f.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-"));
    let above = folder.filter(of_run).and_then(Path::parent);
    for folder in [folder, above].into_iter().flatten() {
        for name in ["tokenizer.json", "tokenizer.bin", "tokenizer.model", "vocab.json"] {
            let path = folder.join(name);
            if path.is_file() {
                let path = if name == "vocab.json" { folder.to_path_buf() } else { path };
                return Ok(Some(Tokenizer::open(path)?));
            }
        }
    }
    Ok(None)
}

/// Refuses a window of no tokens, or of more than any model has positions.
pub fn window(seq: usize) -> Result<()> {
    match seq {
        0 => Err(Error::new("--seq 0 is no window; give 1 or more")),
        1..=config::MAX_POSITIONS => Ok(()),
        _ => Err(Error::new(format!("--seq {seq}: at most {}", config::MAX_POSITIONS))),
    }
}

/// Refuses a tokenizer whose ids the model does not have.
pub fn fits(tokenizer: &Tokenizer, config: &Config) -> Result<()> {
    if tokenizer.vocab_size() <= config.vocab {
        return Ok(());
    }
    let (ids, vocab) = (tokenizer.vocab_size(), config.vocab);
    Err(Error::new(format!("the tokenizer has {ids} ids, the model only {vocab}; use the model's own tokenizer")))
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
        }
    }
}

/// This program as it was called, so that what is printed can be typed.
pub fn program() -> String {
    run::quoted(&std::env::args().next().unwrap_or_else(|| "ferrane".into()))
}
