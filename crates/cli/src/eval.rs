//! `ferrane eval`: mean loss per token on windows of a text.

use std::time::Instant;

use ferrane::llm::config::Config;
use ferrane::llm::evaluate::{evaluate, teacher_forced};
use ferrane::train::data::{Corpus, Source};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::Eval;
use crate::data::EncodingBar;
use crate::error::Result;
use crate::{model, out};

/// Evaluates the model on the windows that the arguments select, and prints the mean loss.
pub fn run(args: Eval) -> Result<()> {
    model::window(args.seq)?;
    let device = model::device(&args.device.device)?;
    let model = model::open_adapted(&args.checkpoint, args.tokenizer.as_deref(), &args.adapter)?;
    let config = Config { max_seq: model.config.max_seq.max(args.seq), ..model.config.clone() };
    let mut source = Source::new(model.tokenizer.as_ref(), config.vocab);
    source.field = args.reading.data_field.as_deref().unwrap_or(source.field);
    source.bad_rows = args.reading.bad_rows.unwrap_or(source.bad_rows);
    source.cache = args.reading.data_cache.as_deref();
    let mut encoding = EncodingBar::default();
    let corpus = Corpus::open(&args.data, &source, &mut |event| encoding.event(event, args.json))?;
    encoding.finish();
    let positions = corpus.evaluation(args.seq, args.windows)?;
    let mut forced = teacher_forced(&model, &config, device.as_ref(), args.seq)?;
    let bar = if args.json { ProgressBar::hidden() } else { ProgressBar::new(positions.len() as u64) };
    // A file of ids that changes ends the windows, and the command after them.
    let mut failed = None;
    let windows = positions.into_iter().map_while(|at| corpus.window(at, args.seq).map_err(|e| failed = Some(e)).ok());
    let begun = Instant::now();
    let found = evaluate(&mut *forced, model.vocabulary.as_ref(), windows, || bar.inc(1))?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let device = &args.device.device;
    if args.json {
        return out::line(json!({
            "loss": found.loss, "perplexity": found.perplexity(), "windows": found.windows, "seq": args.seq,
            "tokens": found.scored, "unknown_tokens": found.unknown, "seconds": seconds, "device": device,
        }));
    }
    out::line(format_args!(
        "loss {:.4} per token (perplexity {:.2}) over {} windows of {} tokens",
        found.loss,
        found.perplexity(),
        found.windows,
        args.seq
    ))?;
    if found.unknown > 0 {
        out::note(format_args!(
            "{} tokens did not occur in the data that the model was trained on and are left out; training with \
             --vocabulary full counts them",
            found.unknown
        ));
    }
    let tokens = found.scored + found.unknown;
    out::note(format_args!("{:.0} tokens/s on {device}", tokens as f64 / seconds.max(1e-9)));
    Ok(())
}
