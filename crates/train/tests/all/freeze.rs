//! Frozen tensors: they keep their bits, and the others are trained as without them.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_emulator::Numerics;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::layout::{Residual, Shape};
use ferrane_llm::weights::{Weights, native};
use ferrane_train::lora::LoraOptions;
use ferrane_train::optim::{AdamW, Frozen, Gradients, Moments, Update, norms};
use ferrane_train::run::{Event, RunOptions};
use ferrane_train::session::{Session, SessionError, SessionOptions, StoredRun};
use ferrane_train::step::{Engine, Pipeline, ReferenceEngine};

use crate::gradients::{PIPELINES, emulator};
use crate::run::{ids, random_weights, tiny, window};

const SEQ: usize = 12;

fn patterns() -> Vec<String> {
    ["embed", "layers.0.*", "*.w2", "norm"].map(String::from).into()
}

/// An untied model with all optional tensors.
fn model() -> Config {
    Config { tied: false, qkv_bias: true, qk_norm: true, layers: 3, ..tiny() }
}

/// The reference, and a pipeline of each kind.
fn engines(config: &Config, weights: &Weights) -> Vec<Box<dyn Engine>> {
    let pipeline = |(kind, form)| -> Box<dyn Engine> {
        let shape = Shape::new(config.clone(), SEQ, Residual::Fp32, form).with_pipeline(kind);
        let full = Compaction::disabled(config.vocab);
        Box::new(Pipeline::new(&emulator(Numerics::Fast), shape, full, weights).unwrap())
    };
    let reference: Box<dyn Engine> = Box::new(ReferenceEngine::new(config.clone()));
    std::iter::once(reference).chain(PIPELINES.into_iter().map(pipeline)).collect()
}

/// The gradients of two windows.
fn accumulated(engine: &mut dyn Engine, weights: &Weights, mut gradients: Gradients, vocab: usize) -> Gradients {
    for below in [vocab, vocab - 8] {
        let (inputs, targets) = window(SEQ, below);
        assert!(engine.micro_step(weights, &mut gradients, &inputs, &targets, 64.0).unwrap().finite);
    }
    gradients
}

#[test]
fn frozen_tensors_keep_their_bits_and_the_others_their_gradients() {
    let config = model();
    let start = random_weights(&config);
    let frozen = Frozen::matching(&config, &patterns()).unwrap();
    for (index, engine) in engines(&config, &start).iter_mut().enumerate() {
        let all = accumulated(&mut **engine, &start, Gradients::new(&config), config.vocab);
        let some = Gradients::without(&config, frozen.clone());
        let mut some = accumulated(&mut **engine, &start, some, config.vocab);
        let mut squares = 0.0;
        let tensors = all.values().unwrap().tensors(&config).into_iter().zip(some.values().unwrap().tensors(&config));
        for (at, (all, some)) in tensors.enumerate() {
            if frozen.contains(at) {
                assert!(some.data.is_empty() || all.shape.len() == 1, "{}", all.name);
                continue;
            }
            let largest = all.data.iter().fold(0.0f32, |most, g| most.max(g.abs()));
            // The reference adds the two windows as wholes, and else term by term.
            let bound = if index == 0 { 1e-5 * largest } else { 0.0 };
            let near = all.data.iter().zip(some.data).all(|(a, b)| (a - b).abs() <= bound);
            assert!(near && all.data.len() == some.data.len(), "engine {index}: the gradient of {}", all.name);
            squares += all.data.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
        }
        let norm = norms(&config, &some).total;
        assert!((norm / squares.sqrt() - 1.0).abs() < 1e-6, "engine {index}: {norm} and {}", squares.sqrt());
        assert!(norm < norms(&config, &all).total);

        let (mut weights, mut moments) = (start.clone(), Moments::zeros(&config));
        // The second one is without a gradient; weight decay alone would change frozen tensors.
        for count in 1..=2 {
            let (weights, moments, gradients) = (&mut weights, &mut moments, &mut some);
            let (optimizer, config, lr, factor) = (AdamW::default(), &config, 1e-2, 1.0 / 128.0);
            engine.update(Update { optimizer, config, weights, gradients, moments, lr, factor, count }).unwrap();
        }
        for (at, (now, before)) in weights.tensors(&config).iter().zip(start.tensors(&config)).enumerate() {
            let same = now.data.iter().zip(before.data).all(|(a, b)| a.to_bits() == b.to_bits());
            assert_eq!(same, frozen.contains(at), "engine {index}: {}", now.name);
        }
        // What the device computes with is the new model.
        let (inputs, targets) = window(SEQ, config.vocab);
        let found = engine.loss(&weights, &inputs, &targets).unwrap();
        let want = engines(&config, &weights)[index].loss(&weights, &inputs, &targets).unwrap();
        assert_eq!(found.to_bits(), want.to_bits(), "engine {index}");
    }
}

#[test]
fn a_run_with_frozen_tensors_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = (folder.path().join("tiny.json"), folder.path().join("ids.u16"));
    std::fs::write(&model, serde_json::to_string(&tiny()).unwrap()).unwrap();
    std::fs::write(&data, ids().iter().flat_map(|id| (id as u16).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let run =
        RunOptions { steps: 6, accum: 2, seq: SEQ, lr: 1e-2, warmup: 1, eval_windows: 2, ..RunOptions::default() };
    let options = |name: &str, freeze: &[&str]| SessionOptions {
        model: Some(model.display().to_string()),
        data: vec![data.clone().into()],
        data_cache: Some(folder.path().join("cache")),
        freeze: freeze.iter().map(|text| text.to_string()).collect(),
        run: RunOptions { out: folder.path().join(name), ..run.clone() },
        ..SessionOptions::default()
    };
    let silent = &mut |_: &Event| {};
    let never = AtomicBool::new(false);
    for device in [None, Some(emulator(Numerics::Fast))] {
        let kind = if device.is_some() { "device" } else { "reference" };
        let freeze = ["embed", "layers.1.*"];
        let whole = options(&format!("{kind}-whole"), &freeze);
        let mut whole = Session::begin(whole, device.as_ref(), silent).unwrap();
        let start = whole.weights().clone();
        whole.run(silent, &never).unwrap();
        assert!(whole.weights().embed == start.embed && whole.weights().layers[1] == start.layers[1]);
        assert!(whole.weights().layers[0].wq != start.layers[0].wq && whole.weights().norm != start.norm);
        let matrices = whole.memory(None);
        assert!(matrices.gradients < matrices.weights / 2, "{matrices:?}");

        let parts = options(&format!("{kind}-parts"), &freeze);
        let out = parts.run.out.clone();
        let mut first = Session::begin(parts, device.as_ref(), silent).unwrap();
        let (stop, mut seen) = (AtomicBool::new(false), 0);
        let mut listen = |event: &Event| {
            seen += usize::from(matches!(event, Event::Window { .. }));
            stop.store(seen >= 5, Ordering::Relaxed);
        };
        assert!(first.run(&mut listen, &stop).unwrap().stopped);
        drop(first);
        let mut second = Session::resume(&out, device.as_ref(), silent).unwrap();
        second.run(silent, &never).unwrap();
        assert!(second.weights() == whole.weights(), "{kind}");
        drop(second);
        // Another choice when it is resumed.
        let stored = StoredRun::open(&out).unwrap();
        let mut other = SessionOptions { freeze: vec!["layers.*".into()], ..stored.options().clone() };
        other.run.steps = 8;
        let mut third = stored.resume(other, device.as_ref(), silent).unwrap();
        third.run(silent, &never).unwrap();
        assert!(third.weights().layers == whole.weights().layers && third.weights().embed != start.embed);
    }
    let refused = Session::begin(options("refused", &["lm_head"]), None, silent).err().unwrap();
    assert!(matches!(refused, SessionError::Freeze(_)) && !folder.path().join("refused").exists());
    // A run of adapters has nothing to freeze.
    let base = folder.path().join("base.safetensors");
    native::save(&base, &tiny(), &random_weights(&tiny())).unwrap();
    let adapters = SessionOptions {
        model: None,
        init: Some(base),
        lora: Some(LoraOptions { rank: 2, ..LoraOptions::default() }),
        ..options("adapters", &["embed"])
    };
    let refused = Session::begin(adapters, None, silent).err().unwrap();
    assert!(matches!(refused, SessionError::FreezeOfAdapters) && !folder.path().join("adapters").exists());
}
