//! `ferrane generate`: continues a text, streaming to the terminal.

use std::time::{Duration, Instant};

use ferrane::llm::decode::Options;
use ferrane::llm::sample::Sampler;
use serde_json::json;

use crate::args::Generate;
use crate::error::{Error, Result};
use crate::{model, out};

/// Prints the prompt, then each piece as it is generated, then the rates.
pub fn run(args: Generate) -> Result<()> {
    if args.steps == 0 {
        return Err(Error::new("--steps 0 generates nothing; give 1 or more"));
    }
    let device = model::device(&args.device.device)?;
    let companions = &args.companions;
    let model = model::open_adapted(&args.checkpoint, args.tokenizer.as_deref(), &companions.adapter)?;
    let small = model::open_draft(companions, &model)?;
    let (weights, policy) = (args.weights_type.into(), args.context_policy.into());
    let options = Options { weights, context: model::context(args.context)?, policy, ..Options::default() };
    let sampling = args.sampling.sampling(&model.generation, Some(args.seed));
    let sampler = Sampler::new(&sampling)?;
    let generator = model.generator(device.as_ref(), options, sampler)?;
    let mut generator = generator.stop_at(&[], &args.sampling.stop);
    if let Some(constraint) = model::constraint(&model, &args.grammar)? {
        generator = generator.constrain(constraint);
    }
    if let Some(draft) = model::draft(small.as_ref(), device.as_ref(), options, companions)? {
        generator = generator.with_draft(draft);
    }
    let prompt = generator.prompt_ids(&args.prompt)?;
    let tokens = prompt.len();
    if tokens > args.steps {
        return Err(Error::new(format!(
            "the prompt has {tokens} tokens, --steps allows {} in all; give more --steps",
            args.steps
        )));
    }
    // `--steps` does not count the begin token.
    let mut pieces = generator.generate_ids(prompt, args.steps + 1 - tokens);
    let mut text = pieces.prompt_text().to_string();
    let show = |piece: &str| if args.json { Ok(()) } else { out::print(piece) };
    show(&text)?;
    let mut ids = Vec::new();
    let begun = Instant::now();
    let mut prefill = None;
    for piece in &mut pieces {
        let piece = piece?;
        if let Some(id) = piece.id {
            prefill.get_or_insert_with(|| begun.elapsed());
            ids.push(id);
        }
        show(&piece.text)?;
        text.push_str(&piece.text);
    }
    let whole = begun.elapsed();
    // If there is no continuation, all of the time is prefill.
    let prefill = prefill.unwrap_or(whole);
    let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let (all, read) = (rate(ids.len(), whole), rate(tokens, prefill));
    // The prefill also computes the first token.
    let decoded = rate(ids.len().saturating_sub(1), whole - prefill);
    let device = &args.device.device;
    let prompt_ids = pieces.prompt_ids().to_vec();
    drop(pieces);
    let draft = generator.draft().map(|draft| draft.stats());
    if args.json {
        let mut result = json!({
            "text": text, "prompt_ids": prompt_ids, "ids": ids, "seconds": whole.as_secs_f64(),
            "tokens_per_second": all, "prefill_tokens_per_second": read, "decode_tokens_per_second": decoded,
            "device": device,
        });
        if let Some(stats) = draft {
            result["draft"] = model::draft_json(stats);
        }
        return out::line(result);
    }
    out::line("")?;
    out::note(format_args!(
        "{} tokens on {device}: prompt of {tokens} at {read:.1} tokens/s, then {decoded:.1} tokens/s",
        ids.len()
    ));
    if let Some(stats) = draft {
        out::note(model::draft_text(stats));
    }
    Ok(())
}
