//! Adapters: gradients, what stays frozen, resuming, and the files that other programs read.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_emulator::Numerics;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::layout::{Residual, Shape, WeightForm};
use ferrane_llm::lora::Adapter;
use ferrane_llm::model::Model;
use ferrane_llm::random::Rng;
use ferrane_llm::reference::Reference;
use ferrane_llm::weights::{Part, Weights, native};
use ferrane_train::lora::{Adapters, LoraOptions, Tuning};
use ferrane_train::optim::Gradients;
use ferrane_train::run::{Event, RunOptions};
use ferrane_train::session::{Session, SessionError, SessionOptions, StoredRun};
use ferrane_train::step::{Engine, Pipeline, ReferenceEngine};

use crate::gradients::{PIPELINES, emulator};
use crate::run::{ids, random_weights, tiny, window};

const SCALE: f32 = 64.0;

fn options(targets: &[&str]) -> LoraOptions {
    LoraOptions { rank: 3, alpha: 5.0, targets: targets.iter().map(|name| name.to_string()).collect() }
}

/// Adapters whose B is not zero, so that both matrices have gradients, and the weights with them.
fn adapted(config: &Config, options: &LoraOptions) -> (Adapters, Vec<Vec<f32>>, Weights) {
    let mut weights = random_weights(config);
    let mut adapters = Adapters::init(config, options, 3).unwrap();
    let mut random = Rng::new(9);
    for factors in adapters.layers_mut().iter_mut().flatten() {
        factors.b.iter_mut().for_each(|b| *b = (0.2 * random.normal()) as f32);
    }
    let mut base = Vec::new();
    for (layer, factors) in weights.layers.iter().zip(adapters.layers()) {
        for factors in factors {
            let (_, matrix) = layer.parts().into_iter().find(|(part, _)| *part == factors.part).unwrap();
            base.push(matrix.to_vec());
        }
    }
    adapters.merge(&base, &mut weights).unwrap();
    (adapters, base, weights)
}

/// The mean gradients of two windows, without the loss scale.
fn gradients(engine: &mut dyn Engine, config: &Config, weights: &Weights, adapters: &Adapters) -> Adapters {
    let mut gradients = Gradients::of_adapters(config, adapters.clone());
    for shift in [0, 7] {
        let (inputs, targets) = window(12 + shift, config.vocab);
        let step =
            engine.micro_step(weights, &mut gradients, &inputs[shift..], &targets[shift..], SCALE / 2.0).unwrap();
        assert!(step.finite);
    }
    assert!(gradients.values().unwrap().layers.iter().all(|layer| layer.wq.is_empty() && layer.w2.is_empty()));
    assert!(gradients.values().unwrap().embed.is_empty());
    let mut sums = gradients.adapter_sums().unwrap().clone();
    sums.values_mut().for_each(|values| values.iter_mut().for_each(|g| *g /= SCALE));
    sums
}

fn relative(found: &[f32], want: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let error = square(&mut found.iter().zip(want).map(|(f, w)| f64::from(*f) - f64::from(*w)));
    (error / square(&mut want.iter().map(|w| f64::from(*w))).max(1e-300)).sqrt()
}

#[test]
fn gradients_are_central_differences() {
    let config = tiny();
    let options = options(&["all-linear"]);
    let (adapters, base, weights) = adapted(&config, &options);
    let found = gradients(&mut ReferenceEngine::new(config.clone()), &config, &weights, &adapters);
    let base: Vec<Vec<f64>> = base.iter().map(|matrix| matrix.iter().map(|v| f64::from(*v)).collect()).collect();
    let exact = weights.map(|v| f64::from(*v));
    // The loss in f64 with another value of one matrix of one adapter.
    let loss = |layer: usize, at: usize, is_a: bool, index: usize, value: f64| {
        let (factors, per_layer) = (&adapters.layers()[layer][at], adapters.layers()[layer].len());
        let (mut a, mut b): (Vec<f64>, Vec<f64>) =
            (factors.a.iter().map(|v| f64::from(*v)).collect(), factors.b.iter().map(|v| f64::from(*v)).collect());
        if is_a {
            a[index] = value
        } else {
            b[index] = value
        }
        let (rank, cols) = (options.rank, a.len() / options.rank);
        let mut weights = exact.clone();
        let matrix = weights.layers[layer].parts_mut().into_iter().find(|(part, _)| *part == factors.part).unwrap().1;
        for (i, w) in matrix.iter_mut().enumerate() {
            let (row, col) = (i / cols, i % cols);
            let change: f64 = (0..rank).map(|k| b[row * rank + k] * a[k * cols + col]).sum();
            *w = base[layer * per_layer + at][i] + options.scale() * change;
        }
        let model = Reference::new(&config, &weights).unwrap();
        let one = |shift: usize| {
            let (inputs, targets) = window(12 + shift, config.vocab);
            model.loss(&inputs[shift..], &targets[shift..]).unwrap()
        };
        (one(0) + one(7)) / 2.0
    };
    for (layer, factors) in found.layers().iter().enumerate() {
        for (at, gradient) in factors.iter().enumerate() {
            for (is_a, values) in [(true, &gradient.a), (false, &gradient.b)] {
                let largest = values.iter().fold(0.0f32, |most, g| most.max(g.abs()));
                for index in [0, values.len() / 2, values.len() - 1] {
                    let own = &adapters.layers()[layer][at];
                    let here = f64::from(if is_a { own.a[index] } else { own.b[index] });
                    let step = 1e-4;
                    let want = (loss(layer, at, is_a, index, here + step) - loss(layer, at, is_a, index, here - step))
                        / (2.0 * step);
                    let error = (f64::from(values[index]) - want).abs();
                    // fp32 sums over a network of order one; the differences are exact to 1e-8.
                    assert!(
                        error < 2e-4 * f64::from(largest),
                        "{:?} of layer {layer}, A {is_a}, {index}: {} and {want} of {largest}",
                        gradient.part,
                        values[index]
                    );
                }
            }
        }
    }
}

#[test]
fn gradients_of_every_pipeline_match_the_reference() {
    let config = Config { tied: false, qkv_bias: true, ..tiny() };
    for targets in [&["q_proj", "v_proj"][..], &["all-linear"], &["o_proj", "down_proj"]] {
        let (adapters, _, weights) = adapted(&config, &options(targets));
        let want = gradients(&mut ReferenceEngine::new(config.clone()), &config, &weights, &adapters);
        for (pipeline, form) in PIPELINES {
            let shape = Shape::new(config.clone(), 12, Residual::Fp32, form).with_pipeline(pipeline);
            let full = Compaction::disabled(config.vocab);
            let mut engine = Pipeline::new(&emulator(Numerics::Fast), shape, full, &weights).unwrap();
            let found = gradients(&mut engine, &config, &weights, &adapters);
            for (found, want) in found.values().zip(want.values()) {
                let error = relative(found, want);
                // The bound of the gradients of whole matrices in fp16.
                assert!(error <= 0.03, "{pipeline:?} {form:?} {targets:?}: {error}");
            }
        }
    }
}

#[test]
fn gradients_of_adapters_are_the_same_if_activations_are_computed_again() {
    let config = Config { layers: 3, ..tiny() };
    let (adapters, _, weights) = adapted(&config, &options(&["q_proj", "down_proj"]));
    let run = |layers| {
        let shape = Shape::new(config.clone(), 12, Residual::Fp32, WeightForm::Packed);
        let (device, full) = (emulator(Numerics::Fast), Compaction::disabled(config.vocab));
        let mut engine = Pipeline::recomputing(&device, shape, full, &weights, NonZeroUsize::new(layers)).unwrap();
        gradients(&mut engine, &config, &weights, &adapters)
    };
    assert!(run(1) == run(0) && run(2) == run(0));
}

#[test]
fn the_sum_before_the_first_update_is_the_model() {
    let (config, options) = (tiny(), options(&["all-linear"]));
    let weights = random_weights(&config);
    let (tuning, values) = Tuning::begin(&config, &weights, &options, 7).unwrap();
    let mut sum = weights.clone();
    let base: Vec<Vec<f32>> = weights
        .layers
        .iter()
        .flat_map(|layer| {
            [Part::Wq, Part::Wk, Part::Wv, Part::Wo, Part::W1, Part::W3, Part::W2]
                .map(|wanted| layer.parts().into_iter().find(|(part, _)| *part == wanted).unwrap().1.to_vec())
        })
        .collect();
    values.merge(&base, &mut sum).unwrap();
    assert!(sum == weights);
    assert_eq!(tuning.base_bytes(), base.iter().map(|matrix| 4 * matrix.len()).sum::<usize>());
    for factors in values.layers().iter().flatten() {
        let bound = 1.0 / ((factors.a.len() / options.rank) as f32).sqrt();
        assert!(factors.b.iter().all(|b| *b == 0.0));
        let largest = factors.a.iter().fold(0.0f32, |most, a| most.max(a.abs()));
        assert!(largest <= bound && largest > 0.8 * bound, "{largest} of {bound}");
    }
    let again = Tuning::begin(&config, &weights, &options, 7).unwrap();
    assert!(again == (tuning, values.clone()));
    assert_ne!(Tuning::begin(&config, &weights, &options, 8).unwrap().1, values);
    // Matrices of another model are refused, and nothing changes.
    assert!(values.merge(&base[1..], &mut sum).is_err() && sum == weights);
}

/// A folder with the weights of a tiny model and a file of ids.
fn place() -> (tempfile::TempDir, SessionOptions) {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = (folder.path().join("base.safetensors"), folder.path().join("ids.u16"));
    native::save(&model, &tiny(), &random_weights(&tiny())).unwrap();
    fs::write(&data, ids().iter().flat_map(|id| (id as u16).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let run = RunOptions {
        steps: 8,
        accum: 2,
        seq: 12,
        lr: 1e-2,
        warmup: 1,
        eval_windows: 2,
        eval_every: 4,
        out: folder.path().join("run"),
        ..RunOptions::default()
    };
    let lora = Some(options(&["q_proj", "v_proj", "up_proj"]));
    let data_cache = Some(folder.path().join("cache"));
    let init = Some(model);
    (folder, SessionOptions { init, lora, data: vec![data.into()], data_cache, run, ..SessionOptions::default() })
}

fn silent() -> impl FnMut(&Event) {
    |_: &Event| {}
}

fn finish(session: &mut Session) {
    session.run(&mut silent(), &AtomicBool::new(false)).unwrap();
}

#[test]
fn a_stopped_run_resumes_to_the_same_bits_and_freezes_the_rest() {
    for device in [None, Some(emulator(Numerics::Fast))] {
        let (folder, options) = place();
        let whole = SessionOptions {
            run: RunOptions { out: folder.path().join("whole"), ..options.run.clone() },
            ..options.clone()
        };
        let mut events = Vec::new();
        let mut want = Session::begin(whole, device.as_ref(), &mut |e| events.push(e.clone())).unwrap();
        want.run(&mut |e| events.push(e.clone()), &AtomicBool::new(false)).unwrap();
        let trained = want.adapters().unwrap().parameters();
        assert!(events.iter().any(|e| matches!(e, Event::Started { parameters, .. } if *parameters == trained)));
        assert_eq!(want.active_ids(), 48, "adapters are trained over the whole vocabulary");

        let mut first = Session::begin(options.clone(), device.as_ref(), &mut silent()).unwrap();
        let (stop, mut seen) = (AtomicBool::new(false), 0);
        let mut listen = |event: &Event| {
            seen += usize::from(matches!(event, Event::Window { .. }));
            stop.store(seen >= 9, Ordering::Relaxed);
        };
        assert!(first.run(&mut listen, &stop).unwrap().stopped);
        drop(first);
        let mut second = Session::resume(&options.run.out, device.as_ref(), &mut silent()).unwrap();
        assert_eq!(second.state().step, 4);
        finish(&mut second);
        assert!(second.weights() == want.weights() && second.adapters() == want.adapters());

        // Only the targets have changed.
        let (config, base) = native::load(options.init.as_ref().unwrap()).unwrap();
        for (tensor, before) in want.weights().tensors(&config).iter().zip(base.tensors(&config)) {
            let target = [".wq", ".wv", ".w3"].iter().any(|end| tensor.name.ends_with(end));
            assert_eq!(tensor.data != before.data, target, "{}", tensor.name);
        }
        // What `generate --lora` computes from the run's folder.
        let adapter = Adapter::open(&options.run.out, &config).unwrap();
        assert_eq!(adapter.parameters(), trained);
        let model = Model::open(options.init.as_ref().unwrap()).unwrap().with_adapter(adapter).unwrap();
        assert!(model.fp32_weights().unwrap() == want.weights());
        // The weights of the model are not stored again.
        let checkpoint = options.run.out.join("step-000008");
        let mut names: Vec<_> =
            fs::read_dir(&checkpoint).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let files = ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "state.json"];
        assert_eq!(names, files);
    }
}

#[test]
fn adapters_of_all_projections_are_read_again() {
    let (_folder, options) = place();
    let lora = Some(LoraOptions { targets: vec!["all-linear".to_owned()], ..options.lora.clone().unwrap() });
    let run = RunOptions { steps: 1, eval_every: 0, ..options.run.clone() };
    let mut session = Session::begin(SessionOptions { lora, run, ..options.clone() }, None, &mut silent()).unwrap();
    finish(&mut session);
    let adapter = Adapter::open(&options.run.out, &tiny()).unwrap();
    assert_eq!(adapter.parameters(), session.adapters().unwrap().parameters());
}

/// Everything that a resumed run of adapters must keep.
#[test]
fn other_weights_and_other_adapters_are_refused() {
    let (folder, options) = place();
    let begin = |change: &dyn Fn(&mut SessionOptions)| {
        let mut options = options.clone();
        change(&mut options);
        Session::begin(options, None, &mut silent()).map(|_| ()).unwrap_err().to_string()
    };
    let lora = |change: &dyn Fn(&mut LoraOptions)| {
        begin(&|o| {
            let mut lora = o.lora.clone().unwrap();
            change(&mut lora);
            o.lora = Some(lora);
        })
    };
    assert!(lora(&|l| l.rank = 0).contains("`lora` 0"));
    assert!(lora(&|l| l.rank = 9).contains("between 1 and 8"));
    assert!(lora(&|l| l.alpha = f64::INFINITY).contains("`lora_alpha` inf"));
    assert!(lora(&|l| l.targets = vec!["c_attn".into()]).contains("`lora_targets` c_attn: no such projection"));
    let error = begin(&|o| (o.init, o.model) = (None, Some("stories260k".into())));
    assert!(error.contains("give `init`"), "{error}");
    assert!(!options.run.out.exists());

    let mut session = Session::begin(options.clone(), None, &mut silent()).unwrap();
    finish(&mut session);
    drop(session);
    let resume = |change: &dyn Fn(&mut SessionOptions)| {
        let stored = StoredRun::open(&options.run.out).unwrap();
        let mut options = stored.options().clone();
        change(&mut options);
        stored.resume(options, None, &mut silent()).map(|_| ())
    };
    resume(&|_| ()).unwrap();
    let error = resume(&|o| o.lora = Some(LoraOptions { rank: 4, ..o.lora.clone().unwrap() })).unwrap_err();
    assert!(matches!(&error, SessionError::OtherStart { field: "lora", .. }), "{error}");
    // Another model of the same sizes in the same place.
    let init = options.init.as_ref().unwrap();
    let mut other = random_weights(&tiny());
    other.norm[0] += 1.0;
    native::save(init, &tiny(), &other).unwrap();
    let error = resume(&|_| ()).unwrap_err();
    assert!(matches!(&error, SessionError::Lora(ferrane_train::lora::Error::OtherBase { .. })), "{error}");
    // A model of other sizes.
    let small = Config { hidden: 16, ..tiny() };
    native::save(init, &small, &random_weights(&small)).unwrap();
    let error = resume(&|_| ()).unwrap_err();
    assert!(matches!(&error, SessionError::Lora(ferrane_train::lora::Error::OtherBase { .. })), "{error}");
    let adapter = Adapter::open(&options.run.out, &small).unwrap_err().to_string();
    assert!(adapter.contains("shape"), "{adapter}");
    // A damaged adapter is found by its hash.
    let file = options.run.out.join("step-000008").join("adapter_model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = StoredRun::open(&options.run.out).err().unwrap().to_string();
    assert!(error.contains("SHA-256"), "{error}");
    drop(folder);
    assert!(!Path::new(init).exists());
}
