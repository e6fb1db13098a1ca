//! Runs on the pipeline: staging after every update, and bit-exact resuming.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::{Config, Rope, RopeStyle, preset};
use ferrane_llm::layout::{Residual, Shape, WeightForm};
use ferrane_llm::random::Rng;
use ferrane_llm::weights::{Init, TensorKind, Weights};
use ferrane_train::checkpoint::Store;
use ferrane_train::data::Ids;
use ferrane_train::run::{Event, Run, RunOptions, Summary};
use ferrane_train::step::{Engine, Pipeline, ReferenceEngine};

use crate::gradients::{PIPELINES, check, emulator, gradients};
use ferrane_emulator::Numerics;

pub fn tiny() -> Config {
    let base = preset("stories260k").unwrap();
    Config { dim: 16, hidden: 24, layers: 2, heads: 4, kv_heads: 2, head_dim: 4, vocab: 48, max_seq: 64, ..base }
}

/// Learnable ids: each is its predecessor plus 1, with occasional jumps.
pub fn ids() -> Ids {
    let mut rng = Rng::new(11);
    let mut id = 0;
    let draw = |_| {
        id = if rng.below(8) == 0 { rng.below(48) as u32 } else { (id + 1) % 48 };
        id
    };
    Ids::from_slice(&(0..2000).map(draw).collect::<Vec<_>>())
}

pub fn options(out: &Path) -> RunOptions {
    RunOptions {
        steps: 40,
        accum: 2,
        batch: 2,
        seq: 12,
        lr: 1e-2,
        warmup: 5,
        out: out.to_path_buf(),
        eval_every: 20,
        eval_windows: 4,
        save_every: 0,
        save_minutes: 0.0,
        ..RunOptions::default()
    }
}

fn pipeline(weights: &Weights) -> Box<dyn Engine> {
    let shape = Shape::new(tiny(), 12, Residual::Fp32, WeightForm::Packed);
    Box::new(Pipeline::new(&emulator(Numerics::Fast), shape, Compaction::disabled(48), weights).unwrap())
}

fn begin(out: &Path) -> Run {
    let weights = Weights::init(&tiny(), Init::Normal { std: 0.1 }, 1);
    let engine = pipeline(&weights);
    Run::new(options(out), tiny(), weights, ids(), engine).unwrap()
}

pub fn train(run: &mut Run, stop_after: Option<usize>) -> Summary {
    let (stop, mut windows) = (AtomicBool::new(false), 0);
    let mut listen = |event: &Event| {
        windows += usize::from(matches!(event, Event::Window { .. }));
        if stop_after == Some(windows) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    run.run(&mut listen, &stop).unwrap()
}

/// Without staging after an update the device would keep using the initial weights, and the loss
/// would not fall.
#[test]
fn the_loss_falls_and_a_stopped_run_goes_on_to_the_same_bits() {
    let whole = tempfile::tempdir().unwrap();
    let mut run = begin(whole.path());
    let summary = train(&mut run, None);
    // ln 48 is 3.87 at the start; a perfect model of these ids has about 0.86.
    assert!(summary.validation.unwrap().1 < 2.6, "{:?}", summary.validation);
    for after in [30, 79] {
        let folder = tempfile::tempdir().unwrap();
        assert!(train(&mut begin(folder.path()), Some(after)).stopped);
        let store = Store::open(folder.path()).unwrap();
        let checkpoint = store.load(Some(&tiny())).unwrap();
        let engine = pipeline(&checkpoint.weights);
        let mut resumed = Run::resume(options(folder.path()), store, checkpoint, ids(), engine).unwrap();
        assert!(!train(&mut resumed, None).stopped);
        assert!(resumed.weights() == run.weights() && resumed.moments() == run.moments(), "stopped after {after}");
    }
}

/// Random weights without neutral values, so that no gain of 1 and no bias of 0 hides a mistake.
pub fn random_weights(config: &Config) -> Weights {
    let (mut weights, mut rng) = (Weights::zeros(config), Rng::new(5));
    for tensor in weights.tensors_mut(config) {
        let center = if tensor.kind == TensorKind::Norm { 1.0 } else { 0.0 };
        tensor.data.iter_mut().for_each(|v| *v = (center + 0.3 * rng.normal()) as f32);
    }
    weights
}

pub fn window(seq: usize, below: usize) -> (Vec<u32>, Vec<u32>) {
    let ids: Vec<u32> = (0..=seq).map(|i| ((i * i * 7 + 3 * i) % below) as u32).collect();
    (ids[..seq].to_vec(), ids[1..].to_vec())
}

/// Biases, QK-norm, a window, half rotation, grouped heads, an untied classifier and a residual
/// factor at once, in every pipeline and form of weights.
#[test]
fn gradients_with_every_option_match_the_reference() {
    let config = Config {
        rope: Rope::new(RopeStyle::Half, 100.0),
        qk_norm: true,
        qkv_bias: true,
        sliding_window: Some(5),
        tied: false,
        residual_scale: 0.5,
        ..tiny()
    };
    let weights = random_weights(&config);
    let windows = [window(12, config.vocab)];
    let (loss, expected) = gradients(&mut ReferenceEngine::new(config.clone()), &config, &weights, &windows).unwrap();
    for (pipeline, form) in PIPELINES {
        let shape = Shape::new(config.clone(), 12, Residual::Fp32, form).with_pipeline(pipeline);
        let full = Compaction::disabled(config.vocab);
        let mut engine = Pipeline::new(&emulator(Numerics::Fast), shape, full, &weights).unwrap();
        let (found_loss, found) = gradients(&mut engine, &config, &weights, &windows).unwrap();
        // fp16 rounding of activations of order one; the bound for gradients is 3 %.
        assert!((found_loss - loss).abs() < 5e-3, "{pipeline:?} {form:?}: {found_loss} against {loss}");
        check(&found, &expected, &config, 0.999, 0.03).unwrap();
    }
}

/// A compact vocabulary gives the gradients of a model that has only those rows.
#[test]
fn compact_gradients_are_those_of_the_smaller_model() {
    let config = Config { vocab: 20, ..tiny() };
    let weights = random_weights(&config);
    let used: Vec<u32> = vec![1, 2, 5, 8, 13, 14, 19];
    let dim = config.dim;
    let small_config = Config { vocab: used.len(), ..config.clone() };
    let mut small = weights.clone();
    small.embed = used.iter().flat_map(|&id| &weights.embed[id as usize * dim..][..dim]).copied().collect();
    let small_window = window(12, used.len());
    let full = |ids: &[u32]| ids.iter().map(|&i| used[i as usize]).collect::<Vec<u32>>();
    let windows = [(full(&small_window.0), full(&small_window.1))];
    let (loss, expected) =
        gradients(&mut ReferenceEngine::new(small_config.clone()), &small_config, &small, &[small_window]).unwrap();
    let shape = Shape::new(config.clone(), 12, Residual::Fp32, WeightForm::Packed);
    let compaction = Compaction::used(used.iter().copied(), config.vocab);
    let mut engine = Pipeline::new(&emulator(Numerics::Fast), shape, compaction, &weights).unwrap();
    let (found_loss, mut found) = gradients(&mut engine, &config, &weights, &windows).unwrap();
    assert!((found_loss - loss).abs() < 5e-3, "{found_loss} against {loss}");
    for id in (0..config.vocab).filter(|id| !used.contains(&(*id as u32))) {
        assert!(found.embed[id * dim..][..dim].iter().all(|g| *g == 0.0), "row {id}");
    }
    found.embed = used.iter().flat_map(|&id| &found.embed[id as usize * dim..][..dim]).copied().collect();
    check(&found, &expected, &small_config, 0.999, 0.03).unwrap();
}
