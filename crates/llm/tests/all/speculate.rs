//! Speculative decoding: the distribution of the text, and greedy texts, with and without a draft.

use crate::gradients::{everything, plain, random_weights};
use crate::kernels::emulator;
use ferrane_device::Device;
use ferrane_emulator::Numerics;
use ferrane_llm::config::Config;
use ferrane_llm::decode::{Decoder, Options};
use ferrane_llm::generate::{NextLogits, Tokens};
use ferrane_llm::random::Rng;
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{Sampler, Sampling};
use ferrane_llm::speculate::{Draft, DraftStats};
use ferrane_llm::weights::Weights;

/// Weights near `weights`: a draft that is right often, but not always.
fn near(config: &Config, weights: &Weights, distance: f64) -> Weights {
    let (mut near, mut rng) = (weights.clone(), Rng::new(11));
    for tensor in near.tensors_mut(config) {
        tensor.data.iter_mut().for_each(|v| *v += (distance * rng.normal()) as f32);
    }
    near
}

/// Continues `prompt` with a draft, or without one.
fn text(
    model: &mut dyn NextLogits,
    draft: Option<&mut Draft<'_>>,
    sampler: &mut Sampler,
    prompt: &[u32],
    count: usize,
) -> Vec<u32> {
    Tokens::new(model, prompt, count, sampler, &[]).with_draft(draft).map(Result::unwrap).collect()
}

/// The probability of each text of `count` tokens, by its number in base `vocab`.
fn probabilities(
    model: &mut dyn NextLogits,
    sampling: &Sampling,
    prompt: &[u32],
    count: usize,
    vocab: usize,
) -> Vec<f64> {
    let mut all = vec![(Vec::new(), 1.0)];
    for _ in 0..count {
        let mut next = Vec::new();
        for (text, p) in all {
            let mut sampler = Sampler::new(sampling).unwrap();
            sampler.begin(prompt);
            text.iter().for_each(|&id| sampler.accept(id));
            let logits = model.resume(&[prompt, &text].concat()).unwrap().to_vec();
            for (id, q) in sampler.distribution(&logits, None).unwrap() {
                next.push(([text.as_slice(), &[id]].concat(), p * f64::from(q)));
            }
        }
        all = next;
    }
    let mut table = vec![0.0; vocab.pow(count as u32)];
    all.iter().for_each(|(text, p)| table[number(text, vocab)] = *p);
    table
}

fn number(text: &[u32], vocab: usize) -> usize {
    text.iter().fold(0, |n, &id| n * vocab + id as usize)
}

/// Pearson's statistic over the texts that are expected at least 5 times, the others together as
/// one, in standard deviations above its mean.
fn deviation(seen: &[usize], expected: &[f64]) -> f64 {
    let total: usize = seen.iter().sum();
    let (mut cells, mut rest) = (Vec::new(), (0.0, 0.0));
    for (&seen, p) in seen.iter().zip(expected) {
        let (seen, expected) = (seen as f64, p * total as f64);
        if *p == 0.0 {
            assert_eq!(seen, 0.0, "a text that cannot occur");
        } else if expected >= 5.0 {
            cells.push((seen, expected));
        } else {
            rest = (rest.0 + seen, rest.1 + expected);
        }
    }
    cells.extend((rest.1 > 0.0).then_some(rest));
    let statistic: f64 = cells.iter().map(|(seen, expected)| (seen - expected).powi(2) / expected).sum();
    let freedom = cells.len() as f64 - 1.0;
    assert!(freedom > 20.0, "{freedom} degrees of freedom are too few");
    (statistic - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn the_distribution_is_that_of_the_model() {
    let config = plain();
    let weights = random_weights(&config, 7);
    let other = near(&config, &weights, 0.1);
    let (model, small) = (Reference::new(&config, &weights).unwrap(), Reference::new(&config, &other).unwrap());
    let prompt = [3, 1, 4];
    const COUNT: usize = 3;
    let penalties =
        Sampling { repetition_penalty: 1.4, presence_penalty: 0.5, frequency_penalty: 0.3, ..Sampling::default() };
    for (name, sampling, window) in [
        ("plain", Sampling { temperature: 1.3, ..Sampling::default() }, None),
        ("top-k", Sampling { temperature: 2.0, top_k: Some(6), ..Sampling::default() }, None),
        ("top-p, min-p", Sampling { temperature: 2.0, top_p: 0.95, min_p: 0.02, ..Sampling::default() }, None),
        ("penalties", Sampling { temperature: 1.5, ..penalties.clone() }, None),
        ("windowed penalties", Sampling { temperature: 1.5, ..penalties }, Some(2)),
    ] {
        let sampling = Sampling { penalty_window: window, seed: Some(5), ..sampling };
        let expected = probabilities(&mut model.decoder(), &sampling, &prompt, COUNT, config.vocab);
        assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        let mut sampler = Sampler::new(&sampling).unwrap();
        let (mut target, mut draft) = (model.decoder(), Draft::new(Box::new(small.decoder()), 2));
        let mut seen = vec![0; expected.len()];
        for _ in 0..20_000 {
            let text = text(&mut target, Some(&mut draft), &mut sampler, &prompt, COUNT);
            seen[number(&text, config.vocab)] += 1;
        }
        let stats = draft.stats();
        let (rate, deviation) = (stats.rate().unwrap(), deviation(&seen, &expected));
        eprintln!("{name}: {:.1} % accepted, {deviation:.2} standard deviations", 100.0 * rate);
        // Rejections must be seen, and acceptances.
        assert!((0.3..0.99).contains(&rate), "{name}: {rate}");
        // The same test without a draft stays below 2; a sampler that accepts everything gives
        // hundreds.
        assert!(deviation.abs() < 4.0, "{name}: {deviation}");
        // The statistic notices a distribution that is slightly different.
        let cooler = Sampling { temperature: sampling.temperature * 0.75, ..sampling };
        let wrong = probabilities(&mut model.decoder(), &cooler, &prompt, COUNT, config.vocab);
        if wrong.iter().zip(&expected).all(|(a, b)| (*a > 0.0) == (*b > 0.0)) {
            assert!(self::deviation(&seen, &wrong) > 6.0, "{name}");
        }
    }
}

#[test]
fn greedy_texts_are_the_same() {
    for (config, seed) in [(plain(), 1), (everything(), 2)] {
        let config = Config { max_seq: 600, vocab: 40, ..config };
        let weights = random_weights(&config, seed);
        let other = near(&config, &weights, 0.02);
        let (model, small) = (Reference::new(&config, &weights).unwrap(), Reference::new(&config, &other).unwrap());
        let run = |draft: Option<&mut Draft<'_>>, count| {
            let mut sampler = Sampler::new(&Sampling { repetition_penalty: 1.2, ..Sampling::greedy() }).unwrap();
            text(&mut model.decoder(), draft, &mut sampler, &[1, 5], count)
        };
        let expected = run(None, 60);
        for count in 0..6 {
            let mut draft = Draft::new(Box::new(small.decoder()), count);
            assert_eq!(run(Some(&mut draft), 60), expected, "{count}");
            let DraftStats { rounds, proposed, accepted } = draft.stats();
            assert_eq!(proposed == 0, count == 0);
            assert!(accepted <= proposed && proposed <= rounds * count);
            eprintln!("{count} proposals: {accepted} of {proposed} accepted in {rounds} rounds");
            // A second text with the same draft, of other lengths.
            assert_eq!(run(Some(&mut draft), 7), expected[..7], "{count}");
        }
        // The model as its own draft: everything is accepted, so a round emits all of its tokens.
        let mut draft = Draft::new(Box::new(model.decoder()), 4);
        assert_eq!(run(Some(&mut draft), 61), run(None, 61));
        assert_eq!(draft.stats(), DraftStats { rounds: 12, proposed: 48, accepted: 48 });
    }
}

#[test]
fn a_device_computes_the_proposals_in_one_window() {
    let config = Config { max_seq: 600, vocab: 40, ..plain() };
    let weights = random_weights(&config, 3);
    let other = near(&config, &weights, 0.05);
    let device: Device = emulator(Numerics::Exact);
    let new = |weights, context| {
        let options = Options { context: Some(context), ..Options::default() };
        Decoder::new(&device, &config, weights, options).unwrap()
    };
    let run = |draft: Option<&mut Draft<'_>>, context, count| {
        let mut sampler = Sampler::new(&Sampling { repetition_penalty: 1.2, ..Sampling::greedy() }).unwrap();
        let mut model = new(&weights, context);
        let found = text(&mut model, draft, &mut sampler, &[1, 5, 2], count);
        (found, model.tokens().len())
    };
    for (context, count) in [(600, 200), (50, 120)] {
        let expected = run(None, context, count).0;
        let mut draft = Draft::new(Box::new(new(&other, context)), 4);
        let (found, fed) = run(Some(&mut draft), context, count);
        assert_eq!(found, expected);
        assert!(fed <= context);
        let stats = draft.stats();
        eprintln!("context {context}: {stats:?}");
        assert!((0.1..1.0).contains(&stats.rate().unwrap()) && stats.accepted + stats.rounds <= count);
    }
    // The sampled text ends where it should.
    let mut sampler = Sampler::new(&Sampling { seed: Some(1), ..Sampling::default() }).unwrap();
    let mut draft = Draft::new(Box::new(new(&other, 600)), 7);
    for count in [0, 1, 2, 30] {
        assert_eq!(text(&mut new(&weights, 600), Some(&mut draft), &mut sampler, &[4], count).len(), count);
    }
}
