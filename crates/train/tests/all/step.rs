//! The step around the device: the same bits on any number of threads, staging during an update,
//! the timeline.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use ferrane_emulator::Numerics;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::{Config, Rope, RopeStyle};
use ferrane_llm::layout::{Kernel, PipelineKind, Residual, Shape, WeightForm};
use ferrane_llm::weights::Weights;
use ferrane_train::metrics::Timeline;
use ferrane_train::optim::{AdamW, Gradients, Moments, Update, norms};
use ferrane_train::step::{Engine, Pipeline};

use crate::gradients::{PIPELINES, emulator};
use crate::run::{random_weights, tiny, window};

const SEQ: usize = 24;

/// A model with every optional tensor, and a compact vocabulary.
fn full() -> (Config, Compaction) {
    let config = Config {
        rope: Rope::new(RopeStyle::Half, 100.0),
        qk_norm: true,
        qkv_bias: true,
        tied: false,
        // Large enough for more than one task of the element-wise passes, and more than one tile of
        // the update.
        dim: 64,
        head_dim: 16,
        hidden: 1040,
        vocab: 3000,
        ..tiny()
    };
    let used = (0..1500).map(|i| 2 * i + 1).chain(0..48);
    let vocabulary = Compaction::used(used, config.vocab);
    (config, vocabulary)
}

type Form = (PipelineKind, WeightForm);

const DYNAMIC: Form = (PipelineKind::Dynamic, WeightForm::Packed);

fn pipeline(config: &Config, vocabulary: &Compaction, (kind, form): Form, weights: &Weights) -> Pipeline {
    let shape = Shape::new(config.clone(), SEQ, Residual::Fp32, form).with_pipeline(kind);
    Pipeline::new(&emulator(Numerics::Fast), shape, vocabulary.clone(), weights).unwrap()
}

/// As [`pipeline`], with the activations of `layers` layers.
fn recomputing(
    config: &Config,
    vocabulary: &Compaction,
    (kind, form): Form,
    weights: &Weights,
    layers: usize,
) -> Pipeline {
    let shape = Shape::new(config.clone(), SEQ, Residual::Fp16, form).with_pipeline(kind);
    let (device, layers) = (emulator(Numerics::Fast), NonZeroUsize::new(layers));
    Pipeline::recomputing(&device, shape, vocabulary.clone(), weights, layers).unwrap()
}

fn bits(config: &Config, weights: &Weights) -> Vec<u32> {
    weights.tensors(config).iter().flat_map(|t| t.data.iter().map(|v| v.to_bits())).collect()
}

/// Two updates of two windows each: losses, norms, gradients, weights and moments.
fn train(config: &Config, vocabulary: &Compaction, form: Form) -> (Vec<u64>, Vec<u32>) {
    let mut weights = random_weights(config);
    let mut engine = pipeline(config, vocabulary, form, &weights);
    let (mut gradients, mut moments) = (Gradients::new(config), Moments::zeros(config));
    let (mut numbers, mut values) = (Vec::new(), Vec::new());
    for count in 1..=2 {
        for below in [48, 40] {
            let (inputs, targets) = window(SEQ, below);
            let step = engine.micro_step(&weights, &mut gradients, &inputs, &targets, 64.0).unwrap();
            assert!(step.finite);
            numbers.extend([u64::from(step.loss.to_bits()), u64::from(step.max_dy.to_bits())]);
        }
        numbers.push(norms(config, &gradients).total.to_bits());
        values.extend(bits(config, gradients.values().unwrap()));
        let (optimizer, lr, factor) = (AdamW::default(), 1e-2, 1.0 / 128.0);
        let (weights, gradients, moments) = (&mut weights, &mut gradients, &mut moments);
        engine.update(Update { optimizer, config, weights, gradients, moments, lr, factor, count }).unwrap();
    }
    // The device uses the new weights, like one on which they are staged all at once.
    let (inputs, targets) = window(SEQ, 48);
    let found = engine.loss(&weights, &inputs, &targets).unwrap();
    let want = pipeline(config, vocabulary, form, &weights).loss(&weights, &inputs, &targets).unwrap();
    assert_eq!(found.to_bits(), want.to_bits(), "{form:?}");
    assert_ne!(u64::from(found.to_bits()), numbers[0], "the updates changed something");
    for part in [&weights, moments.m(), moments.v()] {
        values.extend(bits(config, part));
    }
    (numbers, values)
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let (config, vocabulary) = full();
    for form in PIPELINES {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| train(&config, &vocabulary, form))
        };
        let one = run(1);
        for threads in [2, 3] {
            let other = run(threads);
            assert_eq!(one.0, other.0, "{form:?}, {threads} threads");
            assert!(one.1 == other.1, "{form:?}, {threads} threads: gradients, weights or moments");
        }
    }
}

/// Losses and gradients of two windows that are added, with segments of one layer, of two with a
/// rest, of all, and of more than there are.
#[test]
fn activations_that_are_computed_again_change_no_bit() {
    let (config, vocabulary) = full();
    let config = Config { layers: 5, ..config };
    let weights = random_weights(&config);
    for form in PIPELINES {
        let run = |layers: usize| {
            let mut engine = recomputing(&config, &vocabulary, form, &weights, layers);
            let mut gradients = Gradients::new(&config);
            let numbers = [48, 40].map(|below| {
                let (inputs, targets) = window(SEQ, below);
                let step = engine.micro_step(&weights, &mut gradients, &inputs, &targets, 64.0).unwrap();
                assert!(step.finite);
                (step.loss.to_bits(), step.max_dy.to_bits())
            });
            (numbers, bits(&config, gradients.values().unwrap()), engine.memory().activations)
        };
        let all = run(0);
        for layers in [1, 2, 3, 5, 9] {
            let some = run(layers);
            assert_eq!(some.0, all.0, "{form:?}, {layers} layers");
            assert!(some.1 == all.1, "{form:?}, {layers} layers: gradients");
            // Spare buffers of products are counted too; how many there are depends on timing.
            assert!(layers >= 3 || some.2 < all.2, "{form:?}, {layers} layers: {} of {} bytes", some.2, all.2);
        }
    }
}

/// The sum over two windows equals the two gradients added: the first overwrites older values.
#[test]
fn the_first_window_overwrites_and_the_others_add() {
    let (config, vocabulary) = full();
    let weights = random_weights(&config);
    let mut engine = pipeline(&config, &vocabulary, DYNAMIC, &weights);
    let mut run = |gradients: &mut Gradients, below: usize| {
        let (inputs, targets) = window(SEQ, below);
        assert!(engine.micro_step(&weights, gradients, &inputs, &targets, 64.0).unwrap().finite);
    };
    let (mut one, mut two, mut both) = (Gradients::new(&config), Gradients::new(&config), Gradients::new(&config));
    run(&mut one, 48);
    run(&mut two, 30);
    // Cleared gradients leave no trace.
    run(&mut both, 41);
    both.clear();
    run(&mut both, 48);
    run(&mut both, 30);
    let sums = [&one, &two, &both].map(|g| g.values().unwrap());
    let [one, two, both] = sums.map(|w| w.tensors(&config));
    for ((one, two), both) in one.iter().zip(&two).zip(&both) {
        let size = both.data.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!(size > 0.0, "{}", both.name);
        for ((a, b), sum) in one.data.iter().zip(two.data).zip(both.data) {
            // The order of additions may differ by one rounding of the sum.
            assert!((a + b - sum).abs() <= 1e-5 * size, "{}: {a} + {b} is not {sum}", both.name);
        }
    }
}

#[test]
fn a_timeline_has_every_kernel_and_nests() {
    let (config, vocabulary) = full();
    let mut weights = random_weights(&config);
    let mut engine = pipeline(&config, &vocabulary, DYNAMIC, &weights);
    let timeline = Timeline::new(2);
    engine.record(&timeline);
    let (mut gradients, mut moments) = (Gradients::new(&config), Moments::zeros(&config));
    for count in 1..=4 {
        let (inputs, targets) = window(SEQ, 48);
        engine.micro_step(&weights, &mut gradients, &inputs, &targets, 64.0).unwrap();
        let (optimizer, lr, factor) = (AdamW::default(), 1e-3, 1.0 / 64.0);
        let (weights, gradients, moments) = (&mut weights, &mut gradients, &mut moments);
        let config = &config;
        engine.update(Update { optimizer, config, weights, gradients, moments, lr, factor, count }).unwrap();
    }
    let mut text = Vec::new();
    timeline.write(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events: Vec<_> = json["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    let mut counts = BTreeMap::new();
    for event in &events {
        *counts.entry((event["cat"].as_str().unwrap(), event["name"].as_str().unwrap())).or_insert(0) += 1;
    }
    // Two of four micro-steps, two layers.
    for kernel in Kernel::ALL {
        assert_eq!(counts.get(&("device", kernel.name())), Some(&4), "{}", kernel.name());
    }
    for matrix in ["wq", "wk", "wv", "wo", "w1", "w2", "w3"] {
        assert_eq!(counts.get(&("weight gradient", matrix)), Some(&4), "{matrix}");
    }
    for (cat, name, count) in [
        ("step", "micro-step", 2),
        ("step", "forward", 2),
        ("step", "backward", 2),
        ("layer", "layer forward", 4),
        ("layer", "layer backward", 4),
        ("classifier", "classifier and loss", 2),
        ("classifier", "classifier gradient", 2),
        ("staging", "x2norm", 4),
    ] {
        assert_eq!(counts.get(&(cat, name)), Some(&count), "{cat} {name}");
    }
    assert_eq!(counts.iter().filter(|(key, _)| key.0 == "device").count(), 10);
    assert_eq!(json["otherData"]["micro_steps"], 2);
    // On each thread a span is nested in the open one, or follows it.
    let mut open: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for event in &events {
        let (tid, begin) = (event["tid"].as_u64().unwrap(), event["ts"].as_f64().unwrap());
        let end = begin + event["dur"].as_f64().unwrap();
        let stack = open.entry(tid).or_default();
        // Printing rounds to a thousandth of a microsecond.
        while stack.last().is_some_and(|outer| *outer <= begin + 2e-3) {
            stack.pop();
        }
        assert!(stack.last().is_none_or(|outer| end <= outer + 2e-3), "{event} ends after the span around it");
        stack.push(end);
    }
    // Spans of different layers are distinguished.
    let layers: Vec<u64> =
        events.iter().filter(|e| e["name"] == "woFwd").map(|e| e["args"]["layer"].as_u64().unwrap()).collect();
    assert_eq!(layers, [0, 1, 0, 1]);
}

#[test]
fn who_holds_the_memory_is_told() {
    let (config, vocabulary) = full();
    let weights = random_weights(&config);
    let mut engine = pipeline(&config, &vocabulary, DYNAMIC, &weights);
    let (inputs, targets) = window(SEQ, 48);
    engine.micro_step(&weights, &mut Gradients::new(&config), &inputs, &targets, 64.0).unwrap();
    let memory = engine.memory();
    // Every matrix twice in fp16, in addition to the activations.
    assert!(memory.surfaces > 4 * config.layers * config.layer_matrix_parameters());
    assert!(memory.activations > 4 * SEQ * (config.layers * 2 * config.dim + vocabulary.len()));
    assert!(memory.arenas > 0 && memory.constants >= 2 * SEQ * SEQ);
    // One evaluation at a time: one arena, not one for each of the ten kernels.
    assert!(memory.arenas < 4 << 20, "{}", memory.arenas);
}
