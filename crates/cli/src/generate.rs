//! `ferrane generate`: continues a text, streaming to the terminal.

use std::time::Instant;

use ferrane::llm::config::Config;
use ferrane::llm::forward::{Forward, Options};
use ferrane::llm::generate::Generator;
use ferrane::llm::reference::Reference;
use ferrane::llm::sample::Sampler;
use ferrane::llm::tokenizer::Tokenizer;
use ferrane::llm::weights::Weights;
use serde_json::json;

use crate::args::Generate;
use crate::error::{Error, Result};
use crate::{model, out};

/// Tokens in the device's window at most: each new token costs a whole window.
const WINDOW: usize = 256;

/// Runs the command.
pub fn run(args: Generate) -> Result<()> {
    if args.steps == 0 {
        return Err(Error::new("--steps 0 leaves nothing to generate; give 1 or more"));
    }
    let device = model::device(&args.device.device)?;
    let (config, weights) = model::load(&args.checkpoint)?;
    let Some(tokenizer) = model::tokenizer(args.tokenizer.as_deref(), &args.checkpoint)? else {
        let checkpoint = args.checkpoint.display();
        return Err(Error::new(format!("no tokenizer lies with {checkpoint}; name one with --tokenizer")));
    };
    model::fits(&tokenizer, &config)?;
    let mut sampler = Sampler::new(args.temperature, args.top_p, args.seed)?;
    if let Some(vocabulary) = model::vocabulary(&args.checkpoint) {
        sampler = sampler.only(vocabulary.compact_to_full());
    }
    let prompt = prompt_ids(&tokenizer, &args.prompt)?;
    if prompt.len() > args.steps {
        let (tokens, steps) = (prompt.len(), args.steps);
        return Err(Error::new(format!(
            "the prompt has {tokens} tokens, --steps allows {steps} in all; give more --steps"
        )));
    }
    // The first token begins the text and is no part of it.
    let count = args.steps + 1 - prompt.len();
    let reference;
    let mut forward;
    let mut generator = match &device {
        None => {
            reference = Reference::new(&config, &weights)?;
            Generator::reference(&reference)
        }
        Some(device) => {
            forward = open(device, &config, &weights, args.steps)?;
            Generator::device(&mut forward)
        }
    };
    let stop: Vec<u32> = [tokenizer.bos(), tokenizer.eos()].into_iter().flatten().collect();
    let (mut text, mut ids) = (String::new(), Vec::new());
    let mut stream = tokenizer.stream();
    let mut show = |piece: String| {
        text.push_str(&piece);
        if args.json { Ok(()) } else { out::print(piece) }
    };
    for &id in &prompt {
        show(stream.push(id))?;
    }
    let mut shown = Ok(());
    let begun = Instant::now();
    generator.generate(&prompt, count, &mut sampler, &stop, |id| {
        ids.push(id);
        shown = show(stream.push(id));
        shown.is_ok()
    })?;
    shown?;
    show(stream.finish())?;
    let seconds = begun.elapsed().as_secs_f64();
    let rate = ids.len() as f64 / seconds.max(1e-9);
    if args.json {
        let object = json!({
            "text": text, "prompt_ids": prompt, "ids": ids, "seconds": seconds, "tokens_per_second": rate,
            "device": args.device.device,
        });
        out::line(object)?;
    } else {
        out::line("")?;
        out::note(format_args!("{} tokens, {rate:.1} tokens/s on {}", ids.len(), args.device.device));
    }
    Ok(())
}

/// A forward pass with a window that holds what will be generated, up to [`WINDOW`].
pub fn open(device: &ferrane::Device, config: &Config, weights: &Weights, steps: usize) -> Result<Forward> {
    let seq = steps.clamp(16, WINDOW).next_multiple_of(16).min(config.max_seq.max(1));
    Ok(Forward::new(device, config, weights, seq, Options::default())?)
}

/// The token that begins a text, then the prompt.
fn prompt_ids(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    let mut ids: Vec<u32> = tokenizer.bos().or(tokenizer.eos()).into_iter().collect();
    ids.extend(tokenizer.encode(prompt));
    if ids.is_empty() {
        return Err(Error::new("this tokenizer has no token that begins a text; give a --prompt"));
    }
    Ok(ids)
}
