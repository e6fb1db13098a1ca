//! Tiny models of each family, compared with the logits of transformers.
//!
//! `scripts/llm/families.py` wrote the folders of `tests/families`. Their sequences of 40 tokens
//! are longer than the windows and than the original contexts.

use crate::checkpoints::{ids, largest_difference, name, numbers};
use crate::device::relative_difference;
use crate::kernels::emulator;
use ferrane_emulator::Numerics;
use ferrane_llm::config::{Activation, Config, RopeScaling};
use ferrane_llm::decode::{Decoder, Options};
use ferrane_llm::reference::Reference;
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Weights, load};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A model, a sequence, and its logits `[tokens, vocab]`.
struct Case {
    name: String,
    config: Config,
    weights: Weights,
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

pub fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/families");
    let mut all: Vec<PathBuf> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// Every folder's sequence, and its shorter one, if any, in a model whose context ends with it.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in folders() {
        let (config, weights) = load(&folder, None).unwrap();
        let file = Container::open(&folder.join("logits.safetensors")).unwrap();
        for prefix in ["", "short_"] {
            let (tokens, logits) = (format!("{prefix}tokens"), format!("{prefix}logits"));
            if file.entry(&tokens).is_none() {
                continue;
            }
            let (tokens, logits) = (ids(&file, &tokens).unwrap(), numbers(&file, &logits, f32::from_le_bytes).unwrap());
            let max_seq = if prefix.is_empty() { config.max_seq } else { tokens.len() };
            let config = Config { max_seq, ..config.clone() };
            let name = format!("{prefix}{}", name(&folder));
            cases.push(Case { name, config, weights: weights.clone(), tokens, logits });
        }
    }
    assert!(cases.len() > folders().len());
    cases
}

#[test]
fn the_reference_computes_the_recorded_logits() {
    for case in cases() {
        let model = Reference::new(&case.config, &case.weights).unwrap();
        let found = model.logits(&case.tokens).unwrap();
        let error = largest_difference(&found, &case.logits).unwrap();
        eprintln!("{}: |Δlogit| ≤ {error:.1e}", case.name);
        // Logits lie within ±12, so this is about a hundred roundings to fp32.
        assert!(error < 1e-4, "{}: {error}", case.name);
        let mut decoder = model.decoder();
        for (token, row) in case.tokens.iter().zip(found.chunks(case.config.vocab)) {
            assert_eq!(decoder.decode(*token).unwrap(), row, "{}", case.name);
        }
    }
}

#[test]
fn the_decoder_computes_the_recorded_logits() {
    for case in cases() {
        if case.config.experts.is_some() {
            let device = emulator(Numerics::Fast);
            let made = Decoder::new(&device, &case.config, &case.weights, Options::default());
            assert!(made.err().unwrap().to_string().contains("the fp32 reference runs it"));
            continue;
        }
        let count = case.tokens.len();
        let pieces = [vec![1; count], vec![count], vec![count - 3, 1, 1, 1]];
        let mut worst = 0.0f32;
        let numerics = [Numerics::Fast, Numerics::Exact, Numerics::Hardware];
        for (numerics, pieces) in numerics.into_iter().flat_map(|n| pieces.iter().map(move |p| (n, p))) {
            let device = emulator(numerics);
            let mut decoder = Decoder::new(&device, &case.config, &case.weights, Options::default()).unwrap();
            let mut end = 0;
            for count in pieces {
                let found = decoder.feed(&case.tokens[end..end + count]).unwrap();
                end += count;
                let expected = &case.logits[(end - 1) * case.config.vocab..end * case.config.vocab];
                worst = worst.max(relative_difference(found, expected).unwrap());
            }
        }
        eprintln!("{}: {worst:.1e} of the range", case.name);
        // Activations, weights, keys and values are rounded to fp16 (4.9e-4) in each of up to four
        // layers, the scores of these random models are large, and the hardware's functions come
        // from tables.
        assert!(worst < 2e-2, "{}: {worst}", case.name);
    }
}

/// Configurations without one of their parts, each with the name of the part.
fn without_a_part(config: &Config) -> Vec<(&'static str, Config)> {
    type Edit = fn(&mut Config);
    let edits: [(&str, Edit); 24] = [
        ("scaling", |c| c.rope.scaling = None),
        ("attention factor", |c| {
            if let Some(RopeScaling::Yarn { attention, .. } | RopeScaling::LongRope { attention, .. }) =
                &mut c.rope.scaling
            {
                *attention = 1.0;
            }
        }),
        ("factor", |c| match &mut c.rope.scaling {
            Some(RopeScaling::Linear { factor } | RopeScaling::Llama3 { factor, .. }) => *factor *= 1.1,
            Some(RopeScaling::Yarn { factor, .. }) => *factor *= 1.1,
            _ => {}
        }),
        ("low", |c| {
            if let Some(RopeScaling::Llama3 { low, .. }) = &mut c.rope.scaling {
                *low *= 1.1;
            }
        }),
        ("high", |c| {
            if let Some(RopeScaling::Llama3 { high, .. }) = &mut c.rope.scaling {
                *high *= 1.1;
            }
        }),
        ("beta_fast", |c| {
            if let Some(RopeScaling::Yarn { beta_fast, .. }) = &mut c.rope.scaling {
                *beta_fast = 2.0 * *beta_fast + 20.0;
            }
        }),
        ("beta_slow", |c| {
            if let Some(RopeScaling::Yarn { beta_slow, .. }) = &mut c.rope.scaling {
                *beta_slow *= 0.1;
            }
        }),
        ("truncate", |c| {
            if let Some(RopeScaling::Yarn { truncate, .. }) = &mut c.rope.scaling {
                *truncate = false;
            }
        }),
        ("long divisors", |c| {
            if let Some(RopeScaling::LongRope { original, .. }) = &mut c.rope.scaling {
                *original = if c.max_seq > *original { c.max_seq } else { c.max_seq - 1 };
            }
        }),
        ("base", |c| c.rope.base *= 1.1),
        ("local rope", |c| c.local_rope = None),
        ("local base", |c| {
            if let Some(rope) = &mut c.local_rope {
                rope.base *= 1.1;
            }
        }),
        ("window", |c| {
            c.sliding_window = None;
            c.layer_attention.iter_mut().for_each(|kind| kind.window = false);
        }),
        ("one position of the window", |c| c.sliding_window = c.sliding_window.map(|window| window + 1)),
        ("windows on some layers", |c| {
            let window = c.sliding_window.is_some();
            c.layer_attention.iter_mut().for_each(|kind| kind.window = window);
        }),
        ("rotation of some layers", |c| c.layer_attention.iter_mut().for_each(|kind| kind.rope = true)),
        ("activation", |c| c.activation = Activation::Silu),
        ("embed_scale", |c| c.embed_scale = 1.0),
        ("score_scale", |c| c.score_scale = None),
        ("attn_softcap", |c| c.attn_softcap = None),
        ("logit_softcap", |c| c.logit_softcap = None),
        ("norm_eps", |c| c.norm_eps = 0.1),
        ("active experts", |c| {
            if let Some(experts) = &mut c.experts {
                experts.active = 1;
            }
        }),
        ("normalize", |c| {
            if let Some(experts) = &mut c.experts {
                experts.normalize = false;
            }
        }),
    ];
    let edited = edits.into_iter().map(|(part, edit)| {
        let mut other = config.clone();
        edit(&mut other);
        (part, other)
    });
    edited.filter(|(_, other)| other != config).collect()
}

#[test]
fn every_part_shows_in_the_recorded_logits() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        for (part, other) in without_a_part(&case.config) {
            let found = Reference::new(&other, &case.weights).unwrap().logits(&case.tokens).unwrap();
            let difference = largest_difference(&found, &case.logits).unwrap();
            // A hundred times the tolerance.
            if difference > 1e-2 {
                seen.insert(part);
            } else {
                eprintln!("{}: without {part} the logits differ by {difference:.1e}", case.name);
            }
        }
    }
    assert_eq!(seen.len(), 24, "{seen:?}");
}
