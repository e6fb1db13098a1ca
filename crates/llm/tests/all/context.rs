//! Sequences beyond the context: dropped positions, compared with plain loops in float64 that keep
//! keys without rotation and rotate them by their positions in the cache.

use crate::decode::{models, tokens};
use crate::device::relative_difference;
use crate::gradients::{plain, random_weights, uneven};
use crate::kernels::emulator;
use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions, Faults, Numerics};
use ferrane_llm::config::{Activation, Config};
use ferrane_llm::decode::{ContextPolicy, Decoder, Options};
use ferrane_llm::forward::Error;
use ferrane_llm::generate::NextLogits as _;
use ferrane_llm::reference::Reference;
use ferrane_llm::weights::{Layer, Weights};

/// As in `decode`: roundings to fp16 of activations, weights, keys and values.
const CLOSE: f32 = 8e-3;

fn sinks(context: usize) -> Options {
    Options { context: Some(context), policy: ContextPolicy::Sinks, ..Options::default() }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

fn product(w: &[f32], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
}

fn norm(x: &[f64], gain: &[f32], eps: f32) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(gain).map(|(x, gain)| x * scale * f64::from(*gain)).collect()
}

/// A model without biases, head norms and windows.
struct Streaming<'a> {
    config: &'a Config,
    weights: &'a Weights,
    context: usize,
    /// Keys without rotation, and values, of each layer, by position in the cache.
    cache: Vec<Vec<[Vec<f64>; 2]>>,
}

impl<'a> Streaming<'a> {
    fn new(config: &'a Config, weights: &'a Weights, context: usize) -> Self {
        assert!(!config.qk_norm && !config.qkv_bias && !config.post_norms && config.sliding_window.is_none());
        assert!(config.activation == Activation::Silu && config.attn_softcap.is_none());
        Streaming { config, weights, context, cache: vec![Vec::new(); config.layers] }
    }

    /// Rotates the heads of a row as those of a position.
    fn rotate(&self, layer: usize, row: &[f64], position: usize) -> Vec<f64> {
        let (mut row, config) = (row.to_vec(), self.config);
        let rotation = config.rotation(config.attention(layer), self.context);
        for head in row.chunks_mut(config.head_dim) {
            for i in 0..config.head_dim / 2 {
                let ((a, b), (cos, sin)) = (config.rope.pair(config.head_dim, i), rotation.at(i, position));
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
            }
        }
        row
    }

    fn attend(&self, index: usize, q: &[f64]) -> Vec<f64> {
        let (config, rows) = (self.config, &self.cache[index]);
        let size = config.head_dim;
        let q = self.rotate(index, q, rows.len() - 1);
        let keys: Vec<_> = rows.iter().enumerate().map(|(j, row)| self.rotate(index, &row[0], j)).collect();
        let mut out = vec![0.0; q.len()];
        for (h, (out, q)) in out.chunks_mut(size).zip(q.chunks(size)).enumerate() {
            let at = h / config.gqa_ratio() * size;
            let dot = |k: &Vec<f64>| q.iter().zip(&k[at..at + size]).map(|(a, b)| a * b).sum::<f64>();
            let weights: Vec<f64> = keys.iter().map(|k| (dot(k) * config.score_scale()).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (p, row) in weights.iter().zip(rows) {
                out.iter_mut().zip(&row[1][at..at + size]).for_each(|(out, v)| *out += p / sum * v);
            }
        }
        out
    }

    fn feed(&mut self, token: u32) -> Vec<f32> {
        let (config, weights) = (self.config, self.weights);
        if self.cache[0].len() == self.context {
            // The first four stay, and the oldest quarter of the others goes.
            let count = (self.context - 4) / 4;
            self.cache.iter_mut().for_each(|rows| drop(rows.drain(4..4 + count)));
        }
        let mut x = wide(&weights.embed[token as usize * config.dim..][..config.dim]);
        let add = |x: &mut Vec<f64>, y: Vec<f64>| {
            x.iter_mut().zip(y).for_each(|(x, y)| *x += f64::from(config.residual_scale) * y);
        };
        for (index, layer) in weights.layers.iter().enumerate() {
            let Layer { wq, wk, wv, wo, w1, w2, w3, .. } = layer;
            let normed = norm(&x, &layer.attn_norm, config.norm_eps);
            self.cache[index].push([product(wk, &normed), product(wv, &normed)]);
            add(&mut x, product(wo, &self.attend(index, &product(wq, &normed))));
            let normed = norm(&x, &layer.ffn_norm, config.norm_eps);
            let gate = product(w1, &normed).into_iter().zip(product(w3, &normed));
            let gate: Vec<f64> = gate.map(|(a, b)| a / (1.0 + (-a).exp()) * b).collect();
            add(&mut x, product(w2, &gate));
        }
        let logits = product(weights.classifier_matrix(), &norm(&x, &weights.norm, config.norm_eps));
        logits.into_iter().map(|v| v as f32).collect()
    }
}

/// Models that the plain loops compute: interleaved pairs, and a scaled rotation of a part of each
/// head in some layers, which also scales the keys.
fn streamed() -> [(Config, Weights); 2] {
    let mut uneven = Config { qk_norm: false, qkv_bias: false, sliding_window: None, ..uneven() };
    uneven.layer_attention.iter_mut().for_each(|kind| kind.window = false);
    [plain(), uneven].map(|config| {
        let config = Config { max_seq: 600, ..config };
        let weights = random_weights(&config, 7);
        (config, weights)
    })
}

#[test]
fn dropped_positions_are_those_of_the_plain_loops() {
    for (config, weights) in streamed() {
        for (context, numerics) in [(140, Numerics::Exact), (52, Numerics::Fast)] {
            let tokens = tokens(&config, 400);
            let mut plain = Streaming::new(&config, &weights, context);
            let expected: Vec<_> = tokens.iter().map(|&token| plain.feed(token)).collect();
            let device = emulator(numerics);
            let mut decoder = Decoder::new(&device, &config, &weights, sinks(context)).unwrap();
            let mut worst = [0.0f32; 2];
            for (at, (&token, expected)) in tokens.iter().zip(&expected).enumerate() {
                let found = decoder.feed(&[token]).unwrap();
                let error = relative_difference(found, expected).unwrap();
                let after = usize::from(at >= context);
                worst[after] = worst[after].max(error);
            }
            assert_eq!(decoder.tokens()[..4], tokens[..4]);
            assert_eq!(*decoder.tokens().last().unwrap(), tokens[399]);
            eprintln!("{context} {numerics:?}: {:.1e} within the context, {:.1e} beyond it", worst[0], worst[1]);
            assert!(worst[1] < CLOSE, "{context} {numerics:?}: {worst:?}");
            // The plain loops over whole sequences are the reference, and dropping matters.
            let all = Reference::new(&config, &weights).unwrap().logits(&tokens).unwrap();
            let row = |at: usize| &all[at * config.vocab..][..config.vocab];
            assert!(relative_difference(&expected[context - 1], row(context - 1)).unwrap() < 1e-5);
            assert!(relative_difference(&expected[399], row(399)).unwrap() > 2.0 * CLOSE);
        }
    }
}

#[test]
fn pieces_of_any_length_drop_the_same_positions() {
    for (config, weights) in models() {
        let device = emulator(Numerics::Fast);
        let tokens = tokens(&config, 500);
        let fed = |pieces: &[usize]| {
            let mut decoder = Decoder::new(&device, &config, &weights, sinks(150)).unwrap();
            let (mut at, mut logits) = (0, Vec::new());
            for &count in pieces {
                logits = decoder.feed(&tokens[at..at + count]).unwrap().to_vec();
                at += count;
            }
            (decoder.tokens().to_vec(), logits)
        };
        let (kept, expected) = fed(&[1; 500]);
        assert!(kept.len() <= 150 && kept[..4] == tokens[..4]);
        for pieces in [&[500][..], &[150, 1, 349], &[149, 2, 40, 300, 9], &[151, 348, 1]] {
            let (tokens, logits) = fed(pieces);
            assert_eq!(tokens, kept, "{pieces:?}");
            let error = relative_difference(&logits, &expected).unwrap();
            assert!(error < CLOSE, "{pieces:?} {config:?}: {error}");
        }
    }
}

#[test]
fn several_sequences_drop_positions_each_for_itself() {
    let (config, weights) = models().remove(0);
    let device = emulator(Numerics::Fast);
    let mut decoder = Decoder::new(&device, &config, &weights, Options { slots: 3, ..sinks(60) }).unwrap();
    let sequences: Vec<Vec<u32>> = (0..3).map(|s| tokens(&config, 200 + s).split_off(s)).collect();
    decoder.feed_all(&[(0, &sequences[0][..59]), (1, &sequences[1][..30]), (2, &sequences[2][..100])]).unwrap();
    let mut ends = [59, 30, 100];
    let mut last = Vec::new();
    for _ in 0..40 {
        let feeds: Vec<_> = (0..3).map(|s| (s, &sequences[s][ends[s]..ends[s] + 1])).collect();
        last = decoder.feed_all(&feeds).unwrap().to_vec();
        ends.iter_mut().for_each(|end| *end += 1);
    }
    for (s, found) in last.chunks(config.vocab).enumerate() {
        let mut alone = Decoder::new(&device, &config, &weights, sinks(60)).unwrap();
        let expected = alone.feed(&sequences[s][..ends[s]]).unwrap().to_vec();
        assert!(relative_difference(found, &expected).unwrap() < CLOSE, "{s}");
        assert_eq!(alone.tokens(), decoder.slot_tokens(s));
    }
}

#[test]
fn rows_that_saw_dropped_tokens_are_not_reused() {
    let (config, weights) = models().remove(0);
    let device = emulator(Numerics::Fast);
    let mut decoder = Decoder::new(&device, &config, &weights, sinks(60)).unwrap();
    let tokens = tokens(&config, 100);
    decoder.feed(&tokens).unwrap();
    let prompt = decoder.tokens().to_vec();
    // The kept tokens as a prompt of its own: its rows were not computed with those in between.
    assert_eq!((decoder.reusable(), decoder.reused(&prompt)), (4, 4));
    let found = decoder.resume(&prompt).unwrap().to_vec();
    let expected = Reference::new(&config, &weights).unwrap().logits(&prompt).unwrap();
    assert!(relative_difference(&found, &expected[(prompt.len() - 1) * config.vocab..]).unwrap() < CLOSE);
    assert_eq!(decoder.reused(&prompt), prompt.len() - 1);
    // So does a copy of the sequence, and a new one is whole again.
    decoder.feed(&tokens).unwrap();
    assert_eq!(decoder.reusable(), 4);
    decoder.clear();
    decoder.feed(&tokens[..30]).unwrap();
    assert_eq!(decoder.reusable(), 30);
}

#[test]
fn a_failed_feed_keeps_the_tokens() {
    let (config, weights) = models().remove(0);
    let tokens = tokens(&config, 90);
    for faults in ["evaluate:every 13=fail", "evaluate:every 29=fail"] {
        let mut options = EmulatorOptions::default();
        options.faults = faults.parse::<Faults>().unwrap();
        let device = Device::new(Emulator::new(options));
        let mut decoder = Decoder::new(&device, &config, &weights, sinks(40)).unwrap();
        let (mut failed, mut at) = (0, 0);
        while at < tokens.len() {
            let before = decoder.tokens().to_vec();
            match decoder.feed(&tokens[at..at + 1]) {
                Ok(logits) => {
                    assert!(logits.iter().all(|logit| logit.is_finite()));
                    at += 1;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Device { .. }) && failed < 500, "{error}");
                    assert_eq!(decoder.tokens(), before);
                    failed += 1;
                }
            }
        }
        assert!(failed >= 3 && decoder.tokens()[..4] == tokens[..4], "{failed}");
    }
}

#[test]
fn a_context_that_must_not_be_exceeded() {
    let (config, weights) = models().remove(0);
    let device = emulator(Numerics::Fast);
    let options = Options { policy: ContextPolicy::Error, ..sinks(40) };
    let mut decoder = Decoder::new(&device, &config, &weights, options).unwrap();
    let tokens = tokens(&config, 60);
    assert!(matches!(decoder.feed(&tokens[..41]), Err(Error::Context { found: 41, context: 40 })));
    decoder.feed(&tokens[..39]).unwrap();
    assert_eq!(decoder.room(), 1);
    decoder.feed(&tokens[39..40]).unwrap();
    let error = decoder.feed(&tokens[40..41]).unwrap_err();
    assert_eq!(error.to_string(), "a sequence of 41 tokens exceeds the context of 40");
    assert_eq!(decoder.tokens(), &tokens[..40]);
    // The smallest contexts drop tokens, too.
    for context in [1, 2, 3, 5, 9] {
        let mut decoder = Decoder::new(&device, &config, &weights, sinks(context)).unwrap();
        decoder.feed(&tokens[..30]).unwrap();
        decoder.feed(&tokens[30..31]).unwrap();
        assert!((1..=context).contains(&decoder.tokens().len()));
    }
}
