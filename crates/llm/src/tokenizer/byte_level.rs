//! Byte-level BPE and `tokenizer.json`, encoded by the crate `tokenizers`.
//!
//! Encoding needs a vocabulary, merges, and a rule that splits text into words. `tokenizer.json`
//! has all three; `vocab.json` with `merges.txt` has the first two, and [`PreTokenizer`] determines
//! the third. Decoding is implemented here: the pieces are converted to bytes when the file is
//! opened.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ferrane_gguf::MetadataValue;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel as Bytes;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::{AddedToken, SplitDelimiterBehavior};

use super::merge::LONGEST_PIECE;
use super::scored::{self, TextEnds};
use super::sentencepiece::{CONTROL, NORMAL, UNUSED, USER_DEFINED};
use super::{Error, HfTokenizer, Options, Pieces, byte_piece, load, padding};

/// How byte-level BPE splits text into words before it merges.
///
/// `vocab.json` and `merges.txt` do not specify it. If neither [`Options`] nor the
/// `tokenizer_class` of a `tokenizer_config.json` does, it is inferred from the vocabulary: words
/// of Qwen2 hold at most one digit and may put a punctuation mark before letters; those of GPT-2
/// hold runs of digits and never mix marks and letters. A vocabulary with such a mixed piece and
/// without two adjacent digits is treated as Qwen2's, every other one as GPT-2's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreTokenizer {
    /// GPT-2: contractions, letters, digits, other marks, each with one leading space.
    Gpt2,
    /// Qwen2, 2.5 and 3: text in NFC, single digits, marks before letters, line ends after marks.
    Qwen2,
    /// Llama 3: as Qwen2, but up to three digits and no NFC; a word that is a piece is not merged.
    Llama3,
    /// SmolLM and StarCoder: single digits, then as GPT-2.
    SmolLm,
}

const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const BEGIN: [&str; 3] = ["<s>", "<|begin_of_text|>", "<|endoftext|>"];
const END: [&str; 3] = ["</s>", "<|end_of_text|>", "<|endoftext|>"];

#[derive(Debug, Clone)]
pub(super) struct ByteLevel {
    inner: tokenizers::Tokenizer,
    spelling: Spelling,
    strips_space: bool,
    names: Vec<Option<String>>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: Option<bool>,
    begin: Vec<u32>,
}

/// How the pieces of a vocabulary encode bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// One printable character for every byte, as GPT-2 does.
    Bytes,
    /// `▁` for a space and `<0xNN>` for bytes, as SentencePiece does.
    Spaces,
    /// Text as it is.
    Plain,
}

pub(super) fn sniff(path: &Path, bytes: &[u8]) -> bool {
    bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{') || is_merges(path)
}

fn is_merges(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("merges.txt"))
}

/// The path of the file `name` in the folder of `path`, with the same prefix.
pub(super) fn sibling(path: &Path, name: &str) -> PathBuf {
    let own = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let ends = ["vocab.json", "merges.txt", "tokenizer.json"];
    let prefix = ends.iter().find_map(|end| own.strip_suffix(end)).unwrap_or("");
    path.with_file_name(format!("{prefix}{name}"))
}

/// The fields of a `tokenizer_config.json` that are used.
#[derive(Default)]
struct Config {
    added: Vec<(u32, AddedToken)>,
    /// The begin piece. Outer `None`: the file does not have the field.
    bos: Option<Option<String>>,
    eos: Option<Option<String>>,
    pre_tokenizer: Option<PreTokenizer>,
    prefix_space: bool,
    /// Whether a text begins with the begin piece.
    add_bos: Option<bool>,
}

fn bad(what: impl std::fmt::Display) -> Error {
    Error::Format(format!("tokenizer: {what}"))
}

fn parse(bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map_err(bad)
}

impl Config {
    fn open(vocabulary: &Path, options: &Options) -> Result<Config, Error> {
        let path = match &options.config {
            Some(path) => path.clone(),
            None => sibling(vocabulary, "tokenizer_config.json"),
        };
        if options.config.is_none() && !path.is_file() {
            return Ok(Config::default());
        }
        Config::read(&load(&path)?).map_err(|e| Error::File { path, message: e.to_string() })
    }

    fn read(bytes: &[u8]) -> Result<Config, Error> {
        let value = parse(bytes)?;
        let named =
            |key: &str| value.get(key).map(|v| v.as_str().or_else(|| v.get("content")?.as_str()).map(str::to_string));
        let mut added = Vec::new();
        if let Some(tokens) = value.get("added_tokens_decoder").and_then(Value::as_object) {
            for (id, token) in tokens {
                let id = id.parse().map_err(|_| bad(format!("added token id `{id}` is not a number")))?;
                let content = token.get("content").and_then(Value::as_str).filter(|c| !c.is_empty());
                let content = content.ok_or_else(|| bad(format!("added token {id} has no content")))?;
                let flag = |key| token.get(key).and_then(Value::as_bool).unwrap_or(false);
                let token = AddedToken::from(content, flag("special"))
                    .lstrip(flag("lstrip"))
                    .rstrip(flag("rstrip"))
                    .single_word(flag("single_word"))
                    .normalized(flag("normalized"));
                added.push((id, token));
            }
        }
        added.sort_by_key(|(id, _)| *id);
        let class = value.get("tokenizer_class").and_then(Value::as_str).unwrap_or("");
        let pre_tokenizer = match class {
            c if c.starts_with("Qwen2") => Some(PreTokenizer::Qwen2),
            c if c.starts_with("GPT2") => Some(PreTokenizer::Gpt2),
            _ => None,
        };
        let prefix_space = value.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(false);
        let add_bos = value.get("add_bos_token").and_then(Value::as_bool);
        Ok(Config { added, bos: named("bos_token"), eos: named("eos_token"), pre_tokenizer, prefix_space, add_bos })
    }
}

/// The pieces of a vocabulary that are recognized in text, and those that begin and end one.
pub(super) struct Added {
    /// Pieces without a text, as `<|im_end|>`.
    pub(super) special: Vec<String>,
    /// Pieces that stand for themselves.
    pub(super) plain: Vec<String>,
    /// The begin piece. Outer `None`: one of the usual ones.
    pub(super) bos: Option<Option<String>>,
    /// Likewise the end piece.
    pub(super) eos: Option<Option<String>>,
}

/// An encoder without added tokens.
fn pipeline(
    ids: HashMap<String, u32>,
    merges: Vec<(String, String)>,
    way: PreTokenizer,
    prefix_space: bool,
) -> Result<tokenizers::Tokenizer, Error> {
    let model = BPE::builder().vocab_and_merges(ids.into_iter().collect::<Vocab>(), merges);
    let model = model.ignore_merges(way == PreTokenizer::Llama3).build().map_err(bad)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    let bytes = |splits| Bytes::new(prefix_space, false, splits);
    let by = |pattern: &str| -> Result<Sequence, Error> {
        let pattern = SplitPattern::Regex(pattern.into());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(bad)?;
        Ok(Sequence::new(vec![split.into(), bytes(false).into()]))
    };
    match way {
        PreTokenizer::Gpt2 => inner.with_pre_tokenizer(Some(bytes(true))),
        PreTokenizer::Qwen2 => inner.with_pre_tokenizer(Some(by(QWEN2)?)),
        PreTokenizer::Llama3 => inner.with_pre_tokenizer(Some(by(LLAMA3)?)),
        PreTokenizer::SmolLm => {
            let parts: Vec<PreTokenizerWrapper> = vec![Digits::new(true).into(), bytes(true).into()];
            inner.with_pre_tokenizer(Some(Sequence::new(parts)))
        }
    };
    if way == PreTokenizer::Qwen2 {
        inner.with_normalizer(Some(NFC)).map_err(bad)?;
    }
    inner.with_decoder(Some(Bytes::new(false, false, false)));
    Ok(inner)
}

impl ByteLevel {
    pub(super) fn open(path: &Path, bytes: &[u8], options: &Options) -> Result<ByteLevel, Error> {
        let config = Config::open(path, options)?;
        if is_merges(path) {
            let vocabulary = parse(&load(&sibling(path, "vocab.json"))?)?;
            return ByteLevel::from_merges(&vocabulary, bytes, options, config);
        }
        let value = parse(bytes)?;
        if value.get("model").is_some_and(Value::is_object) {
            ByteLevel::from_json(bytes, &value, config)
        } else {
            let merges = load(&sibling(path, "merges.txt"))?;
            ByteLevel::from_merges(&value, &merges, options, config)
        }
    }

    fn from_merges(vocabulary: &Value, merges: &[u8], options: &Options, config: Config) -> Result<ByteLevel, Error> {
        let object = vocabulary.as_object().ok_or_else(|| bad("the vocabulary is not a JSON object"))?;
        let mut ids: HashMap<String, u32> = HashMap::with_capacity(object.len());
        for (piece, id) in object {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            ids.insert(piece.clone(), id.ok_or_else(|| bad(format!("the id of `{piece}` is not a whole number")))?);
        }
        check_ids(ids.iter().map(|(name, id)| (name.as_str(), *id)), ids.len())?;
        let merges = read_merges(merges, &ids)?;
        let way = options.pre_tokenizer.or(config.pre_tokenizer).unwrap_or_else(|| way_of(ids.keys()));
        let specials: Vec<String> = ids.keys().filter(|name| is_special(name)).cloned().collect();
        let mut inner = pipeline(ids, merges, way, config.prefix_space)?;
        let specials = specials.into_iter().map(|name| AddedToken::from(name, true));
        inner.add_special_tokens(specials).map_err(bad)?;
        ByteLevel::finish(inner, Spelling::Bytes, false, config)
    }

    /// A vocabulary whose pieces are listed by id, with its merges, `LEFT RIGHT` each. `way` is
    /// inferred from the pieces if it is `None`.
    pub(super) fn from_pieces(
        pieces: &[String],
        merges: &[String],
        way: Option<PreTokenizer>,
        added: Added,
    ) -> Result<ByteLevel, Error> {
        let mut ids: HashMap<String, u32> = HashMap::with_capacity(pieces.len());
        for (id, piece) in pieces.iter().enumerate() {
            let id = u32::try_from(id).map_err(|_| bad(format!("{} pieces", pieces.len())))?;
            if let Some(first) = ids.insert(piece.clone(), id) {
                return Err(bad(format!("the pieces {first} and {id} are both `{}`", piece.escape_debug())));
            }
        }
        check_ids(ids.iter().map(|(name, id)| (name.as_str(), *id)), ids.len())?;
        let pair = |(at, line): (usize, &String)| merge(line, &ids, || format!("merge {at}"));
        let merges = merges.iter().enumerate().map(pair).collect::<Result<Vec<_>, _>>()?;
        let way = way.unwrap_or_else(|| way_of(ids.keys()));
        let mut inner = pipeline(ids, merges, way, false)?;
        // All at once: each call builds the automaton that finds them in a text.
        let token = |special| move |name: String| AddedToken::from(name, special).normalized(false);
        inner.add_special_tokens(added.special.into_iter().map(token(true))).map_err(bad)?;
        inner.add_tokens(added.plain.into_iter().map(token(false))).map_err(bad)?;
        let config = Config { bos: added.bos, eos: added.eos, ..Config::default() };
        ByteLevel::finish(inner, Spelling::Bytes, false, config)
    }

    fn from_json(bytes: &[u8], value: &Value, config: Config) -> Result<ByteLevel, Error> {
        let model = &value["model"];
        let named = model.get("type").and_then(Value::as_str);
        if named.unwrap_or("BPE") != "BPE" || !model.get("merges").is_some_and(Value::is_array) {
            return Err(bad(format!(
                "the model type `{}` is not supported; the supported one is BPE",
                named.unwrap_or("unknown")
            )));
        }
        let vocabulary = model.get("vocab").and_then(Value::as_object).ok_or_else(|| bad("no model.vocab"))?;
        let ids = vocabulary.iter().map(|(name, id)| {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX);
            (name.as_str(), id)
        });
        check_ids(ids, vocabulary.len())?;
        // Encoding by BPE can fail only if the unknown piece is missing.
        if let Some(unknown) = model.get("unk_token").and_then(Value::as_str)
            && !vocabulary.contains_key(unknown)
        {
            return Err(bad(format!("the unknown token `{unknown}` is not in the vocabulary")));
        }
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(bad)?;
        inner.with_truncation(None).map_err(bad)?;
        inner.with_padding(None);
        let mut parts = Vec::new();
        collect(value.get("decoder").unwrap_or(&Value::Null), &mut parts);
        let has = |name: &str| parts.iter().any(|part| part.get("type").and_then(Value::as_str) == Some(name));
        let spelling = if has("ByteLevel") {
            Spelling::Bytes
        } else if has("ByteFallback") || has("Metaspace") || has("Replace") {
            Spelling::Spaces
        } else {
            Spelling::Plain
        };
        let strips = parts.iter().any(|part| match part.get("type").and_then(Value::as_str) {
            Some("Strip") => part.get("start").and_then(Value::as_u64).unwrap_or(0) > 0,
            Some("Metaspace") => part.get("prepend_scheme").and_then(Value::as_str) != Some("never"),
            _ => false,
        });
        ByteLevel::finish(inner, spelling, strips, config)
    }

    fn finish(
        mut inner: tokenizers::Tokenizer,
        spelling: Spelling,
        strips_space: bool,
        config: Config,
    ) -> Result<ByteLevel, Error> {
        for (id, token) in config.added {
            let content = token.content.clone();
            if token.special {
                inner.add_special_tokens([token]).map_err(bad)?;
            } else {
                inner.add_tokens([token]).map_err(bad)?;
            }
            let found = inner.token_to_id(&content);
            if found != Some(id) {
                return Err(bad(format!(
                    "the configuration gives the added token `{content}` the id {id}, but with this vocabulary it is {}",
                    found.map_or("none".into(), |id| id.to_string())
                )));
            }
        }
        let vocabulary = inner.get_vocab(true);
        let highest = check_ids(vocabulary.iter().map(|(name, id)| (name.as_str(), *id)), vocabulary.len())?;
        let mut names = vec![None; highest as usize + 1];
        for (name, id) in vocabulary {
            if let Some(other) = names[id as usize].replace(name.clone()) {
                return Err(bad(format!("`{other}` and `{name}` both have the id {id}")));
            }
        }
        let known = |list: &[&str]| list.iter().find_map(|name| inner.token_to_id(name));
        let chosen = |said: &Option<Option<String>>, list: &[&str]| match said {
            Some(name) => name.as_deref().and_then(|name| inner.token_to_id(name)),
            None => known(list),
        };
        let (bos, eos) = (chosen(&config.bos, &BEGIN), chosen(&config.eos, &END));
        let begin = match config.add_bos {
            Some(true) => bos.into_iter().collect(),
            Some(false) => vec![],
            None if inner.get_post_processor().is_some() => added_before(&inner),
            None => bos.into_iter().collect(),
        };
        Ok(ByteLevel { inner, spelling, strips_space, names, bos, eos, add_bos: config.add_bos, begin })
    }

    pub(super) fn pieces(&self) -> (Pieces, Option<u32>, Option<u32>) {
        let added = self.inner.get_added_tokens_decoder();
        let bytes_of = byte_alphabet();
        let mut pieces = Pieces::default();
        for (id, name) in self.names.iter().enumerate() {
            let name = name.as_deref().unwrap_or("");
            match (added.get(&(id as u32)), self.spelling) {
                (Some(token), _) if token.special => pieces.push(&[]),
                (Some(_), _) | (None, Spelling::Plain) => pieces.push(name.as_bytes()),
                (None, Spelling::Bytes) => {
                    let mut bytes = Vec::with_capacity(name.len());
                    for c in name.chars() {
                        match bytes_of.get(&c) {
                            Some(byte) => bytes.push(*byte),
                            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                        }
                    }
                    pieces.push(&bytes);
                }
                (None, Spelling::Spaces) => match byte_piece(name.as_bytes()) {
                    Some(byte) => pieces.push(&[byte]),
                    None => pieces.push(name.replace('\u{2581}', " ").as_bytes()),
                },
            }
        }
        (pieces, self.bos, self.eos)
    }

    /// The ids that precede a text.
    pub(super) fn begin(&self) -> &[u32] {
        &self.begin
    }

    /// The names of the special tokens.
    pub(super) fn controls(&self) -> Vec<String> {
        let added = self.inner.get_added_tokens_decoder();
        let mut names: Vec<String> =
            added.into_values().filter(|t| t.special && !t.content.is_empty()).map(|t| t.content).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn strips_space(&self) -> bool {
        self.strips_space
    }

    pub(super) fn id_of(&self, piece: &str) -> Option<u32> {
        self.inner.token_to_id(piece)
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        // `open` has checked that the unknown piece exists, so encoding cannot fail.
        self.inner.encode_fast(text, false).map(|e| e.get_ids().to_vec()).unwrap_or_default()
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        // Writing to memory does not fail; if it did, the size of the vocabulary would still enter
        // the digest.
        let (vocabulary, config) = self.files().unwrap_or_default();
        hash.update(self.names.len().to_le_bytes());
        hash.update(vocabulary);
        hash.update(config);
        hash.finalize().into()
    }

    /// The texts of `tokenizer.json` and `tokenizer_config.json`.
    pub(super) fn files(&self) -> Result<(String, String), Error> {
        let vocabulary = self.inner.to_string(false).map_err(bad)?;
        let name = |id: Option<u32>| id.and_then(|id| self.names.get(id as usize)?.clone());
        let mut config = serde_json::json!({ "bos_token": name(self.bos), "eos_token": name(self.eos) });
        if let Some(add_bos) = self.add_bos {
            config["add_bos_token"] = add_bos.into();
        }
        Ok((vocabulary, format!("{config:#}\n")))
    }
}

/// What a `tokenizer.json` says about words and text, without settings that change no id.
fn words(inner: &tokenizers::Tokenizer) -> Result<[Value; 3], Error> {
    let mut value = parse(inner.to_string(false).map_err(bad)?.as_bytes())?;
    let mut take = |field: &str| value.get_mut(field).map(Value::take).unwrap_or_default();
    let (mut split, normalizer, mut model) = (take("pre_tokenizer"), take("normalizer"), take("model"));
    let parts = match split.get_mut("pretokenizers").and_then(Value::as_array_mut) {
        Some(parts) => parts.iter_mut().collect(),
        None => vec![&mut split],
    };
    for part in parts.into_iter().filter_map(Value::as_object_mut) {
        part.remove("trim_offsets");
    }
    if let Some(model) = model.as_object_mut() {
        model.retain(|field, _| !["vocab", "merges", "unk_token", "fuse_unk"].contains(&field.as_str()));
    }
    Ok([split, normalizer, model])
}

impl ByteLevel {
    /// How words are split, if it is one of the known ways.
    fn way(&self) -> Result<PreTokenizer, Error> {
        let own = words(&self.inner)?;
        for way in [PreTokenizer::Gpt2, PreTokenizer::Qwen2, PreTokenizer::Llama3, PreTokenizer::SmolLm] {
            if words(&pipeline(HashMap::new(), Vec::new(), way, false)?)? == own {
                return Ok(way);
            }
        }
        let what = "text is not split into words as by GPT-2, Qwen2, Llama 3 or SmolLM";
        Err(Error::Format(format!("{what}, and tokenizer.ggml.pre has no name for it that is known here")))
    }

    /// The files of Hugging Face.
    pub(super) fn to_hf(&self, ends: TextEnds<'_>) -> Result<HfTokenizer, Error> {
        let text = self.inner.to_string(false).map_err(bad)?;
        let mut value = parse(text.as_bytes())?;
        let name = |id: u32| self.names.get(id as usize).and_then(Option::as_deref);
        if added_before(&self.inner) != ends.begin {
            value["post_processor"] = scored::template(ends.begin, name);
        }
        Ok(HfTokenizer { json: format!("{value}\n"), config: scored::config(ends, name, []), note: None })
    }

    /// The metadata of a GGUF file, for a model of `vocab` ids.
    pub(super) fn to_gguf(&self, vocab: usize) -> Result<Vec<(String, MetadataValue)>, Error> {
        if self.spelling != Spelling::Bytes {
            let what = "the tokenizer.json is not byte-level BPE";
            let hint = "give the tokenizer.model that it was made of, if there is one, with `tokenizer`";
            return Err(Error::Format(format!("{what}, and it has no scores; {hint}")));
        }
        let pre = match self.way()? {
            PreTokenizer::Gpt2 => "gpt-2",
            PreTokenizer::Qwen2 => "qwen2",
            PreTokenizer::Llama3 => "llama-bpe",
            PreTokenizer::SmolLm => "smollm",
        };
        let value = parse(self.inner.to_string(false).map_err(bad)?.as_bytes())?;
        let pair = |merge: &Value| match merge {
            Value::String(pair) => Some(pair.clone()),
            other => Some(format!("{} {}", other.get(0)?.as_str()?, other.get(1)?.as_str()?)),
        };
        let merges = value["model"]["merges"].as_array().map(Vec::as_slice).unwrap_or_default();
        let merges: Option<Vec<String>> = merges.iter().map(pair).collect();
        let merges = merges.ok_or_else(|| bad("a merge is no pair of pieces"))?;
        let added = self.inner.get_added_tokens_decoder();
        let (mut tokens, mut kinds) = (Vec::new(), Vec::new());
        let padded = padding(0, self.names.len().max(vocab));
        for (id, pad) in padded.enumerate() {
            let name = self.names.get(id).and_then(Option::clone);
            kinds.push(match (added.get(&(id as u32)), &name) {
                (Some(token), _) if token.special => CONTROL,
                (Some(_), _) => USER_DEFINED,
                (None, Some(_)) => NORMAL,
                (None, None) => UNUSED,
            });
            tokens.push(name.unwrap_or(pad));
        }
        let mut list = vec![scored::key("model", "gpt2"), scored::key("pre", pre), scored::key("tokens", tokens)];
        list.extend([scored::key("token_type", kinds), scored::key("merges", merges)]);
        Ok(list)
    }
}

/// The ids that the post-processor puts in front of a text.
fn added_before(inner: &tokenizers::Tokenizer) -> Vec<u32> {
    let ids = |special| inner.encode_fast("a", special).map(|e| e.get_ids().to_vec()).unwrap_or_default();
    let (plain, whole) = (ids(false), ids(true));
    let at = whole.windows(plain.len().max(1)).position(|part| part == plain);
    at.map(|at| whole[..at].to_vec()).unwrap_or_default()
}

/// Collects every object of a decoder, nested ones included.
fn collect<'a>(value: &'a Value, parts: &mut Vec<&'a Value>) {
    parts.push(value);
    if let Some(inner) = value.get("decoders").and_then(Value::as_array) {
        inner.iter().for_each(|part| collect(part, parts));
    }
}

/// Checks that ids are dense enough to index a table, checks the lengths of pieces, and returns the
/// highest id.
fn check_ids<'a>(pieces: impl Iterator<Item = (&'a str, u32)>, count: usize) -> Result<u32, Error> {
    let mut highest = None;
    for (name, id) in pieces {
        if id as usize >= 2 * count + 1024 {
            return Err(bad(format!("`{name}` has the id {id} in a vocabulary of {count} pieces")));
        }
        // The byte alphabet spells some bytes with two.
        if name.len() > 2 * LONGEST_PIECE {
            return Err(bad(format!("piece {id} has {} bytes, beyond {}", name.len(), 2 * LONGEST_PIECE)));
        }
        highest = highest.max(Some(id));
    }
    highest.ok_or_else(|| bad("the vocabulary is empty"))
}

fn is_special(name: &str) -> bool {
    name.starts_with("<|") && name.ends_with("|>")
}

/// Infers the [`PreTokenizer`] from the pieces of a vocabulary.
fn way_of<'a>(pieces: impl Iterator<Item = &'a String>) -> PreTokenizer {
    let mut mixed = false;
    for piece in pieces.filter(|p| !is_special(p)) {
        for pair in piece.as_bytes().windows(2) {
            if pair[0].is_ascii_digit() && pair[1].is_ascii_digit() {
                return PreTokenizer::Gpt2;
            }
            mixed |= pair[0].is_ascii_punctuation() && pair[0] != b'\'' && pair[1].is_ascii_alphabetic();
        }
    }
    if mixed { PreTokenizer::Qwen2 } else { PreTokenizer::Gpt2 }
}

/// The merges of a `merges.txt`, one pair per line. A first line that starts with `#version` is
/// skipped.
fn read_merges(bytes: &[u8], ids: &HashMap<String, u32>) -> Result<Vec<(String, String)>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| bad(format!("the merges are not UTF-8: {e}")))?;
    let mut merges = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || (at == 0 && line.starts_with("#version")) {
            continue;
        }
        merges.push(merge(line, ids, || format!("merges line {}", at + 1))?);
    }
    Ok(merges)
}

/// A merge, `LEFT RIGHT`, whose pieces and result are in the vocabulary; `place` names it in
/// errors.
fn merge(line: &str, ids: &HashMap<String, u32>, place: impl Fn() -> String) -> Result<(String, String), Error> {
    let wrong = |what: &str| bad(format!("{}: {what}: `{}`", place(), line.escape_debug()));
    let (left, right) = line.split_once(' ').ok_or_else(|| wrong("not two pieces"))?;
    if left.is_empty() || right.is_empty() || right.contains(' ') {
        return Err(wrong("not two pieces"));
    }
    for piece in [left, right, &format!("{left}{right}")] {
        if !ids.contains_key(piece) {
            return Err(wrong(&format!("`{piece}` is not in the vocabulary")));
        }
    }
    Ok((left.to_string(), right.to_string()))
}

/// The inverse of GPT-2's map from bytes to printable characters: printable Latin-1 maps to itself,
/// the other bytes are numbered from U+0100 on.
fn byte_alphabet() -> HashMap<char, u8> {
    let own = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let rest = (0..=255u8).filter(|b| !own(*b)).zip('\u{100}'..);
    (0..=255u8).filter(|b| own(*b)).map(|b| (b as char, b)).chain(rest.map(|(b, c)| (c, b))).collect()
}
