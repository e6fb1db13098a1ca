//! `ferrane generate`: continues a text, streaming to the terminal.

use std::time::{Duration, Instant};

use ferrane::llm::decode::{Decoder, Options};
use ferrane::llm::generate::Generator;
use ferrane::llm::reference::Reference;
use ferrane::llm::sample::Sampler;
use ferrane::llm::tokenizer::Tokenizer;
use serde_json::json;

use crate::args::{Generate, WeightsType};
use crate::error::{Error, Result};
use crate::{model, out};

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
    let mut decoder;
    let mut generator = match &device {
        None if args.weights_type == WeightsType::Int8 => {
            return Err(Error::new("the reference computes in fp32; leave --weights-type out"));
        }
        None => {
            reference = Reference::new(&config, &weights)?;
            Generator::reference(&reference)
        }
        Some(device) => {
            let options = Options { weights: args.weights_type.into(), ..Options::default() };
            decoder = Decoder::new(device, &config, &weights, options)?;
            Generator::device(&mut decoder)
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
    let mut prefill = None;
    generator.generate(&prompt, count, &mut sampler, &stop, |id| {
        prefill.get_or_insert_with(|| begun.elapsed());
        ids.push(id);
        shown = show(stream.push(id));
        shown.is_ok()
    })?;
    shown?;
    show(stream.finish())?;
    let whole = begun.elapsed();
    // A prompt that is followed by nothing was read all the same.
    let prefill = prefill.unwrap_or(whole);
    let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let rates = [
        rate(ids.len(), whole),
        rate(prompt.len(), prefill),
        // The first token comes from the prefill.
        rate(ids.len().saturating_sub(1), whole - prefill),
    ];
    if args.json {
        let object = json!({
            "text": text, "prompt_ids": prompt, "ids": ids, "seconds": whole.as_secs_f64(), "tokens_per_second": rates[0],
            "prefill_tokens_per_second": rates[1], "decode_tokens_per_second": rates[2], "device": args.device.device,
        });
        out::line(object)?;
    } else {
        out::line("")?;
        out::note(format_args!(
            "{} tokens on {}: prompt of {} at {:.1} tokens/s, then {:.1} tokens/s",
            ids.len(),
            args.device.device,
            prompt.len(),
            rates[1],
            rates[2]
        ));
    }
    Ok(())
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
