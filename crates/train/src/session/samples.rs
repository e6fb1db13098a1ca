//! Texts that the model writes during a run.
//!
//! They are computed by the fp32 reference on every device: it reads the weights where they lie, so
//! a sample compiles nothing and changes no state of the run.

use ferrane_llm::compaction::Compaction;
use ferrane_llm::generate::TextGenerator;
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{Sampler, Sampling};
use ferrane_llm::tokenizer::Tokenizer;

use crate::run::SampleText;

/// Number of tokens of a sample.
const TOKENS: usize = 64;

/// Returns what writes the samples of a run with this tokenizer and these ids in use. `seed` is
/// that of the run: the same update of the same run has the same text.
pub(super) fn writer(tokenizer: Tokenizer, ids: Option<Compaction>, seed: u64) -> SampleText {
    Box::new(move |config, weights, step| {
        let seed = seed.wrapping_add(step);
        let sampling = Sampling { temperature: 0.8, top_p: 0.9, seed: Some(seed), ..Sampling::default() };
        let sampler = Sampler::new(&sampling).map_err(|e| e.to_string())?;
        let sampler = match &ids {
            Some(ids) => sampler.only(ids.compact_to_full()),
            None => sampler,
        };
        let logits = Reference::new(config, weights).map_err(|e| e.to_string())?.decoder();
        let mut generator = TextGenerator::new(&tokenizer, Box::new(logits), sampler);
        // Without a token that begins a text, the prompt is id 0.
        let prompt = generator.prompt_ids("").unwrap_or_else(|_| vec![0]);
        let pieces = generator.generate_ids(prompt, TOKENS);
        let mut text = pieces.prompt_text().to_string();
        for piece in pieces {
            text.push_str(&piece.map_err(|e| e.to_string())?.text);
        }
        Ok(text.trim().to_string())
    })
}
