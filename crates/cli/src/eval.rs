//! `ferrane eval`: mean loss per token on windows of a text.

use std::time::Instant;

use ferrane::llm::config::Config;
use ferrane::llm::forward::{Forward, Options};
use ferrane::llm::generate::TeacherForced;
use ferrane::llm::reference::Reference;
use ferrane::train::data::{Compaction, Format, Ids, Source, Split};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::Eval;
use crate::error::{Error, Result};
use crate::{model, out};

/// Runs the command.
pub fn run(args: Eval) -> Result<()> {
    model::window(args.seq)?;
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
    let starts = match args.windows {
        0 => (0..fit).map(|i| i * args.seq).collect(),
        count => split.windows(count.min(fit), args.seq),
    };
    let count = starts.len();
    let vocabulary = model::vocabulary(&args.checkpoint);
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
    let (mut sum, mut scored) = (0.0, 0);
    for start in starts {
        let window = ids.window(start, args.seq);
        let (inputs, targets) = window.split_at(args.seq);
        let targets: Vec<u32> = inputs[1..].iter().chain(targets).copied().collect();
        let (loss, tokens) = match &vocabulary {
            None => (model.loss(inputs, &targets)? * args.seq as f64, args.seq),
            Some(vocabulary) => compact_loss(&model.logits(inputs)?, &targets, config.vocab, vocabulary),
        };
        sum += loss;
        scored += tokens;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let tokens = count * args.seq;
    if scored == 0 {
        return Err(Error::new("no token of these data occurred in the data that the model was trained on"));
    }
    let loss = sum / scored as f64;
    if !loss.is_finite() {
        return Err(Error::new(
            "the loss is not finite: the weights are spoilt, or activations overflow on this device",
        ));
    }
    let seconds = begun.elapsed().as_secs_f64();
    if args.json {
        let object = json!({
            "loss": loss, "perplexity": loss.exp(), "windows": count, "seq": args.seq, "tokens": scored,
            "unknown_tokens": tokens - scored, "seconds": seconds, "device": args.device.device,
        });
        out::line(object)?;
    } else {
        out::line(format_args!(
            "loss {loss:.4} per token (perplexity {:.2}) over {count} windows of {} tokens",
            loss.exp(),
            args.seq
        ))?;
        if scored < tokens {
            out::note(format_args!(
                "{} tokens did not occur in the data that the model was trained on and are left out; training with \
                 --vocabulary full counts them",
                tokens - scored
            ));
        }
        out::note(format_args!("{:.0} tokens/s on {}", tokens as f64 / seconds.max(1e-9), args.device.device));
    }
    Ok(())
}

/// Summed loss over the ids that the run's loss ran over, and the number of targets among them: of
/// the others the model has learned nothing.
fn compact_loss(logits: &[f32], targets: &[u32], vocab: usize, vocabulary: &Compaction) -> (f64, usize) {
    let (mut sum, mut scored) = (0.0, 0);
    for (row, &target) in logits.chunks_exact(vocab).zip(targets) {
        if vocabulary.compact(target).is_none() {
            continue;
        }
        let used = || vocabulary.compact_to_full().iter().map(|&id| f64::from(row[id as usize]));
        let top = used().fold(f64::NEG_INFINITY, f64::max);
        sum += used().map(|v| (v - top).exp()).sum::<f64>().ln() + top - f64::from(row[target as usize]);
        scored += 1;
    }
    (sum, scored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compact_loss_leaves_other_ids_out() {
        // The second id's logit would change a loss over all; among ids 0 and 2 both are even.
        let vocabulary = Compaction::used([0, 2], 3);
        let (sum, scored) = compact_loss(&[1.0, 9.0, 1.0, 4.0, 0.0, 4.0, 0.0, 0.0, 0.0], &[0, 2, 1], 3, &vocabulary);
        assert!((sum - 2.0 * 2f64.ln()).abs() < 1e-12);
        assert_eq!(scored, 2);
    }
}
