//! `ferrane eval`: mean loss per token on windows of a text.

use std::time::Instant;

use ferrane::llm::config::Config;
use ferrane::llm::forward::{Forward, Options};
use ferrane::llm::generate::TeacherForced;
use ferrane::llm::reference::Reference;
use ferrane::train::data::{Format, Ids, Source, Split};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::Eval;
use crate::error::{Error, Result};
use crate::{model, out};

/// Runs the command.
pub fn run(args: Eval) -> Result<()> {
    if args.seq == 0 {
        return Err(Error::new("--seq 0 is no window; give 1 or more"));
    }
    let device = model::device(&args.device.device)?;
    let (config, weights) = model::load(&args.checkpoint)?;
    let config = Config { max_seq: config.max_seq.max(args.seq), ..config };
    let tokenizer = model::tokenizer(args.tokenizer.as_deref(), &args.checkpoint)?;
    if let Some(tokenizer) = &tokenizer {
        model::fits(tokenizer, &config)?;
    }
    let cache = std::env::temp_dir();
    let source =
        Source { format: Format::Auto, tokenizer: tokenizer.as_ref(), vocabulary: config.vocab, cache: Some(&cache) };
    let ids = Ids::open(&args.data, &source)?;
    // All of the data is validation here.
    let split = Split { train: 0..0, valid: 0..ids.len() };
    if ids.len() <= args.seq {
        let (have, need) = (ids.len(), args.seq + 1);
        return Err(Error::new(format!(
            "the data have {have} tokens, a window needs {need}; give more text or a smaller --seq"
        )));
    }
    let fit = (ids.len() - 1) / args.seq;
    let count = if args.windows == 0 { fit } else { args.windows.min(fit) };
    let mut reference;
    let mut forward;
    let model: &mut dyn TeacherForced = match &device {
        None => {
            reference = Reference::new(&config, &weights)?;
            &mut reference
        }
        Some(device) => {
            forward = Forward::new(device, &config, &weights, args.seq, Options::default())?;
            &mut forward
        }
    };
    let begun = Instant::now();
    let bar = if args.json { ProgressBar::hidden() } else { ProgressBar::new(count as u64) };
    let mut sum = 0.0;
    for start in split.windows(count, args.seq) {
        let window = ids.window(start, args.seq);
        sum += model.loss(&window[..args.seq], &window[1..])?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let loss = sum / count as f64;
    let seconds = begun.elapsed().as_secs_f64();
    let tokens = count * args.seq;
    if args.json {
        let object = json!({
            "loss": loss, "perplexity": loss.exp(), "windows": count, "seq": args.seq, "tokens": tokens,
            "seconds": seconds, "device": args.device.device,
        });
        out::line(object)?;
    } else {
        out::line(format_args!(
            "loss {loss:.4} per token (perplexity {:.2}) over {count} windows of {} tokens",
            loss.exp(),
            args.seq
        ))?;
        out::note(format_args!("{:.0} tokens/s on {}", tokens as f64 / seconds.max(1e-9), args.device.device));
    }
    Ok(())
}
