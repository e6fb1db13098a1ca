//! SentencePiece `.model` files: a protobuf with the pieces and the settings of trainer and
//! normalizer.
//!
//! The reader uses only the fields that encoding and decoding need. BPE merges by score like
//! llama2.c; unigram finds the best path. In both, user-defined pieces are split off first. An
//! unknown character becomes byte pieces if the model has byte fallback; otherwise a run of unknown
//! characters becomes one unknown piece.

use std::collections::HashMap;

use prost::Message;

use super::charsmap::CharsMap;
use super::merge::{INERT, LONGEST_PIECE, Merges, Scratch};
use super::scored::Scored;
use super::{Error, Pieces, byte_piece};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<TrainerSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<NormalizerSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(string, optional, tag = "1")]
    pub(super) piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(super) score: Option<f32>,
    #[prost(int32, optional, tag = "3")]
    pub(super) kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrainerSpec {
    #[prost(int32, optional, tag = "3")]
    pub(super) model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    pub(super) treat_whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    pub(super) byte_fallback: Option<bool>,
    #[prost(string, optional, tag = "44")]
    pub(super) unk_surface: Option<String>,
    #[prost(string, optional, tag = "46")]
    pub(super) bos_piece: Option<String>,
    #[prost(string, optional, tag = "47")]
    pub(super) eos_piece: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NormalizerSpec {
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) precompiled_charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3")]
    pub(super) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub(super) remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub(super) escape_whitespaces: Option<bool>,
}

pub(super) const NORMAL: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;
pub(super) const UNUSED: i32 = 5;
pub(super) const BYTE: i32 = 6;

/// Symbols from here on are user-defined pieces, which do not merge.
const FROZEN: u32 = INERT;
/// Symbols from here on are characters that no piece contains.
const STRANGE: u32 = 1 << 31;

pub(super) const SPACE: &str = "\u{2581}";

#[derive(Debug, Clone)]
pub(super) struct SentencePiece {
    file: Vec<u8>,
    names: Vec<String>,
    kinds: Vec<i32>,
    scores: Vec<f32>,
    ids: HashMap<String, u32>,
    user_defined: Vec<(String, u32)>,
    normalizer: Normalizer,
    method: Method,
    unknown: u32,
    unknown_text: String,
    bytes: Option<Box<[u32; 256]>>,
    bos: Option<u32>,
    eos: Option<u32>,
}

#[derive(Debug, Clone)]
struct Normalizer {
    rules: CharsMap,
    dummy_prefix: bool,
    joins_spaces: bool,
    escapes_spaces: bool,
}

#[derive(Debug, Clone)]
enum Method {
    /// The merge table, the symbol of each character that occurs in a piece, and the characters
    /// with a symbol but without a piece of their own (their symbols follow those of the pieces).
    Bpe {
        merges: Merges,
        chars: HashMap<char, u32>,
        extra: Vec<char>,
        has_unused: bool,
    },
    Unigram {
        longest: usize,
        lowest: f32,
        highest: f32,
    },
}

/// Whether `bytes` start like a model: field 1, a piece, whose length fits.
pub(super) fn sniff(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x0a) && bytes.get(2).is_some_and(|b| *b == 0x0a || bytes[1] & 0x80 != 0)
}

impl SentencePiece {
    pub(super) fn read(file: &[u8]) -> Result<SentencePiece, Error> {
        let bad = |what: String| Error::Format(format!("SentencePiece model: {what}"));
        let model = ModelProto::decode(file).map_err(|e| bad(e.to_string()))?;
        let trainer = model.trainer.unwrap_or_default();
        let normalizer = model.normalizer.unwrap_or_default();
        if trainer.treat_whitespace_as_suffix() {
            return Err(bad("spaces as suffixes (treat_whitespace_as_suffix) are not supported".into()));
        }
        if model.pieces.len() >= INERT as usize / 2 {
            return Err(bad(format!("{} pieces", model.pieces.len())));
        }
        let (mut names, mut kinds, mut scores) = (Vec::new(), Vec::new(), Vec::new());
        let mut ids = HashMap::with_capacity(model.pieces.len());
        for (id, piece) in model.pieces.into_iter().enumerate() {
            let (name, score, kind) =
                (piece.piece.unwrap_or_default(), piece.score.unwrap_or(0.0), piece.kind.unwrap_or(NORMAL));
            if name.is_empty() || name.len() > LONGEST_PIECE {
                return Err(bad(format!("piece {id} has {} bytes, beyond 1..={LONGEST_PIECE}", name.len())));
            }
            if !score.is_finite() {
                return Err(bad(format!("piece {id} `{name}` has the score {score}")));
            }
            if let Some(first) = ids.insert(name.clone(), id as u32) {
                return Err(bad(format!("pieces {first} and {id} are both `{name}`")));
            }
            names.push(name);
            kinds.push(kind);
            scores.push(score);
        }
        let unknown = kinds.iter().position(|&k| k == UNKNOWN).ok_or_else(|| bad("no unknown piece".into()))? as u32;
        let mut bytes = None;
        if trainer.byte_fallback() {
            let mut found = Box::new([u32::MAX; 256]);
            for (id, name) in names.iter().enumerate().filter(|&(id, _)| kinds[id] == BYTE) {
                let byte = byte_piece(name.as_bytes()).ok_or_else(|| bad(format!("`{name}` is not a byte piece")))?;
                found[byte as usize] = id as u32;
            }
            if let Some(byte) = found.iter().position(|&id| id == u32::MAX) {
                return Err(bad(format!("byte fallback without the piece <0x{byte:02X}>")));
            }
            bytes = Some(found);
        }
        let control = |name: Option<String>, usual: &str| {
            ids.get(name.as_deref().unwrap_or(usual)).copied().filter(|&id| kinds[id as usize] == CONTROL)
        };
        let (bos, eos) = (control(trainer.bos_piece.clone(), "<s>"), control(trainer.eos_piece.clone(), "</s>"));
        let mut user_defined: Vec<(String, u32)> =
            (0..names.len()).filter(|&id| kinds[id] == USER_DEFINED).map(|id| (names[id].clone(), id as u32)).collect();
        user_defined.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.1.cmp(&b.1)));
        let method = match trainer.model_type.unwrap_or(1) {
            1 => unigram(&names, &kinds, &scores),
            2 => bpe(&names, &kinds, &scores),
            other => {
                let name = ["word", "character"].get(other.wrapping_sub(3) as usize).unwrap_or(&"unknown");
                return Err(bad(format!("the {name} model type ({other}) is not supported; BPE and unigram are")));
            }
        };
        let normalizer = Normalizer {
            rules: CharsMap::read(normalizer.precompiled_charsmap())?,
            dummy_prefix: normalizer.add_dummy_prefix.unwrap_or(true),
            joins_spaces: normalizer.remove_extra_whitespaces.unwrap_or(true),
            escapes_spaces: normalizer.escape_whitespaces.unwrap_or(true),
        };
        let unknown_text = trainer.unk_surface.unwrap_or_else(|| " \u{2047} ".into());
        let file = file.to_vec();
        Ok(SentencePiece {
            file,
            names,
            kinds,
            scores,
            ids,
            user_defined,
            normalizer,
            method,
            unknown,
            unknown_text,
            bytes,
            bos,
            eos,
        })
    }

    pub(super) fn pieces(&self) -> (Pieces, Option<u32>, Option<u32>) {
        let mut pieces = Pieces::default();
        for (name, &kind) in self.names.iter().zip(&self.kinds) {
            match (kind, byte_piece(name.as_bytes())) {
                (CONTROL, _) => pieces.push(&[]),
                (UNKNOWN, _) => pieces.push(self.unknown_text.as_bytes()),
                (BYTE, Some(byte)) => pieces.push(&[byte]),
                _ => pieces.push(name.replace(SPACE, " ").as_bytes()),
            }
        }
        (pieces, self.bos, self.eos)
    }

    /// The names of the control pieces.
    pub(super) fn controls(&self) -> Vec<String> {
        let named = self.names.iter().zip(&self.kinds).filter(|(name, kind)| **kind == CONTROL && !name.is_empty());
        named.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn strips_space(&self) -> bool {
        self.normalizer.dummy_prefix || self.normalizer.joins_spaces
    }

    pub(super) fn file(&self) -> &[u8] {
        &self.file
    }

    /// The pieces for the forms of other programs.
    ///
    /// # Errors
    /// [`Error::Format`] for unigram models, and spaces that are not spelled `▁`.
    pub(super) fn scored(&self) -> Result<Scored, Error> {
        let bad = |what: &str| Error::Format(format!("the vocabulary is a SentencePiece model with {what}"));
        if matches!(self.method, Method::Unigram { .. }) {
            return Err(bad("unigram scores, and the file needs BPE"));
        }
        if !self.normalizer.escapes_spaces {
            return Err(bad("plain spaces"));
        }
        let model = ModelProto::decode(self.file.as_slice()).map_err(|e| Error::Format(e.to_string()))?;
        let charsmap = model.normalizer.and_then(|normalizer| normalizer.precompiled_charsmap).unwrap_or_default();
        Ok(Scored {
            names: self.names.clone(),
            scores: self.scores.clone(),
            kinds: self.kinds.clone(),
            prefix: self.normalizer.dummy_prefix,
            joins_spaces: self.normalizer.joins_spaces,
            charsmap,
        })
    }

    pub(super) fn id_of(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied()
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let text = self.normalizer.apply(text, |rest| self.user_defined(rest).map(|(length, _)| length));
        let mut out = Output { model: self, ids: Vec::with_capacity(text.len() / 2), after_unknown: false };
        match &self.method {
            Method::Bpe { merges, chars, extra, has_unused } => {
                self.encode_bpe(&text, merges, chars, extra, *has_unused, &mut out);
            }
            Method::Unigram { longest, lowest, highest } => {
                self.encode_unigram(&text, *longest, *lowest, *highest, &mut out);
            }
        }
        out.ids
    }

    /// The longest user-defined piece at the start of `text`.
    fn user_defined(&self, text: &str) -> Option<(usize, u32)> {
        self.user_defined.iter().find(|(name, _)| text.starts_with(name)).map(|(name, id)| (name.len(), *id))
    }

    fn encode_bpe(
        &self,
        text: &str,
        merges: &Merges,
        chars: &HashMap<char, u32>,
        extra: &[char],
        has_unused: bool,
        out: &mut Output<'_>,
    ) {
        let mut symbols = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (length, symbol) = match self.user_defined(rest) {
                Some((length, id)) => (length, FROZEN + id),
                None => (c.len_utf8(), chars.get(&c).copied().unwrap_or(STRANGE + c as u32)),
            };
            symbols.push(symbol);
            rest = &rest[length..];
        }
        let count = self.names.len() as u32;
        let mut finish = |symbol: u32| {
            if symbol >= STRANGE {
                out.unknown(char::from_u32(symbol - STRANGE).unwrap_or(char::REPLACEMENT_CHARACTER));
            } else if symbol >= FROZEN {
                out.push(symbol - FROZEN);
            } else if symbol >= count {
                out.unknown(extra[(symbol - count) as usize]);
            } else {
                out.push(symbol);
            }
        };
        merges.run(&mut symbols, &mut Scratch::default(), has_unused, |symbol, scratch| {
            // An unused piece can be an intermediate result of merges. If it remains, it is split
            // into its parts again.
            let mut parts = vec![symbol];
            while let Some(part) = parts.pop() {
                let unused = has_unused && self.kinds.get(part as usize) == Some(&UNUSED);
                match scratch.made_of.get(&part).filter(|_| unused) {
                    Some(&(left, right)) => parts.extend([right, left]),
                    None => finish(part),
                }
            }
        });
    }

    fn encode_unigram(&self, text: &str, longest: usize, lowest: f32, highest: f32, out: &mut Output<'_>) {
        // SentencePiece's penalty for an unknown character, relative to the lowest score.
        let unknown_score = lowest - 10.0;
        let mut best: Vec<Option<(f32, usize, u32)>> = vec![None; text.len() + 1];
        best[0] = Some((0.0, 0, self.unknown));
        for (start, c) in text.char_indices() {
            let Some((so_far, ..)) = best[start] else { continue };
            let single = start + c.len_utf8();
            let mut has_single = false;
            let mut offer = |end: usize, score: f32, id: u32| {
                if best[end].is_none_or(|(other, ..)| so_far + score > other) {
                    best[end] = Some((so_far + score, start, id));
                }
            };
            for end in (start + 1)..=text.len().min(start + longest) {
                let Some(id) = text.get(start..end).and_then(|piece| self.ids.get(piece).copied()) else { continue };
                let score = match self.kinds[id as usize] {
                    NORMAL => self.scores[id as usize],
                    USER_DEFINED => (end - start) as f32 * highest - 0.1,
                    _ => continue,
                };
                has_single |= end == single;
                offer(end, score, id);
            }
            if !has_single {
                offer(single, unknown_score, self.unknown);
            }
        }
        let mut path = Vec::new();
        let mut end = text.len();
        while let Some((_, start, id)) = best[end].filter(|_| end > 0) {
            path.push((start, id));
            end = start;
        }
        for (start, id) in path.into_iter().rev() {
            match text[start..].chars().next() {
                Some(c) if id == self.unknown => out.unknown(c),
                _ => out.push(id),
            }
        }
    }
}

/// Collects the ids of one text and joins a run of unknown pieces into one.
struct Output<'a> {
    model: &'a SentencePiece,
    ids: Vec<u32>,
    after_unknown: bool,
}

impl Output<'_> {
    fn push(&mut self, id: u32) {
        self.ids.push(id);
        self.after_unknown = false;
    }

    fn unknown(&mut self, c: char) {
        if let Some(bytes) = &self.model.bytes {
            self.ids.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|b| bytes[b as usize]));
        } else if !std::mem::replace(&mut self.after_unknown, true) {
            self.ids.push(self.model.unknown);
        }
    }
}

fn bpe(names: &[String], kinds: &[i32], scores: &[f32]) -> Method {
    let usable = |id: usize| matches!(kinds[id], NORMAL | USER_DEFINED | UNUSED);
    let mut symbols: Vec<(&[u8], f32)> = names.iter().zip(scores).map(|(n, &s)| (n.as_bytes(), s)).collect();
    let mut by_bytes = HashMap::new();
    let mut chars = HashMap::new();
    for (id, name) in names.iter().enumerate().filter(|&(id, _)| usable(id)) {
        by_bytes.insert(name.as_bytes(), id as u32);
        let mut letters = name.chars();
        if let (Some(c), None) = (letters.next(), letters.next()) {
            chars.insert(c, id as u32);
        }
    }
    // SentencePiece merges strings, so a character takes part in merges even if only longer pieces
    // contain it.
    let mut extra = Vec::new();
    for (_, name) in names.iter().enumerate().filter(|&(id, _)| usable(id)) {
        for (at, c) in name.char_indices() {
            if let std::collections::hash_map::Entry::Vacant(entry) = chars.entry(c) {
                let symbol = symbols.len() as u32;
                entry.insert(symbol);
                let bytes = &name.as_bytes()[at..at + c.len_utf8()];
                symbols.push((bytes, 0.0));
                by_bytes.insert(bytes, symbol);
                extra.push(c);
            }
        }
    }
    let count = names.len() as u32;
    let merges = Merges::new(&symbols, &by_bytes, f32::NEG_INFINITY, |id| id < count);
    let has_unused = kinds.contains(&UNUSED);
    Method::Bpe { merges, chars, extra, has_unused }
}

fn unigram(names: &[String], kinds: &[i32], scores: &[f32]) -> Method {
    let normal = || scores.iter().zip(kinds).filter(|(_, k)| **k == NORMAL).map(|(s, _)| *s);
    Method::Unigram {
        longest: names.iter().map(String::len).max().unwrap_or(0),
        lowest: normal().reduce(f32::min).unwrap_or(0.0),
        highest: normal().reduce(f32::max).unwrap_or(0.0),
    }
}

impl Normalizer {
    /// Normalizes `text` by the model's rules; `keep` returns how many bytes at the start of a
    /// remainder stay unchanged.
    fn apply(&self, text: &str, keep: impl Fn(&str) -> Option<usize>) -> String {
        let space = if self.escapes_spaces { SPACE } else { " " };
        let next = |rest: &'_ str| -> (usize, Option<&str>) {
            if let Some(length) = keep(rest) {
                return (length, None);
            }
            match self.rules.longest(rest) {
                Some((length, to)) => (length, Some(to)),
                None => (rest.chars().next().map_or(0, char::len_utf8), None),
            }
        };
        let mut rest = text;
        if self.joins_spaces {
            while !rest.is_empty() {
                let (length, to) = next(rest);
                if to.unwrap_or(&rest[..length]) != " " {
                    break;
                }
                rest = &rest[length..];
            }
        }
        let mut out = String::with_capacity(text.len() + text.len() / 4 + 3);
        if rest.is_empty() {
            return out;
        }
        if self.dummy_prefix {
            out.push_str(space);
        }
        let mut after_space = self.joins_spaces;
        while !rest.is_empty() {
            let (length, to) = next(rest);
            let mut part = to.unwrap_or(&rest[..length]);
            if after_space {
                part = part.trim_start_matches(' ');
            }
            for c in part.chars() {
                match c {
                    ' ' => out.push_str(space),
                    other => out.push(other),
                }
            }
            if !part.is_empty() {
                after_space = self.joins_spaces && part.ends_with(' ');
            }
            rest = &rest[length..];
        }
        if self.joins_spaces {
            while out.ends_with(space) {
                out.truncate(out.len() - space.len());
            }
        }
        out
    }
}
