//! `ferrane bench decode`: prefill and decode of a preset with random weights.
//!
//! A token reads every matrix once, so its time is held against a plain read loop over as much
//! memory, which no cache holds unless it would hold the weights, too: a token can take no less
//! than the time in which that loop reads the bytes of the weights. The loop reads that many before
//! each token, and the share is the median of these pairs, because the rate of memory of a shared
//! machine changes from second to second.

use std::time::{Duration, Instant};

use ferrane::llm::config::{Config, preset};
use ferrane::llm::decode::{Decoder, Options};
use ferrane::llm::random::Rng;
use ferrane::llm::weights::{Init, Weights};
use ferrane_host::ceiling;
use serde_json::json;

use super::machine;
use super::measure::{Spread, repeats, round, short};
use crate::args::BenchDecode;
use crate::error::{Error, Result};
use crate::{model, out};

/// Tokens of prompt and continuation at most.
const MOST: usize = 1 << 20;
/// Prefills, one after the other.
const PREFILLS: usize = 5;
/// Rounds of decode and reading.
const ROUNDS: usize = 3;
/// Words of 8 bytes that the read loop goes over: 512 MiB.
const WORDS: usize = 64 << 20;

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
    let bytes = decoder.bytes_per_token();
    // Another part of the memory each time, so that no cache holds it.
    let mut parts = memory.chunks_exact(bytes.div_ceil(8).clamp(1, WORDS / 2)).cycle();
    let (mut prefill, mut decode, mut read, mut share) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // In a row, as other programs' are measured: behind the read loop every cache would be that
    // loop's.
    for _ in 0..PREFILLS {
        decoder.clear();
        let begun = Instant::now();
        decoder.feed(&prompt)?;
        prefill.push(args.prompt as f64 / begun.elapsed().as_secs_f64());
    }
    for _ in 0..ROUNDS {
        decoder.clear();
        decoder.feed(&prompt)?;
        for _ in 0..args.tokens {
            let rate = ceiling::read_bandwidth(parts.next().unwrap_or(&memory), Duration::ZERO);
            let begun = Instant::now();
            let logits = decoder.feed(&[token()])?;
            if !logits[0].is_finite() {
                return Err(Error::new("a measured token's logits are not finite"));
            }
            let rate_of_tokens = 1.0 / begun.elapsed().as_secs_f64();
            decode.push(rate_of_tokens);
            read.push(rate / 1e9);
            share.push(rate_of_tokens * bytes as f64 / rate);
        }
    }
    let [prefill, decode, read, share] = [prefill, decode, read, share].map(Spread::of);
    if args.json {
        let object = json!({
            "model": args.model, "device": args.device.device, "type": options.weights.name(), "prompt": args.prompt,
            "tokens": args.tokens, "parameters": config.parameters(), "weight_bytes_per_token": bytes,
            "prefill": prefill.json("tokens_per_second"), "decode": decode.json("tokens_per_second"),
            "read": read.json("gb_per_second"), "bandwidth_share": round(share.median()), "machine": machine::describe(),
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
    let (megabytes, percent) = (short(bytes as f64 / 1e6), short(share.median() * 100.0));
    out::line(format_args!("  a token reads {megabytes} MB of weights, at {percent} % of the rate of memory"))
}
