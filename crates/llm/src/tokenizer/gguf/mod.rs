//! Vocabularies in the metadata of GGUF files.
//!
//! `tokenizer.ggml.model` names the kind: `llama` is SentencePiece's BPE by scores, `gpt2`
//! byte-level BPE, whose pre-tokenizer `tokenizer.ggml.pre` names. The pieces, scores and types
//! have the numbers that SentencePiece gives them, so the first kind is read as the `.model` file
//! that the metadata describe.

use ferrane_gguf::{Array, File, MetadataValue};
use prost::Message as _;

use super::byte_level::{Added, ByteLevel};
use super::sentencepiece::{CONTROL, ModelProto, NORMAL, NormalizerSpec, Piece, TrainerSpec, UNKNOWN, USER_DEFINED};
use super::{Error, Options, PreTokenizer, Tokenizer};

#[cfg(test)]
mod tests;

const MODEL: &str = "tokenizer.ggml.model";

/// The names of pre-tokenizers that are known, as llama.cpp spells them.
const PRE_TOKENIZERS: [(&str, PreTokenizer); 9] = [
    ("gpt-2", PreTokenizer::Gpt2),
    ("phi-2", PreTokenizer::Gpt2),
    ("qwen2", PreTokenizer::Qwen2),
    ("deepseek-r1-qwen", PreTokenizer::Qwen2),
    ("llama-bpe", PreTokenizer::Llama3),
    ("llama3", PreTokenizer::Llama3),
    ("llama-v3", PreTokenizer::Llama3),
    ("smollm", PreTokenizer::SmolLm),
    ("starcoder", PreTokenizer::SmolLm),
];

/// Whether a file has a vocabulary.
pub(super) fn has_vocabulary(file: &File) -> bool {
    file.get(MODEL).is_some()
}

/// The vocabulary of a file.
pub(super) fn read(file: &File, options: &Options) -> Result<Tokenizer, Error> {
    let keys = Keys { file };
    let tokens = keys.strings("tokens")?.ok_or_else(|| bad("tokenizer.ggml.tokens is missing"))?;
    let kinds = keys.kinds(tokens.len())?;
    let mut tokenizer = match file.get(MODEL).and_then(MetadataValue::as_str) {
        Some("llama") => sentencepiece(&keys, tokens, kinds)?,
        Some("gpt2") => byte_level(&keys, tokens, kinds, options)?,
        Some(other) => {
            let other: String = other.chars().take(80).collect();
            return Err(bad(format!("{MODEL} `{other}` is not supported; supported: llama, gpt2")));
        }
        None => return Err(bad(format!("{MODEL} is missing or not a string"))),
    };
    let adds = keys.flag("add_bos_token")? != Some(false);
    tokenizer.begin = tokenizer.bos.filter(|_| adds).into_iter().collect();
    // The end piece of the metadata replaces the usual one.
    let ends = [tokenizer.eos, keys.id("eot_token_id", tokens.len())?, keys.id("eom_token_id", tokens.len())?];
    tokenizer.ends.clear();
    for end in ends.into_iter().flatten() {
        if !tokenizer.ends.contains(&end) {
            tokenizer.ends.push(end);
        }
    }
    Ok(tokenizer)
}

fn bad(what: impl std::fmt::Display) -> Error {
    Error::Format(format!("GGUF tokenizer: {what}"))
}

/// As llama.cpp does, pieces without a type are normal ones, but for the unknown, begin and end
/// pieces, whose ids have defaults.
fn sentencepiece(keys: &Keys<'_>, tokens: &[String], kinds: Option<Vec<i32>>) -> Result<Tokenizer, Error> {
    let count = tokens.len();
    let or = |id: Option<u32>, default: u32| id.or(Some(default)).filter(|&id| (id as usize) < count);
    let unknown = or(keys.id("unknown_token_id", count)?, 0);
    let (bos, eos) = (or(keys.id("bos_token_id", count)?, 1), or(keys.id("eos_token_id", count)?, 2));
    let typed = kinds.is_some();
    let mut kinds = kinds.unwrap_or_else(|| vec![NORMAL; count]);
    if !kinds.contains(&UNKNOWN) {
        unknown.into_iter().for_each(|id| kinds[id as usize] = UNKNOWN);
    }
    if !typed {
        [bos, eos].into_iter().flatten().filter(|&id| Some(id) != unknown).for_each(|id| kinds[id as usize] = CONTROL);
    }
    let scores = match keys.get("scores") {
        None => vec![0.0; count],
        Some(value) => match value.as_array().and_then(Array::f32s) {
            Some(scores) if scores.len() == count => scores.to_vec(),
            _ => return Err(bad(format!("tokenizer.ggml.scores: {value} for {count} tokens"))),
        },
    };
    let pieces = tokens.iter().zip(scores).zip(&kinds);
    let piece = |((piece, score), kind): ((&String, f32), &i32)| Piece {
        piece: Some(piece.clone()),
        score: Some(score),
        kind: Some(*kind),
    };
    let charsmap = match keys.get("precompiled_charsmap").and_then(MetadataValue::as_array) {
        None => None,
        Some(Array::U8(bytes)) => Some(bytes.clone()),
        Some(Array::I8(bytes)) => Some(bytes.iter().map(|&b| b as u8).collect()),
        Some(_) => return Err(bad("tokenizer.ggml.precompiled_charsmap is not an array of bytes")),
    };
    let model = ModelProto {
        pieces: pieces.map(piece).collect(),
        trainer: Some(TrainerSpec {
            model_type: Some(2),
            byte_fallback: Some(kinds.contains(&super::sentencepiece::BYTE)),
            ..TrainerSpec::default()
        }),
        normalizer: Some(NormalizerSpec {
            precompiled_charsmap: charsmap,
            add_dummy_prefix: Some(keys.flag("add_space_prefix")?.unwrap_or(true)),
            remove_extra_whitespaces: Some(keys.flag("remove_extra_whitespaces")?.unwrap_or(false)),
            escape_whitespaces: Some(true),
        }),
    };
    let mut tokenizer = Tokenizer::from_sentencepiece(&model.encode_to_vec())?;
    (tokenizer.bos, tokenizer.eos) = (bos, eos);
    Ok(tokenizer)
}

fn byte_level(
    keys: &Keys<'_>,
    tokens: &[String],
    kinds: Option<Vec<i32>>,
    options: &Options,
) -> Result<Tokenizer, Error> {
    let named = match keys.get("pre") {
        None => None,
        Some(value) => {
            let name = value.as_str().unwrap_or_default();
            let known = PRE_TOKENIZERS.iter().find(|(known, _)| *known == name).map(|(_, way)| *way);
            if known.is_none() && options.pre_tokenizer.is_none() {
                let names: Vec<&str> = PRE_TOKENIZERS.iter().map(|(name, _)| *name).collect();
                let name: String = name.chars().take(80).collect();
                let reason = format!("`{name}` is not supported; supported: {}", names.join(", "));
                return Err(bad(format!("tokenizer.ggml.pre {reason}")));
            }
            known
        }
    };
    let merges = keys.strings("merges")?.ok_or_else(|| bad("tokenizer.ggml.merges is missing"))?;
    let count = tokens.len();
    let (bos, eos) = (keys.id("bos_token_id", count)?, keys.id("eos_token_id", count)?);
    let name = |id: u32| tokens[id as usize].clone();
    let added = |kind: i32| -> Vec<String> {
        let of_kind = tokens.iter().zip(kinds.iter().flatten()).filter(|(_, k)| **k == kind);
        of_kind.map(|(token, _)| token.clone()).collect()
    };
    let added = Added {
        special: added(CONTROL),
        plain: added(USER_DEFINED),
        bos: bos.map(|id| Some(name(id))),
        eos: eos.map(|id| Some(name(id))),
    };
    let kind = ByteLevel::from_pieces(tokens, merges, options.pre_tokenizer.or(named), added)?;
    Ok(Tokenizer::from_byte_level(kind))
}

/// The metadata below `tokenizer.ggml`.
struct Keys<'a> {
    file: &'a File,
}

impl<'a> Keys<'a> {
    fn get(&self, key: &str) -> Option<&'a MetadataValue> {
        self.file.get(&format!("tokenizer.ggml.{key}"))
    }

    fn strings(&self, key: &str) -> Result<Option<&'a [String]>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(Array::strings);
        list.map(Some).ok_or_else(|| bad(format!("tokenizer.ggml.{key}: {value} is not an array of strings")))
    }

    /// The type of each token.
    fn kinds(&self, count: usize) -> Result<Option<Vec<i32>>, Error> {
        let Some(value) = self.get("token_type") else { return Ok(None) };
        let list = value.as_array().and_then(Array::integers).filter(|list| list.len() == count);
        let list = list.ok_or_else(|| bad(format!("tokenizer.ggml.token_type: {value} for {count} tokens")))?;
        let kind = |&kind: &u64| i32::try_from(kind).map_err(|_| bad(format!("the token type {kind}")));
        list.iter().map(kind).collect::<Result<_, _>>().map(Some)
    }

    fn id(&self, key: &str, count: usize) -> Result<Option<u32>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let id = value.as_u64().filter(|&id| id < count as u64).and_then(|id| u32::try_from(id).ok());
        id.map(Some).ok_or_else(|| bad(format!("tokenizer.ggml.{key}: {value} is not the id of one of {count} tokens")))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| bad(format!("tokenizer.ggml.{key}: {value} is neither true nor false")))
    }
}
