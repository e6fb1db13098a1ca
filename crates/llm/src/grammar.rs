//! Text that follows a grammar: a JSON schema, a regular expression, or a grammar in Lark's syntax.
//!
//! A [`GrammarTokens`] knows the bytes of each token of a vocabulary; it is made once for a model
//! ([`Model::grammar_tokens`](crate::model::Model::grammar_tokens)). It compiles a [`Grammar`] to a
//! [`Constraint`], which is the state of one text: it returns the tokens that may follow as a mask
//! for [`Sampler::sample_masked`](crate::sample::Sampler::sample_masked), and takes the token that
//! was drawn.
//!
//! ```
//! use ferrane_llm::grammar::{Grammar, GrammarTokens};
//! use ferrane_llm::tokenizer::Tokenizer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokenizer = Tokenizer::train("yes or no", 300)?;
//! let tokens = GrammarTokens::new(&tokenizer, None)?;
//! let mut constraint = tokens.compile(&Grammar::Regex("yes|no".into()))?;
//! let end = tokenizer.eos().unwrap();
//! // The text begins with a token that begins `yes` or `no`, and may not end yet.
//! let mask = constraint.mask(&[end])?.to_vec();
//! let allowed = |id: u32| mask[id as usize / 32] >> (id % 32) & 1 == 1;
//! assert!(allowed(tokenizer.id_of("y").unwrap()) && !allowed(tokenizer.id_of("s").unwrap()) && !allowed(end));
//! for id in [tokenizer.id_of("n"), tokenizer.id_of("o")] {
//!     constraint.accept(id.unwrap())?;
//! }
//! assert!(constraint.is_complete());
//! # Ok(())
//! # }
//! ```
//!
//! The text is the bytes of its tokens: a space at its beginning belongs to it, and the grammar
//! decides whether there may be one. A token that ends the text is allowed only where the grammar
//! may end. Where it must end, [`Constraint::is_complete`] is true, and no such token is needed.
//!
//! A grammar may come from anywhere. The bytes of a grammar, the steps of compiling it and those of
//! each mask are limited; references out of a schema are refused, and so is a keyword of JSON
//! Schema that is not known. Spaces between the tokens of JSON are limited, too, because a model
//! may write nothing else: one space, or the end of a line and its indentation.

use std::fmt;
use std::sync::Arc;

use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::tokenizer::Tokenizer;

/// The stack of a compilation; the system gives memory only to the part that is used.
const STACK: usize = 256 << 20;
/// The most values in a JSON schema.
const MOST_VALUES: usize = 4096;
/// The most patterns for names of properties in a JSON schema. The compiler compares each with each
/// other one.
const MOST_NAME_PATTERNS: usize = 32;

/// Bytes of a grammar's text, and of a schema's.
const LONGEST: usize = 256 << 10;
/// Bytes of a token that can be part of a constrained text; longer ones are never allowed.
const LONGEST_TOKEN: usize = 256;
/// Bytes of all tokens. The tree of tokens counts its nodes with 22 bits.
const ALL_TOKENS: usize = 4_000_000;
/// What may stand between the tokens of JSON.
const WHITESPACE: &str = r" |\n[ \t]{0,20}";

/// Why a grammar cannot be used, or a text cannot follow it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The grammar has a mistake, cannot be satisfied, uses what is not supported, or exceeds a
    /// limit.
    #[error("the {kind} cannot be used: {message}")]
    Grammar {
        /// What the grammar is, in words.
        kind: &'static str,
        /// The first mistake, as the parser of grammars reports it.
        message: String,
    },
    /// The vocabulary has more bytes than a tree of tokens can hold.
    #[error("the tokens of the vocabulary have {bytes} bytes; grammars support {ALL_TOKENS}")]
    Vocabulary {
        /// Bytes of all tokens.
        bytes: usize,
    },
    /// No token of the vocabulary continues the text as the grammar demands.
    #[error("no token of the vocabulary continues the text as the grammar demands")]
    NoToken,
    /// The text exceeds a limit of the grammar, or a token that was accepted is not allowed.
    #[error("the text cannot be continued by its grammar: {0}")]
    Text(String),
}

/// What a text must be.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Grammar {
    /// An object of JSON.
    JsonObject,
    /// JSON that this JSON schema accepts.
    JsonSchema(Value),
    /// A regular expression, which the whole text matches.
    Regex(String),
    /// A grammar in the syntax of Lark, with the extensions of llguidance.
    Lark(String),
}

impl Grammar {
    fn error(&self, message: impl Into<String>) -> Error {
        let kind = match self {
            Grammar::JsonObject | Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "grammar",
        };
        Error::Grammar { kind, message: message.into() }
    }

    /// The grammar in the form of llguidance.
    fn lowered(&self) -> Result<TopLevelGrammar, Error> {
        let checked = |text: &str| match text.len() {
            0 => Err(self.error("it is empty")),
            1..=LONGEST => Ok(()),
            bytes => Err(self.error(format!("it has {bytes} bytes; at most {LONGEST} are allowed"))),
        };
        match self {
            Grammar::JsonObject => Ok(TopLevelGrammar::from_json_schema(json_options(json!({"type": "object"})))),
            Grammar::JsonSchema(schema) if schema.is_object() => {
                checked(&schema.to_string())?;
                if sum(schema, &|_| 1) > MOST_VALUES {
                    return Err(self.error(format!("it has more than {MOST_VALUES} values")));
                }
                if sum(schema, &name_patterns) > MOST_NAME_PATTERNS {
                    return Err(self.error(format!("it has more than {MOST_NAME_PATTERNS} `patternProperties`")));
                }
                Ok(TopLevelGrammar::from_json_schema(json_options(schema.clone())))
            }
            Grammar::JsonSchema(_) => Err(self.error("a schema is an object of JSON")),
            Grammar::Regex(text) => checked(text).map(|()| TopLevelGrammar::from_regex(text)),
            Grammar::Lark(text) => checked(text).map(|()| TopLevelGrammar::from_lark(text.clone())),
        }
    }
}

/// The sum of `of` over a value and all values in it.
fn sum(value: &Value, of: &dyn Fn(&Value) -> usize) -> usize {
    let parts: usize = match value {
        Value::Array(items) => items.iter().map(|item| sum(item, of)).sum(),
        Value::Object(entries) => entries.values().map(|entry| sum(entry, of)).sum(),
        _ => 0,
    };
    of(value) + parts
}

/// The patterns for names of properties that a schema has itself.
fn name_patterns(schema: &Value) -> usize {
    schema.get("patternProperties").and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// A schema with the options of its compilation, which are a member of the schema.
pub(crate) fn json_options(mut schema: Value) -> Value {
    let options = JsonCompileOptions { whitespace_pattern: Some(WHITESPACE.into()), ..JsonCompileOptions::default() };
    if schema.is_object() {
        options.apply_to(&mut schema);
    }
    schema
}

/// The tokens of a vocabulary as grammars see them: their bytes, in a tree.
#[derive(Clone)]
pub struct GrammarTokens {
    factory: Arc<ParserFactory>,
    /// The id that stands for the end of a text, the first one beyond the vocabulary.
    end: u32,
}

impl fmt::Debug for GrammarTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarTokens").field("tokens", &self.end).finish_non_exhaustive()
    }
}

impl GrammarTokens {
    /// The tokens of a tokenizer; with `only`, those that a text may consist of.
    ///
    /// # Errors
    /// [`Error::Vocabulary`].
    pub fn new(tokenizer: &Tokenizer, only: Option<&[u32]>) -> Result<GrammarTokens, Error> {
        let end = tokenizer.vocab_size();
        let mut words = vec![Vec::new(); end + 1];
        let mut put = |id: u32| {
            // The byte 0xFF is in no text; in the tree it marks control tokens.
            let piece = tokenizer.piece(id).filter(|piece| piece.len() <= LONGEST_TOKEN && !piece.contains(&0xff));
            if let Some(piece) = piece {
                words[id as usize] = piece.to_vec();
            }
        };
        match only {
            Some(ids) => ids.iter().copied().for_each(&mut put),
            None => (0..end as u32).for_each(&mut put),
        }
        let bytes = words.iter().map(Vec::len).sum();
        if bytes > ALL_TOKENS || end > ALL_TOKENS {
            return Err(Error::Vocabulary { bytes });
        }
        let end = end as u32;
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
        // The slices are the library's own, so this fails only for a defect of it.
        let mut factory = factory.map_err(|e| Error::Text(e.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        Ok(GrammarTokens { factory: Arc::new(factory), end })
    }

    /// Compiles a grammar to the state of a text that has not begun.
    ///
    /// # Errors
    /// [`Error::Grammar`].
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint, Error> {
        // The compiler's recursion is as deep as a schema has properties, one after the other.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
            let compiled = thread.spawn_scoped(scope, || self.compile_here(grammar));
            let compiled = compiled.map_err(|e| grammar.error(format!("no thread can be started: {e}")))?;
            compiled.join().unwrap_or_else(|_| Err(grammar.error("the compiler of grammars failed")))
        })
    }

    fn compile_here(&self, grammar: &Grammar) -> Result<Constraint, Error> {
        let parser = self.factory.create_parser(grammar.lowered()?);
        let parser = parser.map_err(|e| grammar.error(reworded(&format!("{e:#}"))))?;
        let matcher = Matcher::new(Ok(parser));
        if let Some(message) = matcher.get_error() {
            return Err(grammar.error(reworded(&message)));
        }
        let mut constraint = Constraint { matcher, end: self.end, mask: Vec::new() };
        // A schema that only refers to itself compiles, and no text satisfies it.
        match constraint.compute() {
            Ok(_) => Ok(constraint),
            Err(Error::NoToken) => Err(grammar.error(
                "no token of the vocabulary begins a text that satisfies it; a small vocabulary may lack its characters",
            )),
            Err(error) => Err(grammar.error(error.to_string())),
        }
    }
}

/// A message of the library without the names of its options and features.
fn reworded(message: &str) -> String {
    let known = [
        ("coerce_one_of", "`oneOf` with alternatives that may overlap is not supported; use `anyOf`"),
        ("'referencing' feature", "a `$ref` must point into the schema, as `#/$defs/name` does"),
    ];
    let found = known.into_iter().find(|(part, _)| message.contains(part));
    // What follows is the library's own state.
    let own = message.split("\n<").next().unwrap_or(message).trim().trim_start_matches("panic: ");
    found.map_or(own, |(_, text)| text).to_string()
}

/// A text that follows a grammar, as far as it is. A clone continues independently.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    end: u32,
    mask: Vec<u32>,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").field("complete", &self.is_complete()).finish_non_exhaustive()
    }
}

impl Constraint {
    /// The tokens that may follow: bit `id % 32` of word `id / 32`. Those of `ends` are allowed
    /// only where the text may end.
    ///
    /// # Errors
    /// [`Error::NoToken`], also if the text is complete and `ends` is empty; [`Error::Text`].
    pub fn mask(&mut self, ends: &[u32]) -> Result<&[u32], Error> {
        let computed = self.compute()?;
        self.mask.clear();
        self.mask.extend_from_slice(computed.as_slice());
        let may_end = computed.is_allowed(self.end);
        let mut set = |id: u32, allowed: bool| {
            if let Some(word) = self.mask.get_mut(id as usize / 32) {
                let bit = 1 << (id % 32);
                *word = if allowed { *word | bit } else { *word & !bit };
            }
        };
        set(self.end, false);
        ends.iter().filter(|id| **id < self.end).for_each(|&id| set(id, may_end));
        if self.mask.iter().all(|word| *word == 0) { Err(Error::NoToken) } else { Ok(&self.mask) }
    }

    /// The mask of the library, in which one bit stands for the end of the text.
    fn compute(&mut self) -> Result<SimpleVob, Error> {
        self.matcher.compute_mask_or_eos().map_err(|error| {
            let message = error.to_string();
            // The matcher keeps only the text of an error, which is the name of the reason.
            match message.contains(&StopReason::NoExtensionBias.to_string()) {
                true => Error::NoToken,
                false => Error::Text(reworded(&message)),
            }
        })
    }

    /// Takes a token of the text, not one that ends it.
    ///
    /// # Errors
    /// [`Error::Text`] if the grammar does not allow it.
    pub fn accept(&mut self, id: u32) -> Result<(), Error> {
        self.matcher.consume_token(id).map_err(|e| Error::Text(reworded(&e.to_string())))
    }

    /// Whether the text is complete and nothing can follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}
