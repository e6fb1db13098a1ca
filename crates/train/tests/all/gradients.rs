//! Gradients of the pipeline on the emulator, compared with recorded float64 gradients and with the
//! fp32 reference.

use std::path::{Path, PathBuf};

use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::layout::{PipelineKind, Residual, Shape, WeightForm};
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Weights, load};
use ferrane_testdata::Suite;
use ferrane_train::optim::Gradients;
use ferrane_train::step::{Engine, Pipeline, ReferenceEngine};

/// The loss scale of these tests; a power of two, so scaling is exact.
const SCALE: f32 = 256.0;

/// Every pipeline and form of weights.
pub const PIPELINES: [(PipelineKind, WeightForm); 5] = [
    (PipelineKind::Dynamic, WeightForm::Packed),
    (PipelineKind::Dynamic, WeightForm::Inputs),
    (PipelineKind::Static, WeightForm::Packed),
    (PipelineKind::StaticExtras, WeightForm::Packed),
    (PipelineKind::Fused, WeightForm::Packed),
];

pub fn emulator(numerics: Numerics) -> Device {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    Device::new(Emulator::new(options))
}

fn files(suite: &Suite, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![suite.folder().to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&path.file_name().unwrap().to_string_lossy()) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Runs every window through an engine; returns the mean loss and the mean gradients.
pub fn gradients(
    engine: &mut dyn Engine,
    config: &Config,
    weights: &Weights,
    windows: &[(Vec<u32>, Vec<u32>)],
) -> Result<(f64, Weights), String> {
    let mut gradients = Gradients::new(config);
    let mut loss = 0.0;
    for (inputs, targets) in windows {
        let step = engine.micro_step(weights, &mut gradients, inputs, targets, SCALE).map_err(|e| e.to_string())?;
        if !step.finite {
            return Err("a step was not finite".into());
        }
        loss += f64::from(step.loss);
    }
    let mut gradients = gradients.values().ok_or("no gradients")?.clone();
    let factor = 1.0 / (SCALE * windows.len() as f32);
    for tensor in gradients.tensors_mut(config) {
        tensor.data.iter_mut().for_each(|g| *g *= factor);
    }
    Ok((loss / windows.len() as f64, gradients))
}

/// Cosine and relative L2 error of `found` with respect to `expected`.
fn compare(found: &[f32], expected: &[f32]) -> (f64, f64) {
    let (mut dot, mut ff, mut ee, mut dd) = (0.0, 0.0, 0.0, 0.0);
    for (f, e) in found.iter().zip(expected) {
        let (f, e) = (f64::from(*f), f64::from(*e));
        dot += f * e;
        ff += f * f;
        ee += e * e;
        dd += (f - e) * (f - e);
    }
    (dot / (ff * ee).sqrt().max(1e-300), (dd / ee.max(1e-300)).sqrt())
}

/// Checks every tensor against the bounds; the result or error names the worst.
pub fn check(found: &Weights, expected: &Weights, config: &Config, cosine: f64, error: f64) -> Result<String, String> {
    let mut worst = (1.0f64, 0.0f64, String::new());
    for (f, e) in found.tensors(config).iter().zip(expected.tensors(config)) {
        let (c, r) = compare(f.data, e.data);
        if r > worst.1 {
            worst = (c, r, f.name.clone());
        }
        if !(c >= cosine && r <= error) {
            return Err(format!("{}: cosine {c:.6}, relative error {r:.5}", f.name));
        }
    }
    Ok(format!("worst {}: cosine {:.6}, relative error {:.5}", worst.2, worst.0, worst.1))
}

fn ints(file: &Container, name: &str) -> Result<(Vec<usize>, Vec<u32>), String> {
    let entry = file.entry(name).ok_or(format!("no tensor {name}"))?;
    let bytes = file.raw(entry);
    Ok((entry.shape().to_vec(), bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
}

struct Golden {
    config: Config,
    weights: Weights,
    windows: Vec<(Vec<u32>, Vec<u32>)>,
    seq: usize,
    loss: f64,
    gradients: Weights,
}

fn golden(path: &Path) -> Result<Golden, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let siblings = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().path());
    let model =
        siblings.into_iter().find(|p| p.extension().is_some_and(|e| e == "bin")).ok_or("no model in the folder")?;
    let (config, weights) = load(&model, None).map_err(|e| text(&e))?;
    let file = Container::open(path).map_err(|e| text(&e))?;
    let ((shape, x), (_, y)) = (ints(&file, "x")?, ints(&file, "y")?);
    let [count, seq] = shape[..] else { return Err("x is not [windows, tokens]".into()) };
    let windows =
        (0..count).map(|i| (x[i * seq..(i + 1) * seq].to_vec(), y[i * seq..(i + 1) * seq].to_vec())).collect();
    let entry = file.entry("loss").ok_or("no loss")?;
    let loss = f64::from_le_bytes(file.raw(entry)[..8].try_into().map_err(|_| "loss is not f64")?);
    let mut gradients = Weights::zeros(&config);
    for tensor in gradients.tensors_mut(&config) {
        // The file's names: n1, n2 norms, nf the final one, emb_tied embedding and classifier
        // together.
        let name = match tensor.name.as_str() {
            "embed" => "grad.emb_tied".to_string(),
            "norm" => "grad.nf".to_string(),
            other => {
                let name = other.replace("layers.", "grad.");
                name.replace("attn_norm", "n1").replace("ffn_norm", "n2")
            }
        };
        file.read(&name, &tensor.shape, tensor.data).map_err(|e| text(&e))?;
    }
    Ok(Golden { config, weights, windows, seq, loss, gradients })
}

/// Bounds: loss within 2e-3, cosine ≥ 0.999, relative L2 error ≤ 3 % in fp16; 1e-4 for the fp32
/// reference. An independent fp16 simulation gives 0.9 %.
#[test]
fn recorded_gradients() {
    let Some(mut suite) = Suite::open("train golden gradients", "checkpoints") else { return };
    for path in files(&suite, |name| name.ends_with("loss_grads.safetensors")) {
        let id = format!("{}", path.file_name().unwrap().to_string_lossy());
        let golden = match golden(&path) {
            Ok(golden) => golden,
            Err(why) => {
                suite.case(&id, Err(why));
                continue;
            }
        };
        let Golden { config, weights, windows, seq, loss, gradients: expected } = &golden;
        let mut run = |case: &str, engine: &mut dyn Engine, loss_bound: f64, cosine: f64, error: f64| {
            let result = gradients(engine, config, weights, windows).and_then(|(found_loss, found)| {
                if (found_loss - loss).abs() > loss_bound {
                    return Err(format!("loss {found_loss} against {loss}"));
                }
                let worst = check(&found, expected, config, cosine, error)?;
                eprintln!("{id} {case}: loss error {:.2e}, {worst}", (found_loss - loss).abs());
                Ok(())
            });
            suite.case(&format!("{id} {case}"), result);
        };
        let mut reference = ReferenceEngine::new(config.clone());
        run("reference", &mut reference, 1e-4, 0.999_999, 1e-4);
        for (pipeline, form, residual, numerics) in [
            (PipelineKind::Dynamic, WeightForm::Packed, Residual::Fp32, Numerics::Exact),
            (PipelineKind::Dynamic, WeightForm::Packed, Residual::Fp32, Numerics::Fast),
            (PipelineKind::Dynamic, WeightForm::Inputs, Residual::Fp32, Numerics::Fast),
            (PipelineKind::Dynamic, WeightForm::Packed, Residual::Fp16, Numerics::Fast),
            (PipelineKind::Static, WeightForm::Packed, Residual::Fp32, Numerics::Exact),
            (PipelineKind::Static, WeightForm::Packed, Residual::Fp32, Numerics::Fast),
            (PipelineKind::Static, WeightForm::Packed, Residual::Fp16, Numerics::Fast),
            (PipelineKind::StaticExtras, WeightForm::Packed, Residual::Fp32, Numerics::Exact),
            (PipelineKind::StaticExtras, WeightForm::Packed, Residual::Fp32, Numerics::Fast),
            (PipelineKind::Fused, WeightForm::Packed, Residual::Fp32, Numerics::Exact),
            (PipelineKind::Fused, WeightForm::Packed, Residual::Fp32, Numerics::Fast),
        ] {
            let shape = Shape::new(config.clone(), *seq, residual, form).with_pipeline(pipeline);
            let vocabulary = Compaction::disabled(config.vocab);
            let case = format!("{pipeline:?} {form:?} {residual:?} {numerics:?}");
            match Pipeline::new(&emulator(numerics), shape, vocabulary, weights) {
                Ok(mut engine) => run(&case, &mut engine, 2e-3, 0.999, 0.03),
                Err(why) => panic!("{case}: {why}"),
            }
        }
    }
    suite.finish();
}

/// Every Hugging Face checkpoint of the data, and so all options of such models: within 3 % of the
/// fp32 reference.
#[test]
fn gradients_of_other_layouts_match_the_reference() {
    let Some(mut suite) = Suite::open("train gradients of Hugging Face checkpoints", "checkpoints") else { return };
    for config_path in files(&suite, |name| name.ends_with("config.json")) {
        let name = config_path.file_name().unwrap().to_string_lossy().into_owned();
        let folder = config_path.parent().unwrap();
        let stem = name.trim_end_matches("config.json").trim_end_matches('_');
        let mut weights: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| {
                let file = p.file_name().unwrap().to_string_lossy().into_owned();
                file.ends_with(".safetensors") && file.starts_with(stem) && !file.contains("-of-")
            })
            .collect();
        weights.sort();
        let Some(path) = weights.first() else {
            suite.skip(&name, "no weights in the folder");
            continue;
        };
        let id = format!("{}/{name}", folder.file_name().unwrap().to_string_lossy());
        suite.case(&id, against_the_reference(&config_path, path));
    }
    suite.finish();
}

fn against_the_reference(config: &Path, weights: &Path) -> Result<(), String> {
    let (config, weights) = load(weights, Some(config)).map_err(|e| e.to_string())?;
    let seq = config.max_seq.clamp(4, 16) - 1;
    let id = |i: usize| (i * 7 % config.vocab) as u32;
    let windows = [((0..seq).map(id).collect::<Vec<_>>(), (1..=seq).map(|i| (i * 5 % config.vocab) as u32).collect())];
    let (loss, expected) = gradients(&mut ReferenceEngine::new(config.clone()), &config, &weights, &windows)?;
    let used = windows[0].1.iter().copied();
    for vocabulary in [Compaction::disabled(config.vocab), Compaction::used(used, config.vocab)] {
        if !vocabulary.is_identity() {
            // Another softmax: checks only that it runs and that gradients are finite.
            let shape = Shape::new(config.clone(), seq, Residual::Fp32, WeightForm::Packed);
            let mut engine =
                Pipeline::new(&emulator(Numerics::Fast), shape, vocabulary, &weights).map_err(|e| e.to_string())?;
            gradients(&mut engine, &config, &weights, &windows)?;
            continue;
        }
        for (pipeline, form) in PIPELINES {
            let shape = Shape::new(config.clone(), seq, Residual::Fp32, form).with_pipeline(pipeline);
            let device = emulator(Numerics::Fast);
            let mut engine = Pipeline::new(&device, shape, vocabulary.clone(), &weights).map_err(|e| e.to_string())?;
            let (found_loss, found) = gradients(&mut engine, &config, &weights, &windows)?;
            // fp16 rounding of activations of order one over two layers.
            if (found_loss - loss).abs() > 2e-3 {
                return Err(format!("{pipeline:?} {form:?}: loss {found_loss} against {loss}"));
            }
            let worst = check(&found, &expected, &config, 0.999, 0.03);
            eprintln!("{pipeline:?} {form:?}: {}", worst.map_err(|e| format!("{pipeline:?} {form:?}: {e}"))?);
        }
    }
    Ok(())
}
