//! The reference's gradients compared with central differences in float64.

use crate::checkpoints::{files, weights_beside};
use ferrane_llm::config::{Activation, AttentionKind, Config, Rope, RopeScaling, RopeStyle};
use ferrane_llm::random::Rng;
use ferrane_llm::reference::Reference;
use ferrane_llm::weights::{Weights, load_hf};
use ferrane_testdata::Suite;

/// Random weights without neutral values, so that no gain of 1 and no bias of 0 hides a mistake.
pub fn random_weights(config: &Config, seed: u64) -> Weights {
    let mut weights = Weights::zeros(config);
    let mut rng = Rng::new(seed);
    for tensor in weights.tensors_mut(config) {
        let center = if tensor.kind == ferrane_llm::weights::TensorKind::Norm { 1.0 } else { 0.0 };
        tensor.data.iter_mut().for_each(|v| *v = (center + 0.3 * rng.normal()) as f32);
    }
    weights
}

/// A small model with every option on.
pub fn everything() -> Config {
    Config {
        dim: 12,
        hidden: 10,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        vocab: 9,
        max_seq: 16,
        rope: Rope::new(RopeStyle::Half, 100.0),
        local_rope: None,
        norm_eps: 1e-4,
        qk_norm: true,
        qkv_bias: true,
        post_norms: false,
        experts: None,
        activation: Activation::Silu,
        embed_scale: 1.0,
        score_scale: None,
        attn_softcap: None,
        logit_softcap: None,
        sliding_window: Some(3),
        layer_attention: Vec::new(),
        tied: false,
        residual_scale: 0.5,
    }
}

/// A small model with layers that differ, and with a scaled rotation of a part of each head.
pub fn uneven() -> Config {
    let yarn =
        RopeScaling::Yarn { factor: 4.0, original: 8, attention: 1.5, beta_fast: 2.0, beta_slow: 0.1, truncate: false };
    let kind = |window, rope| AttentionKind { window, rope };
    Config {
        rope: Rope { rotated: Some(4), scaling: Some(yarn), ..Rope::new(RopeStyle::Half, 100.0) },
        layer_attention: vec![kind(true, false), kind(false, true)],
        score_scale: Some(0.6),
        ..everything()
    }
}

/// A small model with all parts of Gemma 2 and 3.
pub fn gemma() -> Config {
    Config {
        local_rope: Some(Rope::new(RopeStyle::Half, 30.0)),
        layer_attention: vec![AttentionKind { window: true, rope: true }, AttentionKind { window: false, rope: true }],
        qkv_bias: false,
        post_norms: true,
        activation: Activation::GeluTanh,
        embed_scale: 12f32.sqrt(),
        score_scale: Some(0.6),
        attn_softcap: Some(2.0),
        logit_softcap: Some(3.0),
        residual_scale: 1.0,
        ..everything()
    }
}

/// A small model with every option off.
pub fn plain() -> Config {
    Config {
        rope: Rope::new(RopeStyle::Interleaved, 1e4),
        qk_norm: false,
        qkv_bias: false,
        sliding_window: None,
        tied: true,
        residual_scale: 1.0,
        ..everything()
    }
}

/// The largest relative L2 distance, over the tensors, of `gradients` from central differences of
/// the float64 loss.
fn distance(config: &Config, weights: &Weights, tokens: &[u32], gradients: &Weights<f64>) -> (f64, String) {
    // The truncation error is about step² and the rounding error about 1e-16 / step.
    const STEP: f64 = 1e-5;
    let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
    let mut moved = weights.map(|&v| f64::from(v));
    let mut worst = (0.0, String::new());
    for (index, tensor) in gradients.tensors(config).iter().enumerate() {
        let (mut error, mut norm) = (0.0, 0.0);
        // Every value of a small tensor, evenly spaced values of a large one.
        for i in (0..tensor.data.len()).step_by(tensor.data.len() / 200 + 1) {
            let mut loss_at = |delta: f64| {
                moved.tensors_mut(config)[index].data[i] += delta;
                let loss = Reference::new(config, &moved).unwrap().loss(inputs, targets).unwrap();
                moved.tensors_mut(config)[index].data[i] -= delta;
                loss
            };
            let slope = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
            error += (tensor.data[i] - slope).powi(2);
            norm += slope * slope;
        }
        let relative = (error / norm).sqrt();
        if relative > worst.0 || relative.is_nan() {
            worst = (relative, tensor.name.clone());
        }
    }
    worst
}

#[test]
fn every_option_against_differences() {
    let half_of = |c: Config| Config { sliding_window: None, qkv_bias: false, ..c };
    for (config, seed) in [(everything(), 1), (plain(), 2), (half_of(everything()), 3), (uneven(), 4)] {
        let weights = random_weights(&config, seed);
        let tokens = [3, 1, 4, 1, 5, 8, 2, 6];
        let wide = weights.map(|&v| f64::from(v));
        let mut gradients = Weights::zeros(&config).map(|&v| f64::from(v));
        let model = Reference::new(&config, &wide).unwrap();
        let loss = model.loss_and_gradients(&tokens[..7], &tokens[1..], &mut gradients).unwrap();
        assert_eq!(loss, model.loss(&tokens[..7], &tokens[1..]).unwrap());
        let (worst, name) = distance(&config, &weights, &tokens, &gradients);
        assert!(worst < 1e-6, "float64: {name}: {worst}");

        let mut narrow = Weights::zeros(&config);
        Reference::new(&config, &weights).unwrap().accumulate(&tokens[..7], &tokens[1..], 1.0, &mut narrow).unwrap();
        for (a, b) in narrow.tensors(&config).iter().zip(gradients.tensors(&config)) {
            let b: Vec<f32> = b.data.iter().map(|&v| v as f32).collect();
            let (error, _) = crate::checkpoints::compare(a.data, &b).unwrap();
            // A few hundred roundings of 6e-8 each.
            assert!(error < 1e-5, "float32: {}: {error}", a.name);
        }
    }
}

#[test]
fn a_model_without_gradients_is_refused() {
    let config = gemma();
    let weights = random_weights(&config, 1);
    let model = Reference::new(&config, &weights).unwrap();
    assert!(model.loss(&[1, 2], &[2, 3]).unwrap().is_finite());
    let error = model.accumulate(&[1, 2], &[2, 3], 1.0, &mut Weights::zeros(&config)).unwrap_err();
    assert!(error.to_string().contains("training does not support"), "{error}");
}

/// Hugging Face checkpoints with recorded sequences: fp32 gradients compared with float64
/// differences.
#[test]
fn hugging_face_gradients() {
    let Some(mut suite) = Suite::open("llm hugging face gradients", "checkpoints") else { return };
    for path in files(&suite) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix("_logits.json") else { continue };
        let config = path.with_file_name(format!("{stem}_config.json"));
        // One of the files is enough: another test checks that both give the same weights.
        let found = weights_beside(&path, stem).and_then(|list| load_hf(&config, &list[0]).map_err(|e| e.to_string()));
        let (config, weights) = match found {
            Ok(model) => model,
            Err(e) => {
                suite.case(stem, Err(e));
                continue;
            }
        };
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let tokens: Vec<u32> = serde_json::from_value(value["sequences"][0].clone()).unwrap();
        let mut gradients = Weights::zeros(&config);
        let model = Reference::new(&config, &weights).unwrap();
        model.loss_and_gradients(&tokens[..tokens.len() - 1], &tokens[1..], &mut gradients).unwrap();
        let (worst, tensor) = distance(&config, &weights, &tokens, &gradients.map(|&v| f64::from(v)));
        eprintln!("{stem}: worst gradient {tensor}, relative L2 {worst:.1e} from differences");
        // The bound of fp32 gradients of models of this size.
        suite.case(stem, if worst <= 1e-3 { Ok(()) } else { Err(format!("{tensor}: {worst}")) });
    }
    suite.finish();
}

#[test]
fn weights_of_a_batch_add_up() {
    let config = plain();
    let weights = random_weights(&config, 4);
    let model = Reference::new(&config, &weights).unwrap();
    let (a, b) = ([1u32, 2, 3, 4], [5u32, 6, 7, 8]);
    let mut both = Weights::zeros(&config);
    model.accumulate(&a[..3], &a[1..], 0.5, &mut both).unwrap();
    model.accumulate(&b[..3], &b[1..], 0.5, &mut both).unwrap();
    let (mut first, mut second) = (Weights::zeros(&config), Weights::zeros(&config));
    model.loss_and_gradients(&a[..3], &a[1..], &mut first).unwrap();
    model.loss_and_gradients(&b[..3], &b[1..], &mut second).unwrap();
    for ((sum, x), y) in both.tensors(&config).iter().zip(first.tensors(&config)).zip(second.tensors(&config)) {
        let mean: Vec<f32> = x.data.iter().zip(y.data).map(|(x, y)| (x + y) / 2.0).collect();
        assert!(crate::checkpoints::compare(sum.data, &mean).unwrap().0 < 1e-6, "{}", sum.name);
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let config = Config { vocab: 700, ..everything() };
    let weights = random_weights(&config, 5);
    let tokens: Vec<u32> = (0..40).map(|i| i * 17 % 700).collect();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut gradients = Weights::zeros(&config);
            let model = Reference::new(&config, &weights).unwrap();
            let loss = model.loss_and_gradients(&tokens[..39], &tokens[1..], &mut gradients).unwrap();
            (loss.to_bits(), gradients)
        })
    };
    assert_eq!(run(1), run(5));
}

#[test]
fn decoding_equals_the_whole_sequence_with_every_option() {
    for config in [everything(), plain()] {
        let weights = random_weights(&config, 6);
        let model = Reference::new(&config, &weights).unwrap();
        let tokens = [0, 8, 3, 3, 7, 1, 2];
        let mut decoder = model.decoder();
        let rows: Vec<f32> = tokens.iter().flat_map(|&t| decoder.decode(t).unwrap().to_vec()).collect();
        assert_eq!(rows, model.logits(&tokens).unwrap());
        assert_eq!(decoder.position(), 7);
    }
}

#[test]
fn bad_input_is_an_error() {
    use ferrane_llm::reference::Error;
    let config = plain();
    let weights = random_weights(&config, 7);
    let model = Reference::new(&config, &weights).unwrap();
    assert!(matches!(model.logits(&[1, 9]), Err(Error::Token { token: 9, position: 1, vocab: 9 })));
    assert!(matches!(model.decoder().decode(100), Err(Error::Token { .. })));
    assert!(matches!(model.loss(&[1], &[]), Err(Error::Lengths { .. })));
    assert!(matches!(model.loss(&[], &[]), Err(Error::Lengths { .. })));
    assert!(matches!(model.loss(&[1], &[9]), Err(Error::Token { .. })));
    assert!(model.logits(&[]).unwrap().is_empty());
    let other = everything();
    assert!(matches!(Reference::new(&other, &weights), Err(Error::Weights(_))));
    let mut wrong = Weights::zeros(&other);
    assert!(matches!(model.loss_and_gradients(&[1], &[2], &mut wrong), Err(Error::Weights(_))));
}
