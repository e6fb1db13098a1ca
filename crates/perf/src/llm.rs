//! Prefill and decode of a language model.
//!
//! A token reads every matrix once, so it can take no less time than reading the bytes of the
//! weights. A plain read loop over 512 MiB, more than caches hold, reads as many bytes before each
//! token, and the share is the median of these pairs, because the memory bandwidth of a shared
//! computer changes from second to second.

use std::fmt;
use std::time::{Duration, Instant};

use ferrane_device::Device;
use ferrane_host::{ceiling, random::Rng};
use ferrane_llm::config::Config;
use ferrane_llm::decode::program::MAX_SLOTS;
use ferrane_llm::decode::quantize::WeightType;
use ferrane_llm::decode::{Decoder, Options};
use ferrane_llm::weights::{Init, WeightSource, Weights};
use serde::Serialize;

use crate::computer::Computer;
use crate::error::{Error, Result};
use crate::spread::{Spread, Unit, checked_count, rounded, short};

/// The most tokens of a prompt.
const PROMPT: usize = 1 << 20;
/// Prefills, one after the other.
const PREFILLS: usize = 5;
/// How often the continuation is decoded.
const ROUNDS: usize = 3;
/// Words of 8 bytes that the read loop goes over: 512 MiB.
const WORDS: usize = 64 << 20;

/// What [`llm`] measures.
#[derive(Clone, Copy)]
pub struct LlmOptions<'a> {
    /// The name of the model in the report.
    pub model: &'a str,
    /// Its configuration. The context grows if prompt and continuation need it.
    pub config: &'a Config,
    /// Its weights; random ones if there are none.
    pub weights: Option<&'a dyn WeightSource>,
    /// The name of the device in the report.
    pub device: &'a str,
    /// Element types of the matrices, measured one after the other.
    pub types: &'a [WeightType],
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that are decoded one by one.
    pub tokens: usize,
    /// Numbers of sequences that are then decoded together, each at least 2 and as far as the
    /// decoder has slots.
    pub batches: &'a [usize],
}

impl LlmOptions<'_> {
    /// Checks the numbers, which takes no time.
    ///
    /// # Errors
    /// [`Error::Option`] for a prompt or a continuation without tokens or with too many, and for
    /// batches that a decoder does not take.
    pub fn check(&self) -> Result<()> {
        let LlmOptions { prompt, tokens, batches, .. } = *self;
        checked_count("tokens", tokens)?;
        if prompt == 0 || prompt > PROMPT {
            return Err(Error::option("prompt", prompt, format!("give 1 to {PROMPT} tokens")));
        }
        match batches.iter().find(|batch| !(2..=MAX_SLOTS).contains(*batch)) {
            Some(batch) => Err(Error::option("batch", batch, format!("give 2 to {MAX_SLOTS} sequences"))),
            None => Ok(()),
        }
    }
}

/// What [`llm`] measured. Prints as a few lines for each type of weights.
#[derive(Clone, Debug, Serialize)]
pub struct LlmReport {
    /// The preset, or whatever the caller calls the model.
    pub model: String,
    /// The device as it was opened: `emulator?machine=m4`.
    pub device: String,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that were decoded in each of three rounds.
    pub tokens: usize,
    /// Parameters of the model.
    pub parameters: usize,
    /// One for each type of weights.
    pub runs: Vec<LlmRun>,
    /// The computer that the rates come from.
    #[serde(rename = "machine")]
    pub computer: Computer,
}

/// What was measured with one type of weights.
#[derive(Clone, Debug, Serialize)]
pub struct LlmRun {
    /// Element type of the matrices.
    pub r#type: &'static str,
    /// Bytes of weights that a token reads.
    pub weight_bytes_per_token: usize,
    /// Seconds from the weights to a decoder that takes tokens.
    #[serde(serialize_with = "rounded")]
    pub load_seconds: f64,
    /// Tokens of the prompt per second.
    pub prefill: Spread,
    /// Decoded tokens per second.
    pub decode: Spread,
    /// Tokens per second of several sequences that are decoded together.
    pub batches: Vec<Batch>,
    /// The read loop's rate.
    pub read: Spread,
    /// The share of the read loop's rate at which decoding reads weights.
    #[serde(serialize_with = "rounded")]
    pub bandwidth_share: f64,
}

/// Several sequences that are decoded together.
#[derive(Clone, Debug, Serialize)]
pub struct Batch {
    /// Sequences that each step continues by one token.
    pub sequences: usize,
    /// Tokens per second of all sequences.
    pub decode: Spread,
    /// That rate over the rate of one sequence, which is decoded alone before each step: median.
    #[serde(serialize_with = "rounded")]
    pub times_one: f64,
}

/// Measures prefill and decode on `device`.
///
/// # Errors
/// As [`LlmOptions::check`]; [`Error::Decode`]; [`Error::WrongResult`] if a token's logits are not
/// finite.
pub fn llm(device: &Device, options: &LlmOptions<'_>) -> Result<LlmReport> {
    let LlmOptions { prompt, tokens, .. } = *options;
    options.check()?;
    let max_seq = options.config.max_seq.max(prompt + tokens);
    let config = Config { max_seq, ..options.config.clone() };
    // Values of one magnitude: hardware may skip zeros.
    let random;
    let weights: &dyn WeightSource = match options.weights {
        Some(weights) => weights,
        None => {
            random = Weights::init(&config, Init::Normal { std: 0.02 }, 1);
            &random
        }
    };
    let memory: Vec<u64> = (0..WORDS as u64).collect();
    let runs = options.types.iter().map(|of| run(device, &config, weights, *of, options, &memory));
    let runs = runs.collect::<Result<_>>()?;
    Ok(LlmReport {
        model: options.model.into(),
        device: options.device.into(),
        prompt,
        tokens,
        parameters: config.parameters(),
        runs,
        computer: Computer::detect(),
    })
}

fn run(
    device: &Device,
    config: &Config,
    weights: &dyn WeightSource,
    of: WeightType,
    options: &LlmOptions<'_>,
    memory: &[u64],
) -> Result<LlmRun> {
    let LlmOptions { prompt: length, tokens, batches, .. } = *options;
    let slots = batches.iter().copied().max().unwrap_or(1);
    let begun = Instant::now();
    let mut decoder = Decoder::new(device, config, weights, Options { weights: of, slots, ..Options::default() })?;
    let load_seconds = begun.elapsed().as_secs_f64();
    let mut rng = Rng::new(7);
    let mut token = || rng.below(config.vocab as u64) as u32;
    let prompt: Vec<u32> = (0..length).map(|_| token()).collect();
    // The decoder compiles programs when it first needs them.
    decoder.feed(&prompt)?;
    for _ in 0..tokens {
        decoder.feed(&[token()])?;
    }
    let bytes = decoder.bytes_per_token();
    // Another part of the memory each time, so that no cache holds it.
    let mut parts = memory.chunks_exact(bytes.div_ceil(8).clamp(1, WORDS / 2)).cycle();
    let (mut prefill, mut decode, mut read, mut share) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // One after the other, as in other programs' benchmarks: after the read loop the caches would
    // hold its memory.
    for _ in 0..PREFILLS {
        decoder.clear();
        let begun = Instant::now();
        decoder.feed(&prompt)?;
        prefill.push(length as f64 / begun.elapsed().as_secs_f64());
    }
    for _ in 0..ROUNDS {
        decoder.clear();
        decoder.feed(&prompt)?;
        for _ in 0..tokens {
            let rate = ceiling::read_bandwidth(parts.next().unwrap_or(memory), Duration::ZERO);
            let begun = Instant::now();
            let logits = decoder.feed(&[token()])?;
            if !logits[0].is_finite() {
                return Err(Error::WrongResult("the logits of a measured token are not finite".into()));
            }
            let token_rate = 1.0 / begun.elapsed().as_secs_f64();
            decode.push(token_rate);
            read.push(rate / 1e9);
            share.push(token_rate * bytes as f64 / rate);
        }
    }
    let batches = batches.iter().map(|&count| batch(&mut decoder, count, &prompt, tokens, &mut token));
    Ok(LlmRun {
        batches: batches.collect::<Result<_>>()?,
        r#type: of.name(),
        weight_bytes_per_token: bytes,
        load_seconds,
        prefill: Spread::new(Unit::TokensPerSecond, prefill),
        decode: Spread::new(Unit::TokensPerSecond, decode),
        read: Spread::new(Unit::GigabytesPerSecond, read),
        bandwidth_share: Spread::new(Unit::Ratio, share).median(),
    })
}

/// Decodes tokens of several slots together, and before each step a token of the first slot alone.
fn batch(
    decoder: &mut Decoder,
    sequences: usize,
    prompt: &[u32],
    tokens: usize,
    mut token: impl FnMut() -> u32,
) -> Result<Batch> {
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    // The first round compiles the program and is not counted.
    for round in 0..=ROUNDS {
        decoder.clear();
        decoder.feed(prompt)?;
        for slot in 1..sequences {
            decoder.copy(0, slot, prompt.len())?;
        }
        for _ in 0..tokens.div_ceil(2) {
            let begun = Instant::now();
            decoder.feed(&[token()])?;
            let one = begun.elapsed().as_secs_f64();
            let next: Vec<[u32; 1]> = (0..sequences).map(|_| [token()]).collect();
            let feeds: Vec<(usize, &[u32])> = next.iter().map(|t| t.as_slice()).enumerate().collect();
            let begun = Instant::now();
            let logits = decoder.feed_all(&feeds)?;
            let all = begun.elapsed().as_secs_f64();
            if !logits.iter().step_by(97).all(|logit| logit.is_finite()) {
                return Err(Error::WrongResult("the logits of a measured batch are not finite".into()));
            }
            if round > 0 {
                rates.push(sequences as f64 / all);
                times.push(sequences as f64 * one / all);
            }
        }
    }
    let times_one = Spread::new(Unit::Ratio, times).median();
    Ok(Batch { sequences, decode: Spread::new(Unit::TokensPerSecond, rates), times_one })
}

impl fmt::Display for LlmRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (megabytes, percent) =
            (short(self.weight_bytes_per_token as f64 / 1e6), short(self.bandwidth_share * 100.0));
        writeln!(f, "{} weights, loaded in {} s", self.r#type, short(self.load_seconds))?;
        writeln!(f, "  prefill  {}", self.prefill)?;
        writeln!(f, "  decode   {}", self.decode)?;
        for Batch { sequences, decode, times_one } in &self.batches {
            writeln!(f, "  batch    {decode}, {sequences} sequences together, {} times one", short(*times_one))?;
        }
        writeln!(f, "  memory   {}", self.read)?;
        writeln!(f, "  a token reads {megabytes} MB of weights, at {percent} % of the memory bandwidth")
    }
}

impl fmt::Display for LlmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LlmReport { model, device, prompt, tokens, .. } = self;
        writeln!(f, "{model} on {device}: a prompt of {prompt} tokens, then {tokens}")?;
        writeln!(f, "  {}", self.computer)?;
        self.runs.iter().try_for_each(|run| write!(f, "{run}"))
    }
}
