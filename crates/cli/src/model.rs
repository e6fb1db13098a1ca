//! Models, tokenizers and devices named on the command line.

use std::path::{Path, PathBuf};

use ferrane::llm::config::{self, Config};
use ferrane::llm::tokenizer::Tokenizer;
use ferrane::llm::weights::{self, Weights};
use ferrane::train::checkpoint;

use crate::args::{Residual, WeightsForm};
use crate::error::{Error, Result};
use ferrane::llm::layout;

/// Name of the device option that means no device at all.
pub const REFERENCE: &str = "reference";

/// Opens a device; `None` for the reference.
pub fn device(name: &str) -> Result<Option<ferrane::Device>> {
    if name == REFERENCE {
        return Ok(None);
    }
    ferrane::open(name).map(Some).map_err(|e| {
        let near = ferrane::diag::nearest(name, [REFERENCE]);
        match near {
            Some(near) => Error::new(format!("unknown device `{name}`; did you mean `{near}`?")),
            None => e.into(),
        }
    })
}

/// The configuration of a preset or of a folder with a Hugging Face config.json.
pub fn config(name: &str) -> Result<Config> {
    let path = Path::new(name);
    if path.is_dir() { Ok(config::read(&path.join("config.json"))?) } else { Ok(config::preset(name)?) }
}

/// Weights with their configuration: a run's folder, a checkpoint's, or any format that the library reads.
pub fn load(path: &Path) -> Result<(Config, Weights)> {
    if !path.exists() {
        return Err(Error::new(format!("{}: no such checkpoint; `ferrane train` makes one", path.display())));
    }
    let hugging_face = path.join("config.json").is_file();
    let file = if path.is_dir() && !hugging_face { checkpoint::find_model(path)? } else { path.to_path_buf() };
    Ok(weights::load(&file, None)?)
}

/// The tokenizer: the one named, else the one that lies with the checkpoint.
pub fn tokenizer(named: Option<&Path>, checkpoint: &Path) -> Result<Tokenizer> {
    if let Some(path) = named {
        return Ok(Tokenizer::open(path)?);
    }
    let folder = if checkpoint.is_dir() { Some(checkpoint) } else { checkpoint.parent() };
    // A run's tokenizer lies in the run's folder, above its checkpoints.
    for folder in [folder, folder.and_then(Path::parent)].into_iter().flatten() {
        for name in ["tokenizer.json", "tokenizer.bin", "tokenizer.model", "vocab.json"] {
            let path = folder.join(name);
            if path.is_file() {
                let path = if name == "vocab.json" { folder.to_path_buf() } else { path };
                return Ok(Tokenizer::open(path)?);
            }
        }
    }
    Err(Error::new(format!("no tokenizer lies with {}; name one with --tokenizer", checkpoint.display())))
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

/// A path as the user would type it.
pub fn shown(path: &Path) -> String {
    PathBuf::from(path).display().to_string()
}
