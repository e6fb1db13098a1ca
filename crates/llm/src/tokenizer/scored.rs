//! Vocabularies that merge by scores, in the forms of other programs.
//!
//! `tokenizer.json` has merges instead of scores: the pair that makes the piece with the highest
//! score comes first. Both orders agree unless pieces share a score. Such pieces merge by their
//! ids in a `tokenizer.json`, and from the left otherwise, which is said. GGUF files keep the
//! scores.
//!
//! Spaces are spelled `▁`, as SentencePiece does, because the readers of both forms expect it. A
//! text that has this character itself is read as one with spaces.

use std::collections::HashMap;

use ferrane_gguf::MetadataValue;
use serde_json::{Map, Value, json};

use super::sentencepiece::{BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED};
use super::{Error, HfTokenizer, padding};

/// The pieces of a vocabulary as SentencePiece describes them.
#[derive(Debug)]
pub(super) struct Scored {
    pub(super) names: Vec<String>,
    pub(super) scores: Vec<f32>,
    /// The types of SentencePiece.
    pub(super) kinds: Vec<i32>,
    /// Whether a space is put in front of a text.
    pub(super) prefix: bool,
    /// Whether spaces at both ends are removed, and others joined.
    pub(super) joins_spaces: bool,
    /// The rules of a normalizer; empty if there are none.
    pub(super) charsmap: Vec<u8>,
}

/// The ids that begin and end a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextEnds<'a> {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// The ids that precede a text.
    pub(super) begin: &'a [u32],
}

/// The pairs that merge, in the order of the merges.
struct RankedPairs {
    pairs: Vec<(u32, u32)>,
    /// A piece that shares its score with another one, if any.
    shared: Option<usize>,
}

fn refuse(reason: impl Into<String>) -> Error {
    Error::Format(reason.into())
}

impl Scored {
    /// Checks what every form needs.
    pub(super) fn check(self) -> Result<Scored, Error> {
        let mut ids = HashMap::with_capacity(self.names.len());
        for (id, name) in self.names.iter().enumerate() {
            if name.is_empty() {
                return Err(refuse(format!("piece {id} is empty")));
            }
            if let Some(first) = ids.insert(name.as_str(), id) {
                return Err(refuse(format!("the pieces {first} and {id} are both `{}`", name.escape_debug())));
            }
        }
        if let Some(id) = self.scores.iter().position(|score| !score.is_finite()) {
            return Err(refuse(format!("piece {id} has the score {}", self.scores[id])));
        }
        Ok(self)
    }

    fn has(&self, kind: i32) -> bool {
        self.kinds.contains(&kind)
    }

    fn merges(&self) -> Result<RankedPairs, Error> {
        let normal = |id: usize| self.kinds[id] == NORMAL;
        let ids: HashMap<&str, u32> = self
            .names
            .iter()
            .enumerate()
            .filter(|(id, _)| normal(*id))
            .map(|(id, n)| (n.as_str(), id as u32))
            .collect();
        let mut order: Vec<usize> = (0..self.names.len()).filter(|id| normal(*id)).collect();
        order.sort_by(|a, b| self.scores[*b].total_cmp(&self.scores[*a]).then(a.cmp(b)));
        let (mut pairs, mut last, mut shared) = (Vec::new(), None, None);
        for id in order {
            let name = self.names[id].as_str();
            if let Some(c) = name.chars().find(|c| !ids.contains_key(c.encode_utf8(&mut [0; 4]) as &str)) {
                return Err(refuse(format!("the character `{}` of a piece is no piece", c.escape_debug())));
            }
            let cuts = name.char_indices().skip(1).map(|(cut, _)| cut);
            let split = |cut: usize| Some((*ids.get(&name[..cut])?, *ids.get(&name[cut..])?));
            let mut own: Vec<(u32, u32)> = cuts.filter_map(split).collect();
            if own.is_empty() {
                continue;
            }
            if last.replace(self.scores[id]) == Some(self.scores[id]) {
                shared = shared.or(Some(id));
            }
            own.sort_unstable();
            pairs.extend(own);
        }
        Ok(RankedPairs { pairs, shared })
    }

    /// The files of Hugging Face.
    pub(super) fn to_hf(&self, ends: TextEnds<'_>) -> Result<HfTokenizer, Error> {
        if self.has(UNUSED) {
            return Err(refuse("the vocabulary has unused pieces, which a BPE of Hugging Face cannot skip"));
        }
        if !self.charsmap.is_empty() || self.joins_spaces {
            return Err(refuse("the vocabulary normalizes text, which is not translated"));
        }
        if self.has(USER_DEFINED) && self.prefix {
            let reason = "user-defined pieces together with a space in front of the text are not translated";
            return Err(refuse(reason));
        }
        let RankedPairs { pairs, shared } = self.merges()?;
        let name = |id: u32| self.names.get(id as usize).map(String::as_str);
        let pair =
            |(left, right): &(u32, u32)| format!("{} {}", self.names[*left as usize], self.names[*right as usize]);
        let merges: Vec<String> = pairs.iter().map(pair).collect();
        let vocab: Map<String, Value> = self.names.iter().cloned().zip((0..).map(|id: u32| id.into())).collect();
        let added = |(id, kind): (usize, &i32)| {
            let special = matches!(*kind, CONTROL | UNKNOWN);
            (special || *kind == USER_DEFINED).then(|| {
                json!({"id": id, "content": self.names[id], "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": special})
            })
        };
        let added: Vec<Value> = self.kinds.iter().enumerate().filter_map(added).collect();
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        let normalizer = match self.prefix {
            true => {
                decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
                let prepend = json!({"type": "Prepend", "prepend": SPACE});
                json!({"type": "Sequence", "normalizers": [prepend, replace]})
            }
            false => replace,
        };
        let unknown = self.kinds.iter().position(|kind| *kind == UNKNOWN).and_then(|id| name(id as u32));
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": null, "post_processor": template(ends.begin, name),
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {"type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": self.has(BYTE),
                      "ignore_merges": false, "vocab": vocab, "merges": merges},
        });
        let config = config(ends, name, [("unk_token", unknown)]);
        let note = shared.map(|id| {
            let piece = self.names[id].escape_debug();
            format!("`{piece}` and other pieces have the same score; where several of them fit, the ids may differ")
        });
        Ok(HfTokenizer { json: format!("{tokenizer}\n"), config, note })
    }

    /// The metadata of a GGUF file, for a model of `vocab` ids.
    pub(super) fn to_gguf(&self, vocab: usize) -> Result<Vec<(String, MetadataValue)>, Error> {
        let Some(unknown) = self.kinds.iter().position(|kind| *kind == UNKNOWN) else {
            return Err(refuse("the vocabulary has no unknown piece"));
        };
        let (mut names, mut scores, mut kinds) = (self.names.clone(), self.scores.clone(), self.kinds.clone());
        names.extend(padding(names.len(), vocab));
        scores.resize(names.len(), -1000.0);
        kinds.resize(names.len(), UNUSED);
        let mut list = vec![
            key("model", "llama"),
            key("pre", "default"),
            key("tokens", names),
            key("scores", scores),
            key("token_type", kinds),
            key("unknown_token_id", unknown as u32),
            key("add_space_prefix", self.prefix),
            key("remove_extra_whitespaces", self.joins_spaces),
        ];
        if !self.charsmap.is_empty() {
            list.push(key("precompiled_charsmap", self.charsmap.clone()));
        }
        Ok(list)
    }
}

/// An entry below `tokenizer.ggml`.
pub(super) fn key(name: &str, value: impl Into<MetadataValue>) -> (String, MetadataValue) {
    (format!("tokenizer.ggml.{name}"), value.into())
}

/// The post-processor that puts ids in front of a text; null for none.
pub(super) fn template<'a>(begin: &[u32], name: impl Fn(u32) -> Option<&'a str>) -> Value {
    let named: Vec<(u32, &str)> = begin.iter().filter_map(|id| Some((*id, name(*id)?))).collect();
    if named.is_empty() {
        return Value::Null;
    }
    let special = |kind: u32| named.iter().map(move |(_, name)| json!({"SpecialToken": {"id": name, "type_id": kind}}));
    let text = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
    let single: Vec<Value> = special(0).chain([text("A", 0)]).collect();
    let pair: Vec<Value> = single.iter().cloned().chain(special(1)).chain([text("B", 1)]).collect();
    let tokens: Map<String, Value> =
        named.iter().map(|(id, name)| (name.to_string(), json!({"id": name, "ids": [id], "tokens": [name]}))).collect();
    json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
}

/// The fields of a `tokenizer_config.json`.
pub(super) fn config<'a, const N: usize>(
    ends: TextEnds<'_>,
    name: impl Fn(u32) -> Option<&'a str>,
    more: [(&str, Option<&str>); N],
) -> Map<String, Value> {
    let named = [("bos_token", ends.bos.and_then(&name)), ("eos_token", ends.eos.and_then(&name))];
    let mut fields = Map::new();
    fields.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    fields.insert("clean_up_tokenization_spaces".into(), false.into());
    // The class has types of tokens among its outputs, and no model here takes them.
    fields.insert("model_input_names".into(), json!(["input_ids", "attention_mask"]));
    for (field, token) in named.into_iter().chain(more) {
        fields.insert(field.into(), token.into());
    }
    // Without the field, a reader may put the begin piece there.
    if ends.begin.is_empty() {
        fields.insert("add_bos_token".into(), false.into());
    }
    fields
}
