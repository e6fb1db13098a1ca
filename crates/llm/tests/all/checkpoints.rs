//! The reference on published checkpoints: recorded logits, greedy runs and gradients.
//!
//! Cases are found by listing: every folder of the data's `checkpoints` is searched for the file
//! patterns below.

use ferrane_llm::reference::Reference;
use ferrane_llm::sample::argmax;
use ferrane_llm::tokenizer::Tokenizer;
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Weights, llama2c, load, load_hf};
use ferrane_testdata::Suite;
use std::path::{Path, PathBuf};

/// All files below the suite's folder, sorted.
pub fn files(suite: &Suite) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![suite.folder().to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The folder and the file, for a case's id.
pub fn id(path: &Path) -> String {
    format!("{}/{}", name(path.parent().unwrap()), name(path))
}

/// The only llama2.c file in the folder of `path`.
pub fn model_beside(path: &Path) -> Result<PathBuf, String> {
    let list = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().path());
    let bins: Vec<PathBuf> = list.filter(|p| p.extension().is_some_and(|e| e == "bin")).collect();
    match bins.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(format!("{} .bin files in the folder, expected one", bins.len())),
    }
}

pub fn numbers<const N: usize, T>(file: &Container, tensor: &str, convert: fn([u8; N]) -> T) -> Result<Vec<T>, String> {
    let entry = file.entry(tensor).ok_or(format!("no tensor {tensor}"))?;
    match file.raw(entry).as_chunks::<N>() {
        (values, []) => Ok(values.iter().map(|b| convert(*b)).collect()),
        (_, rest) => Err(format!("{tensor}: {} bytes after the last value", rest.len())),
    }
}

pub fn ids(file: &Container, tensor: &str) -> Result<Vec<u32>, String> {
    Ok(numbers(file, tensor, i32::from_le_bytes)?.into_iter().map(|v| v as u32).collect())
}

/// Checks that both sides have the same number of values, at least one, and that all are finite:
/// `f32::max` and comparisons would skip NaN.
fn comparable(found: &[f32], expected: &[f32]) -> Result<(), String> {
    if found.len() != expected.len() || found.is_empty() {
        return Err(format!("{} values, expected {}", found.len(), expected.len()));
    }
    for (side, values) in [("found", found), ("expected", expected)] {
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(format!("{side} value {i} is {}", values[i]));
        }
    }
    Ok(())
}

pub fn largest_difference(found: &[f32], expected: &[f32]) -> Result<f32, String> {
    comparable(found, expected)?;
    Ok(found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
}

/// An error unless every value is at most its bound; NaN is an error.
pub fn at_most(values: &[(&str, f64, f64)]) -> Result<(), String> {
    match values.iter().all(|(_, value, bound)| value <= bound) {
        true => Ok(()),
        false => Err(values
            .iter()
            .map(|(what, v, bound)| format!("{what} {v}, bound {bound}"))
            .collect::<Vec<_>>()
            .join("; ")),
    }
}

/// The weights of a recorded case: `STEM.safetensors`, its index, or both.
pub fn weights_beside(path: &Path, stem: &str) -> Result<Vec<PathBuf>, String> {
    let names = [format!("{stem}.safetensors"), format!("{stem}.safetensors.index.json")];
    let found: Vec<PathBuf> = names.map(|n| path.with_file_name(n)).into_iter().filter(|p| p.is_file()).collect();
    if found.is_empty() { Err(format!("no {stem}.safetensors and no index of it")) } else { Ok(found) }
}

pub fn text<E: std::fmt::Display>(e: E) -> String {
    e.to_string()
}

/// `greedy*.safetensors` next to a llama2.c file: tokens and logits of a greedy run.
#[test]
fn greedy_runs() {
    let Some(mut suite) = Suite::open("llm greedy runs", "checkpoints") else { return };
    for path in files(&suite) {
        if name(&path).starts_with("greedy") && name(&path).ends_with(".safetensors") {
            suite.case(&id(&path), greedy_run(&path));
        }
    }
    suite.finish();
}

fn greedy_run(path: &Path) -> Result<(), String> {
    let (config, weights) = load(&model_beside(path)?, None).map_err(text)?;
    let model = Reference::new(&config, &weights).map_err(text)?;
    let file = Container::open(path).map_err(text)?;
    let expected_ids = ids(&file, "tokens")?;
    let exact = numbers(&file, "logits_f64_as_f32", f32::from_le_bytes)?;
    let c_program = numbers(&file, "logits_runc_f32", f32::from_le_bytes)?;

    let mut decoder = model.decoder();
    let mut token = *expected_ids.first().ok_or("no tokens")?;
    let mut all = Vec::new();
    for (position, &expected) in expected_ids.iter().enumerate() {
        if token != expected {
            return Err(format!("token {token} at position {position}, expected {expected}"));
        }
        let logits = decoder.decode(token).map_err(text)?;
        all.extend_from_slice(logits);
        token = argmax(logits).ok_or("no logits")?;
    }
    let (a, b) = (largest_difference(&all, &exact)?, largest_difference(&all, &c_program)?);
    eprintln!("{}: |Δlogit| ≤ {a:.1e} of the float64 decoder, ≤ {b:.1e} of the C program", id(path));
    // The C program itself differs from the float64 decoder by 2.5e-5 (models.md §4).
    at_most(&[("from float64", a.into(), 5e-5), ("from the C program", b.into(), 1e-4)])?;
    // The whole sequence at once gives the decoder's logits bit for bit: both compute the same sums
    // in the same order.
    let at_once = model.logits(&expected_ids).map_err(text)?;
    if at_once != all {
        return Err(format!("decoder and whole sequence differ by {}", largest_difference(&at_once, &all)?));
    }
    Ok(())
}

/// A text that a greedy run of the model next to it must reproduce byte for byte, with any
/// tokenizer file of the data whose vocabulary has the model's size and agrees with the recorded
/// ids.
#[test]
fn expected_text() {
    let Some(mut suite) = Suite::open("llm expected text", "checkpoints") else { return };
    let tokenizers = suite.folder().with_file_name("tokenizers");
    for path in files(&suite) {
        if name(&path) != "expected.json" {
            continue;
        }
        match std::fs::read_dir(&tokenizers) {
            Ok(list) => {
                let bins = list.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "bin"));
                suite.case(&id(&path), generated(&path, &bins.collect::<Vec<_>>()));
            }
            Err(e) => suite.skip(&id(&path), &format!("no tokenizers: {e}")),
        }
    }
    suite.finish();
}

fn generated(path: &Path, tokenizers: &[PathBuf]) -> Result<(), String> {
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(path).map_err(text)?).map_err(text)?;
    let expected = value["expected_text"].as_str().ok_or("no expected_text")?;
    let steps = value["tokens"].as_array().ok_or("no tokens")?.len();
    let (config, weights) = load(&model_beside(path)?, None).map_err(text)?;
    let model = Reference::new(&config, &weights).map_err(text)?;
    let tokenizer = tokenizers
        .iter()
        .filter_map(|p| Tokenizer::open(p).ok())
        .find(|t| t.vocab_size() == config.vocab)
        .ok_or(format!("no tokenizer of {} pieces", config.vocab))?;
    let (mut decoder, mut stream, mut found) = (model.decoder(), tokenizer.stream(), String::new());
    let mut token = tokenizer.bos().ok_or("no id for the beginning")?;
    stream.push(token);
    for _ in 0..steps {
        token = argmax(decoder.decode(token).map_err(text)?).ok_or("no logits")?;
        found.push_str(&stream.push(token));
    }
    found.push_str(&stream.finish());
    if found == expected { Ok(()) } else { Err(format!("\n{found:?}\nexpected\n{expected:?}")) }
}

/// `batch*_loss_grads.safetensors` next to a llama2.c file: loss and gradients of a batch, computed
/// in float64.
#[test]
fn golden_gradients() {
    let Some(mut suite) = Suite::open("llm golden gradients", "checkpoints") else { return };
    for path in files(&suite) {
        if name(&path).ends_with("_loss_grads.safetensors") {
            suite.case(&id(&path), golden(&path));
        }
    }
    suite.finish();
}

fn golden(path: &Path) -> Result<(), String> {
    let (config, weights) = load(&model_beside(path)?, None).map_err(text)?;
    let model = Reference::new(&config, &weights).map_err(text)?;
    let file = Container::open(path).map_err(text)?;
    let (x, y) = (ids(&file, "x")?, ids(&file, "y")?);
    let shape = file.entry("x").ok_or("no x")?.shape().to_vec();
    let [batch, tokens] = shape[..] else { return Err(format!("x has the shape {shape:?}")) };
    if x.is_empty() || x.len() != y.len() {
        return Err(format!("{} inputs and {} targets", x.len(), y.len()));
    }
    let expected_loss = *numbers(&file, "loss", f64::from_le_bytes)?.first().ok_or("no loss")?;

    let mut gradients = Weights::zeros(&config);
    let mut loss = 0.0;
    for (x, y) in x.chunks_exact(tokens).zip(y.chunks_exact(tokens)) {
        loss += model.accumulate(x, y, 1.0 / batch as f64, &mut gradients).map_err(text)? / batch as f64;
    }
    let mut worst = (0.0, 1.0, String::new());
    for tensor in gradients.tensors(&config) {
        let golden = match tensor.name.as_str() {
            "embed" => "grad.emb_tied".to_string(),
            "norm" => "grad.nf".to_string(),
            other => {
                let (index, part) = other.trim_start_matches("layers.").split_once('.').ok_or("name")?;
                let part = match part {
                    "attn_norm" => "n1",
                    "ffn_norm" => "n2",
                    part => part,
                };
                format!("grad.{index}.{part}")
            }
        };
        let expected = numbers(&file, &golden, f32::from_le_bytes)?;
        let (error, cosine) = compare(tensor.data, &expected).map_err(|e| format!("{}: {e}", tensor.name))?;
        if error > worst.0 {
            worst = (error, cosine, tensor.name.clone());
        }
        // The bound of the fp32 reference.
        at_most(&[("relative L2", error, 1e-4)]).map_err(|e| format!("{}: {e}, cosine {cosine}", tensor.name))?;
    }
    let off = (loss - expected_loss).abs();
    eprintln!(
        "{}: loss {loss:.6} off by {off:.1e}; worst gradient {} with relative L2 {:.1e}, 1 - cosine {:.1e}",
        id(path),
        worst.2,
        worst.0,
        1.0 - worst.1
    );
    // One fp32 rounding of a loss near 1.5 is 1e-7; the sum over 256 tokens stays far below this.
    at_most(&[("loss off by", off, 1e-5)])
}

/// Relative L2 error and cosine; an error if they are undefined.
pub fn compare(found: &[f32], expected: &[f32]) -> Result<(f64, f64), String> {
    comparable(found, expected)?;
    let (mut error, mut a, mut b, mut product) = (0.0, 0.0, 0.0, 0.0);
    for (&x, &y) in found.iter().zip(expected) {
        let (x, y) = (f64::from(x), f64::from(y));
        error += (x - y) * (x - y);
        a += x * x;
        b += y * y;
        product += x * y;
    }
    if a == 0.0 || b == 0.0 {
        return Err("all values are 0 on one side".into());
    }
    Ok(((error / b).sqrt(), product / (a * b).sqrt()))
}

/// Hugging Face checkpoints with recorded logits: `NAME_logits.json` with `NAME_config.json` and
/// `NAME.safetensors` or its index in the same folder, and folders of `config.json`,
/// `NAME.safetensors`, `NAME_meta.txt` and `NAME_golden.bin`.
#[test]
fn hugging_face_logits() {
    let Some(mut suite) = Suite::open("llm hugging face logits", "checkpoints") else { return };
    for path in files(&suite) {
        let file = name(&path);
        if let Some(stem) = file.strip_suffix("_logits.json") {
            let config = path.with_file_name(format!("{stem}_config.json"));
            match weights_beside(&path, stem) {
                Ok(list) => {
                    for weights in list {
                        suite.case(&id(&weights), recorded(&path).and_then(|r| check_hf(&config, &weights, &r)));
                        suite.case(&format!("{} alone", id(&weights)), load(&weights, None).map(drop).map_err(text));
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
            let folder = path.parent().unwrap();
            suite.case(&format!("{} as a folder", id(&weights)), load(folder, None).map(drop).map_err(text));
        }
    }
    suite.finish();
}

/// Sequences and their logits.
pub type Recorded = Vec<(Vec<u32>, Vec<f32>)>;

pub fn recorded(path: &Path) -> Result<Recorded, String> {
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(path).map_err(text)?).map_err(text)?;
    let sequences: Vec<Vec<u32>> = serde_json::from_value(value["sequences"].clone()).map_err(text)?;
    let logits: Vec<Vec<Vec<f32>>> = serde_json::from_value(value["logits"].clone()).map_err(text)?;
    if sequences.is_empty() || sequences.len() != logits.len() {
        return Err(format!("{} sequences and {} of logits", sequences.len(), logits.len()));
    }
    if let Some((tokens, rows)) = sequences.iter().zip(&logits).find(|(t, l)| t.is_empty() || t.len() != l.len()) {
        return Err(format!("{} tokens and {} rows of logits", tokens.len(), rows.len()));
    }
    Ok(sequences.into_iter().zip(logits.into_iter().map(|l| l.concat())).collect())
}

pub fn golden_file(meta: &Path, golden: &Path) -> Result<Recorded, String> {
    let lines = std::fs::read_to_string(meta).map_err(text)?;
    let tokens = lines.lines().find_map(|l| l.strip_prefix("tokens=")).ok_or("no tokens")?;
    let tokens = tokens.split(',').map(|t| t.trim().parse().map_err(text)).collect::<Result<Vec<u32>, String>>()?;
    let bytes = std::fs::read(golden).map_err(text)?;
    match bytes.as_chunks::<4>() {
        (values, []) => Ok(vec![(tokens, values.iter().map(|b| f32::from_le_bytes(*b)).collect())]),
        (_, rest) => Err(format!("{} bytes after the last logit", rest.len())),
    }
}

fn check_hf(config: &Path, weights: &Path, recorded: &Recorded) -> Result<(), String> {
    let (config, loaded) = load_hf(config, weights).map_err(text)?;
    let model = Reference::new(&config, &loaded).map_err(text)?;
    let mut worst = 0.0f32;
    for (tokens, expected) in recorded {
        let logits = model.logits(tokens).map_err(text)?;
        worst = worst.max(largest_difference(&logits, expected)?);
    }
    eprintln!("{}: |Δlogit| ≤ {worst:.1e}", id(weights));
    // The bound of the fp32 reference.
    at_most(&[("logits differ by", worst.into(), 1e-4)])
}

/// Every llama2.c file: sizes by its header, and a round trip. Files of other readers
/// (`*_golden.bin`) are not checkpoints.
#[test]
fn llama2c_files() {
    let Some(mut suite) = Suite::open("llm llama2.c files", "checkpoints") else { return };
    for path in files(&suite) {
        if name(&path).ends_with(".bin") && !name(&path).ends_with("_golden.bin") {
            suite.case(&id(&path), llama2c_round_trip(&path));
        }
    }
    suite.finish();
}

fn llama2c_round_trip(path: &Path) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(text)?;
    let (config, weights) = load(path, None).map_err(text)?;
    let signed = i32::from_le_bytes(*bytes[20..].first_chunk().ok_or("header")?);
    if config.tied != (signed > 0) || config.tied != weights.classifier.is_none() {
        return Err("the sign of vocab_size and the classifier disagree".into());
    }
    let mut written = Vec::new();
    llama2c::write(&mut written, path, &config, &weights).map_err(text)?;
    if written.len() != bytes.len() {
        return Err(format!("{} bytes written, {} read", written.len(), bytes.len()));
    }
    // The rotary tables are recomputed; everything before them, and the classifier after them, must
    // be the same bytes.
    let classifier = if config.tied { 0 } else { 4 * config.vocab * config.dim };
    let tables = bytes.len() - classifier - 4 * config.max_seq * config.head_dim;
    if written[..tables] != bytes[..tables] || written[bytes.len() - classifier..] != bytes[bytes.len() - classifier..]
    {
        return Err("the bytes differ".into());
    }
    // One byte less, one byte more.
    for cut in [&bytes[..bytes.len() - 1], &[bytes.as_slice(), &[0]].concat()] {
        match llama2c::read(cut, path) {
            Err(ferrane_llm::weights::Error::Size { expected, found, .. }) => {
                assert_eq!((expected, found), (bytes.len() as u64, cut.len() as u64));
            }
            other => return Err(format!("a file of {} bytes: {:?}", cut.len(), other.map(|_| ()))),
        }
    }
    Ok(())
}

/// Safetensors without a configuration are refused with a list of what was tried.
#[test]
fn a_missing_configuration_is_explained() {
    let Some(mut suite) = Suite::open("llm configuration missing", "checkpoints") else { return };
    for path in files(&suite) {
        let stem = name(&path);
        let Some(stem) = stem.strip_suffix(".safetensors") else { continue };
        let beside = [path.with_file_name(format!("{stem}_config.json")), path.with_file_name("config.json")];
        if beside.iter().any(|p| p.is_file()) {
            continue;
        }
        let result = match load(&path, None) {
            Err(e) if e.to_string().contains("config.json") => Ok(()),
            Err(e) => Err(format!("unclear: {e}")),
            Ok(_) => Err("loaded without a configuration".into()),
        };
        suite.case(&id(&path), result);
    }
    suite.finish();
}

/// The comparisons of the suites above report NaN and different counts as errors.
#[test]
fn nothing_passes_by_being_no_number() {
    assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 4.0]), Ok(2.0));
    assert!((compare(&[1.0, 2.0], &[1.0, 2.0]).unwrap().1 - 1.0).abs() < 1e-12);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (found, expected) in [([1.0, bad], [1.0, 2.0]), ([1.0, 2.0], [bad, 2.0]), ([bad; 2], [bad; 2])] {
            assert!(largest_difference(&found, &expected).is_err());
            assert!(compare(&found, &expected).is_err());
        }
    }
    assert!(largest_difference(&[], &[]).is_err() && largest_difference(&[1.0], &[1.0, 1.0]).is_err());
    assert!(compare(&[0.0], &[0.0]).is_err());
    assert!(at_most(&[("a", 1.0, 1.0)]).is_ok() && at_most(&[("a", 1.0, 1.0), ("b", f64::NAN, 1.0)]).is_err());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x_logits.json");
    for (sequences, logits, good) in [
        ("[[1, 2]]", "[[[0.5], [0.25]]]", true),
        ("[[1, 2], [3]]", "[[[0.5], [0.25]]]", false),
        ("[[1, 2]]", "[[[0.5]]]", false),
        ("[[]]", "[[]]", false),
        ("[]", "[]", false),
    ] {
        std::fs::write(&path, format!("{{\"sequences\": {sequences}, \"logits\": {logits}}}")).unwrap();
        assert_eq!(recorded(&path).is_ok(), good, "{sequences} {logits}");
    }
}

/// A case whose weights are only in shards is found.
#[test]
fn shards_alone_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, index) = (folder.path().join("x_logits.json"), folder.path().join("x.safetensors.index.json"));
    assert!(weights_beside(&path, "x").is_err());
    std::fs::write(&index, "{}").unwrap();
    assert_eq!(weights_beside(&path, "x").unwrap(), [index]);
}
