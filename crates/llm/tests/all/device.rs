//! Whole models on the emulator: published checkpoints, both weight forms, generation.

use crate::checkpoints::{
    Recorded, at_most, files, golden_file, id, ids, largest_difference, model_beside, name, numbers, recorded, text,
    weights_beside,
};
use crate::gradients::{everything, plain, random_weights};
use crate::kernels::emulator;
use ferrane_emulator::Numerics;
use ferrane_llm::config::Config;
use ferrane_llm::decode::{self, Decoder};
use ferrane_llm::evaluate::TeacherForced;
use ferrane_llm::forward::{Error, Forward, Options};
use ferrane_llm::generate::{NextLogits, Tokens};
use ferrane_llm::layout::{Residual, WeightForm};
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{Sampler, Sampling, argmax};
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Weights, load, load_hf};
use ferrane_testdata::Suite;
use std::path::Path;

const OPTIONS: [Options; 4] = [
    Options { residual: Residual::Fp32, form: WeightForm::Packed },
    Options { residual: Residual::Fp32, form: WeightForm::Inputs },
    Options { residual: Residual::Fp16, form: WeightForm::Packed },
    Options { residual: Residual::Fp16, form: WeightForm::Inputs },
];

fn models() -> [(Config, Weights); 2] {
    [plain(), everything()].map(|config| {
        let weights = random_weights(&config, 7);
        (config, weights)
    })
}

/// The largest difference relative to the range of the expected values.
pub fn relative_difference(found: &[f32], expected: &[f32]) -> Result<f32, String> {
    let difference = largest_difference(found, expected)?;
    let top = expected.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = top - expected.iter().copied().fold(f32::INFINITY, f32::min);
    if range > 0.0 { Ok(difference / range) } else { Err("the expected values are all the same".into()) }
}

#[test]
fn logits_in_every_form() {
    let device = emulator(Numerics::Exact);
    for (config, weights) in models() {
        let expected = Reference::new(&config, &weights).unwrap().logits(&[1, 5, 3, 8, 2]).unwrap();
        for options in OPTIONS {
            let mut forward = Forward::new(&device, &config, &weights, 8, options).unwrap();
            let logits = forward.logits(&[1, 5, 3, 8, 2]).unwrap();
            let error = relative_difference(&logits, &expected).unwrap();
            // Activations and weights are rounded to fp16 (4.9e-4) between the kernels of two
            // layers.
            assert!(error < 5e-3, "{options:?}: {error}");
            assert_eq!(forward.last_logits(&[1, 5, 3, 8, 2]).unwrap(), logits[4 * config.vocab..]);
        }
    }
}

#[test]
fn bad_windows_are_errors() {
    let (config, mut weights) = models()[0].clone();
    let device = emulator(Numerics::Fast);
    let mut forward = Forward::new(&device, &config, &weights, 4, Options::default()).unwrap();
    assert!(matches!(forward.logits(&[]), Err(Error::Length { found: 0, seq: 4 })));
    assert!(matches!(forward.logits(&[1; 5]), Err(Error::Length { found: 5, seq: 4 })));
    assert!(matches!(forward.logits(&[1, 9]), Err(Error::Token { token: 9, position: 1, vocab: 9 })));
    weights.layers[1].wo.pop();
    assert!(matches!(Forward::new(&device, &config, &weights, 4, Options::default()), Err(Error::Weights(_))));
}

#[test]
fn the_device_generates_what_the_reference_does() {
    let (config, weights) = models()[0].clone();
    let model = Reference::new(&config, &weights).unwrap();
    let device = emulator(Numerics::Exact);
    let mut forward = Forward::new(&device, &config, &weights, 16, Options::default()).unwrap();
    let mut decoder = Decoder::new(&device, &config, &weights, decode::Options::default()).unwrap();
    let run = |logits: &mut dyn NextLogits| {
        let mut sampler =
            Sampler::new(&Sampling { temperature: 0.8, top_p: 0.9, seed: Some(4), ..Sampling::default() }).unwrap();
        let ids: Vec<u32> = Tokens::new(logits, &[1, 2], 12, &mut sampler, &[]).map(Result::unwrap).collect();
        assert_eq!(ids.len(), 12);
        ids
    };
    assert_eq!(run(&mut decoder), run(&mut model.decoder()));
    // Generation continues beyond the context.
    let mut sampler = Sampler::new(&Sampling::greedy()).unwrap();
    let emitted = Tokens::new(&mut decoder, &[1], 40, &mut sampler, &[]).map(Result::unwrap).count();
    assert_eq!(emitted, 40);
    let (inputs, targets) = ([1, 2, 3], [2, 3, 4]);
    let through = forward.loss(&inputs, &targets).unwrap();
    assert!((through - model.loss(&inputs, &targets).unwrap()).abs() < 5e-3);
}

/// Greedy runs with the recorded tokens as input: logits under `fast` compared with the float64
/// decoder's.
#[test]
fn greedy_runs_through_the_emulator() {
    let Some(mut suite) = Suite::open("llm greedy runs through the emulator", "checkpoints") else { return };
    for path in files(&suite) {
        if name(&path).starts_with("greedy") && name(&path).ends_with(".safetensors") {
            for options in OPTIONS {
                let id = format!("{} {:?} {:?}", id(&path), options.residual, options.form);
                suite.case(&id, greedy_run(&path, options));
            }
        }
    }
    suite.finish();
}

fn greedy_run(path: &Path, options: Options) -> Result<(), String> {
    let (config, weights) = load(&model_beside(path)?, None).map_err(text)?;
    let file = Container::open(path).map_err(text)?;
    let tokens = ids(&file, "tokens")?;
    let expected = numbers(&file, "logits_f64_as_f32", f32::from_le_bytes)?;
    // The window is longer than the run, so padding is tested too.
    let seq = (tokens.len() + 1).next_multiple_of(64);
    let mut forward = Forward::new(&emulator(Numerics::Fast), &config, &weights, seq, options).map_err(text)?;
    let logits = forward.logits(&tokens).map_err(text)?;
    let largest = largest_difference(&logits, &expected)?;
    let mean = logits.iter().zip(&expected).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / logits.len() as f64;
    let rows = logits.chunks(config.vocab).zip(expected.chunks(config.vocab));
    let same = rows.filter(|(a, b)| argmax(a) == argmax(b)).count() as f64 / tokens.len() as f64;
    eprintln!("{} {options:?}: |Δlogit| ≤ {largest:.3}, mean {mean:.4}, same choice {:.1} %", id(path), 100.0 * same);
    // An independent fp16 simulation has 0.058, 0.0056 and 100 %.
    at_most(&[("|Δlogit|", largest.into(), 0.1), ("mean", mean, 0.01), ("another choice", 1.0 - same, 0.01)])
}

/// Hugging Face checkpoints with recorded logits, under `fast`.
#[test]
fn hugging_face_logits_through_the_emulator() {
    let Some(mut suite) = Suite::open("llm hugging face logits through the emulator", "checkpoints") else { return };
    for path in files(&suite) {
        let file = name(&path);
        if let Some(stem) = file.strip_suffix("_logits.json") {
            let config = path.with_file_name(format!("{stem}_config.json"));
            match weights_beside(&path, stem) {
                Ok(list) => {
                    for weights in list {
                        suite.case(&id(&weights), recorded(&path).and_then(|r| check_hf(&config, &weights, &r)));
                    }
                }
                Err(e) => suite.case(&id(&path), Err(e)),
            }
        }
        if let Some(stem) = file.strip_suffix("_golden.bin") {
            let weights = path.with_file_name(format!("{stem}.safetensors"));
            let meta = path.with_file_name(format!("{stem}_meta.txt"));
            let config = path.with_file_name("config.json");
            suite.case(&id(&weights), golden_file(&meta, &path).and_then(|r| check_hf(&config, &weights, &r)));
        }
    }
    suite.finish();
}

fn check_hf(config: &Path, weights: &Path, recorded: &Recorded) -> Result<(), String> {
    let (config, loaded) = load_hf(config, weights).map_err(text)?;
    let seq = recorded.iter().map(|(t, _)| t.len()).max().ok_or("no sequences")?;
    let mut worst = 0.0f32;
    for options in OPTIONS {
        let mut forward = Forward::new(&emulator(Numerics::Fast), &config, &loaded, seq, options).map_err(text)?;
        for (tokens, expected) in recorded {
            let logits = forward.logits(tokens).map_err(text)?;
            worst = worst.max(relative_difference(&logits, expected)?);
        }
    }
    eprintln!("{}: |Δlogit| ≤ {worst:.1e} of the range", id(weights));
    // fp16 rounding between the kernels of all layers.
    at_most(&[("logits differ, over their range, by", worst.into(), 2e-2)])
}
