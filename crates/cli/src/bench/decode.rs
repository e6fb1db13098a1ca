//! `ferrane bench decode`: prefill and decode of a preset with random weights.
//!
//! A token reads every matrix once, so its time is held against a plain read loop over memory that no cache holds, in the same
//! run: a token can take no less than the time in which that loop reads the bytes of the weights. Prefill and decode take turns
//! with the loop, so that all see the same machine.

use std::time::Instant;

use ferrane::host::{pool, vectorize};
use ferrane::llm::config::{Config, preset};
use ferrane::llm::decode::{Decoder, Options};
use ferrane::llm::random::Rng;
use ferrane::llm::weights::{Init, Weights};
use serde_json::json;

use super::machine;
use super::measure::{Spread, repeats, round, short};
use crate::args::BenchDecode;
use crate::error::{Error, Result};
use crate::{model, out};

/// Tokens of prompt and continuation at most.
const MOST: usize = 1 << 20;
/// Rounds of prefill, decode and reading.
const ROUNDS: usize = 3;
/// Words of 8 bytes that the read loop goes over: 512 MiB.
const WORDS: usize = 64 << 20;
/// Words that one task of the read loop takes.
const PIECE: usize = 64 << 10;

/// Runs the command.
pub fn run(args: BenchDecode) -> Result<()> {
    repeats("--tokens", args.tokens)?;
    if args.prompt == 0 || args.prompt > MOST {
        return Err(Error::new(format!("--prompt {}: give 1 to {MOST} tokens", args.prompt)));
    }
    let Some(device) = model::device(&args.device.device)? else {
        return Err(Error::new("the reference is not measured here; name a device"));
    };
    let config = preset(&args.model)?;
    let config = Config { max_seq: config.max_seq.max(args.prompt + args.tokens), ..config };
    // Values of one magnitude: zeros are read, but machines may skip them.
    let weights = Weights::init(&config, Init::Normal { std: 0.02 }, 1);
    let options = Options { weights: args.weights.into(), context: None };
    let mut decoder = Decoder::new(&device, &config, &weights, options)?;
    drop(weights);
    let memory: Vec<u64> = (0..WORDS as u64).collect();
    let mut rng = Rng::new(7);
    let mut token = || rng.below(config.vocab as u64) as u32;
    let prompt: Vec<u32> = (0..args.prompt).map(|_| token()).collect();
    // Programs are compiled when they are first needed.
    decoder.feed(&prompt)?;
    for _ in 0..args.tokens {
        decoder.feed(&[token()])?;
    }
    let (mut prefill, mut decode, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        if pool_sum(&memory) != (WORDS as u64 / 2).wrapping_mul(WORDS as u64 - 1) {
            return Err(Error::new("the read loop read something else"));
        }
        read.push((8 * WORDS) as f64 / begun.elapsed().as_secs_f64() / 1e9);
        decoder.clear();
        let begun = Instant::now();
        decoder.feed(&prompt)?;
        prefill.push(args.prompt as f64 / begun.elapsed().as_secs_f64());
        for _ in 0..args.tokens {
            let begun = Instant::now();
            let logits = decoder.feed(&[token()])?;
            if !logits[0].is_finite() {
                return Err(Error::new("a measured token's logits are not finite"));
            }
            decode.push(1.0 / begun.elapsed().as_secs_f64());
        }
    }
    let [prefill, decode, read] = [prefill, decode, read].map(Spread::of);
    let bytes = decoder.bytes_per_token();
    let share = decode.median() * bytes as f64 / (read.median() * 1e9);
    if args.json {
        let object = json!({
            "model": args.model, "device": args.device.device, "type": options.weights.name(), "prompt": args.prompt,
            "tokens": args.tokens, "parameters": config.parameters(), "weight_bytes_per_token": bytes,
            "prefill": prefill.json("tokens_per_second"), "decode": decode.json("tokens_per_second"),
            "read": read.json("gb_per_second"), "bandwidth_share": round(share), "machine": machine::describe(),
        });
        return out::line(object);
    }
    out::line(format_args!(
        "{} on {}, {} weights: a prompt of {} tokens, then {}",
        args.model,
        args.device.device,
        options.weights.name(),
        args.prompt,
        args.tokens
    ))?;
    out::line(format_args!("  prefill  {}", prefill.text("tokens/s")))?;
    out::line(format_args!("  decode   {}", decode.text("tokens/s")))?;
    out::line(format_args!("  memory   {}", read.text("GB/s")))?;
    let (megabytes, percent) = (short(bytes as f64 / 1e6), short(share * 100.0));
    out::line(format_args!("  a token reads {megabytes} MB of weights, at {percent} % of the rate of memory"))
}

/// The sum of all words: as fast as memory gives them.
fn pool_sum(memory: &[u64]) -> u64 {
    let sum = |range: std::ops::Range<usize>| {
        let words = &memory[range];
        // The plainest loop is what the compiler unrolls best.
        vectorize!({
            let mut sum = 0u64;
            for word in words {
                sum = sum.wrapping_add(*word);
            }
            sum
        })
    };
    pool::reduce(memory.len(), PIECE, sum, u64::wrapping_add).unwrap_or(0)
}
