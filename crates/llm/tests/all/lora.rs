//! Adapters that PEFT wrote, compared with the logits of the models that PEFT merged.
//!
//! `scripts/llm/adapters.py` wrote the folders of `tests/adapters`; each adapts the model of
//! `tests/families` with its name.

use crate::checkpoints::{ids, largest_difference, name, numbers};
use crate::device::relative_difference;
use crate::kernels::emulator;
use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics, ProcessCounts};
use ferrane_llm::config::Config;
use ferrane_llm::decode::quantize::WeightType;
use ferrane_llm::decode::{Decoder, Options};
use ferrane_llm::forward;
use ferrane_llm::lora::{Adapter, Error};
use ferrane_llm::random::Rng;
use ferrane_llm::reference::Reference;
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Weights, load};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A model with an adapter, a sequence, and its logits `[tokens, vocab]`.
struct Case {
    name: String,
    config: Config,
    weights: Weights,
    adapter: Adapter,
    merged: Weights,
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

fn root(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)
}

fn cases() -> Vec<Case> {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(root("adapters")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(folders.len() >= 6);
    let case = |folder: PathBuf| {
        let (config, weights) = load(&root("families").join(name(&folder)), None).unwrap();
        let adapter = Adapter::open(&folder, &config).unwrap();
        let mut merged = weights.clone();
        adapter.merge_into(&mut merged, &config).unwrap();
        let file = Container::open(&folder.join("logits.safetensors")).unwrap();
        let (tokens, logits) = (ids(&file, "tokens").unwrap(), numbers(&file, "logits", f32::from_le_bytes).unwrap());
        Case { name: name(&folder).to_string(), config, weights, adapter, merged, tokens, logits }
    };
    folders.into_iter().map(case).collect()
}

/// The rows of logits after prefixes of these lengths.
fn fed(decoder: &mut Decoder, tokens: &[u32], ends: &[usize]) -> Vec<f32> {
    decoder.clear();
    let mut from = 0;
    let feed = |&end: &usize| decoder.feed(&tokens[std::mem::replace(&mut from, end)..end]).unwrap().to_vec();
    ends.iter().flat_map(feed).collect()
}

fn options(rank: usize) -> Options {
    Options { adapter_rank: rank, ..Options::default() }
}

#[test]
fn merged_weights_give_the_logits_that_peft_gives() {
    for case in cases() {
        let found = Reference::new(&case.config, &case.merged).unwrap().logits(&case.tokens).unwrap();
        let error = largest_difference(&found, &case.logits).unwrap();
        let plain = Reference::new(&case.config, &case.weights).unwrap().logits(&case.tokens).unwrap();
        let effect = relative_difference(&plain, &case.logits).unwrap();
        eprintln!("{}: |Δlogit| ≤ {error:.1e}, effect of the adapter {effect:.2}", case.name);
        // As for the models without an adapter.
        assert!(error < 1e-4 && effect > 0.05, "{}: {error} {effect}", case.name);
        // A scale of 0 changes nothing, twice the scale is another model.
        for (scale, same) in [(0.0, true), (2.0, false)] {
            let mut weights = case.weights.clone();
            case.adapter.clone().scaled(scale).merge_into(&mut weights, &case.config).unwrap();
            assert_eq!((weights == case.weights, weights == case.merged), (same, false));
        }
    }
}

#[test]
fn inputs_of_the_programs_give_what_merged_weights_give() {
    for case in cases() {
        let ends: Vec<usize> = [36, 37, 38, 39, 40].into();
        let expected = &case.logits[35 * case.config.vocab..];
        for numerics in [Numerics::Fast, Numerics::Exact] {
            let device = emulator(numerics);
            let mut adapted = Decoder::new(&device, &case.config, &case.weights, options(8)).unwrap();
            adapted.set_adapter(Some(&case.adapter)).unwrap();
            let mut merged = Decoder::new(&device, &case.config, &case.merged, Options::default()).unwrap();
            let (found, same) = (fed(&mut adapted, &case.tokens, &ends), fed(&mut merged, &case.tokens, &ends));
            let error = relative_difference(&found, expected).unwrap();
            let of_merged = relative_difference(&same, expected).unwrap();
            let between = relative_difference(&found, &same).unwrap();
            eprintln!("{} {numerics:?}: {error:.1e}, merged {of_merged:.1e}, between them {between:.1e}", case.name);
            // Merged weights are rounded to fp16 as a sum, the others each by itself. Models as
            // narrow as these do not average roundings out: both are off by a few thousandths.
            assert!(error < 6e-3 && between < 3e-3, "{} {numerics:?}: {error} {of_merged} {between}", case.name);
        }
    }
}

#[test]
fn a_wider_model_agrees_with_its_merged_weights_to_a_thousandth() {
    let preset = ferrane_llm::config::preset("stories15m").unwrap();
    let config = Config { vocab: 400, ..preset };
    let weights = Weights::init(&config, ferrane_llm::weights::Init::Normal { std: 0.05 }, 3);
    let place = whole_adapter(&config, 8);
    let adapter = Adapter::open(place.path(), &config).unwrap();
    let mut merged = weights.clone();
    adapter.merge_into(&mut merged, &config).unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| (i * i * 7 + i / 3 + 1) % 400).collect();
    let device = emulator(Numerics::Fast);
    let run = |weights: &Weights, adapter: Option<&Adapter>| {
        let mut decoder = Decoder::new(&device, &config, weights, options(8)).unwrap();
        decoder.set_adapter(adapter).unwrap();
        fed(&mut decoder, &tokens, &[36, 37, 38, 39, 40])
    };
    let (plain, found, expected) = (run(&weights, None), run(&weights, Some(&adapter)), run(&merged, None));
    let exact = Reference::new(&config, &merged).unwrap().logits(&tokens).unwrap();
    let exact = &exact[35 * config.vocab..];
    let effect = root_mean_square(&plain, &expected);
    let [between, adapted, of_merged] =
        [(&found, &expected[..]), (&found, exact), (&expected, exact)].map(|(a, b)| root_mean_square(a, b));
    eprintln!("effect {effect:.1e}; adapter {adapted:.1e}, merged {of_merged:.1e}, between them {between:.1e}");
    // The largest of 2000 differences is about four times as large.
    assert!(effect > 0.03 && between < 1e-3, "{effect} {between}");
    // The adapter adds no error of its own to that of the roundings of activations.
    assert!(adapted < 1.5 * of_merged, "{adapted} {of_merged}");
}

/// The root of the mean of squared differences, relative to the range of the expected values.
fn root_mean_square(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let (low, high) = expected.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let sum: f32 = found.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum();
    (sum / found.len() as f32).sqrt() / (high - low)
}

/// An adapter of random values for all projections.
fn whole_adapter(config: &Config, rank: usize) -> tempfile::TempDir {
    let fields = json!({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": "all-linear"});
    let (dim, kv, hidden) = (config.dim, config.kv_dim(), config.hidden);
    let modules = [
        ("self_attn.q_proj", config.q_dim(), dim),
        ("self_attn.k_proj", kv, dim),
        ("self_attn.v_proj", kv, dim),
        ("self_attn.o_proj", dim, config.q_dim()),
        ("mlp.gate_proj", hidden, dim),
        ("mlp.up_proj", hidden, dim),
        ("mlp.down_proj", dim, hidden),
    ];
    let mut tensors = Vec::new();
    for layer in 0..config.layers {
        for (module, out, cols) in modules {
            let name = |which| format!("base_model.model.model.layers.{layer}.{module}.lora_{which}.weight");
            tensors.extend([(name('A'), [rank, cols]), (name('B'), [out, rank])]);
        }
    }
    let tensors: Vec<_> = tensors.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
    let place = folder(&fields, &tensors);
    let path = place.path().join("adapter_model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let values: usize = tensors.iter().map(|(_, shape)| shape[0] * shape[1]).sum();
    let (from, mut rng) = (bytes.len() - 4 * values, Rng::new(9));
    for value in bytes[from..].chunks_exact_mut(4) {
        value.copy_from_slice(&(0.03 * rng.normal() as f32).to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    place
}

#[test]
fn switching_compiles_nothing() {
    for case in cases() {
        let mut emulated = EmulatorOptions::default();
        emulated.process = ProcessCounts::default();
        emulated.budget = Some(ferrane_machine::profile::Limit(Some(1000)));
        let counts = emulated.process.clone();
        let device = Device::new(Emulator::new(emulated));
        let ends = [36, 37, 38];
        let alone = |adapter: Option<&Adapter>| {
            let device = emulator(Numerics::Fast);
            let mut decoder = Decoder::new(&device, &case.config, &case.weights, options(16)).unwrap();
            decoder.set_adapter(adapter).unwrap();
            fed(&mut decoder, &case.tokens, &ends)
        };
        let twice = case.adapter.clone().scaled(2.0);
        let adapters = [Some(&case.adapter), None, Some(&twice), Some(&case.adapter)];
        let expected = adapters.map(alone);
        assert!(expected[0] != expected[1] && expected[0] != expected[2] && expected[0] == expected[3]);
        let mut decoder = Decoder::new(&device, &case.config, &case.weights, options(16)).unwrap();
        // All programs are compiled for the model without an adapter.
        assert_eq!(fed(&mut decoder, &case.tokens, &ends), expected[1]);
        let compiles = counts.compiles();
        assert!(compiles >= 4, "{compiles}");
        for (adapter, expected) in adapters.into_iter().zip(&expected) {
            decoder.set_adapter(adapter).unwrap();
            assert!(decoder.tokens().is_empty());
            assert_eq!(&fed(&mut decoder, &case.tokens, &ends), expected);
        }
        assert_eq!(counts.compiles(), compiles, "{}", case.name);
    }
}

#[test]
fn without_an_adapter_the_inputs_change_nothing() {
    for case in cases() {
        for weights in [WeightType::Fp16, WeightType::Int8] {
            let run = |rank| {
                let options = Options { weights, ..options(rank) };
                let mut decoder =
                    Decoder::new(&emulator(Numerics::Exact), &case.config, &case.weights, options).unwrap();
                fed(&mut decoder, &case.tokens, &[36, 37, 38])
            };
            assert_eq!(run(8), run(0), "{} {weights:?}", case.name);
        }
    }
}

#[test]
fn int8_weights_and_several_sequences_take_adapters() {
    for case in cases() {
        let device = emulator(Numerics::Fast);
        let mut alone =
            Decoder::new(&device, &case.config, &case.weights, Options { weights: WeightType::Int8, ..options(8) })
                .unwrap();
        let mut many = Decoder::new(&device, &case.config, &case.weights, Options { slots: 3, ..options(8) }).unwrap();
        alone.set_adapter(Some(&case.adapter)).unwrap();
        many.set_adapter(Some(&case.adapter)).unwrap();
        let row = |at: usize| &case.logits[at * case.config.vocab..][..case.config.vocab];
        let int8 = relative_difference(alone.feed(&case.tokens).unwrap(), row(39)).unwrap();
        let feeds = |from: usize, to: usize| [(0, &case.tokens[from..to]), (2, &case.tokens[from..to])];
        many.feed_all(&feeds(0, 39)).unwrap();
        let logits = many.feed_all(&feeds(39, 40)).unwrap();
        eprintln!("{}: int8 {int8:.1e}", case.name);
        // Weights are off by about 1 %, as without an adapter.
        assert!(int8 < 0.15, "{}: {int8}", case.name);
        for found in logits.chunks(case.config.vocab) {
            assert!(relative_difference(found, row(39)).unwrap() < 2e-2, "{}", case.name);
        }
    }
}

#[test]
fn adapters_that_do_not_fit_are_errors() {
    let cases = cases();
    let (case, other) = (&cases[0], &cases[1]);
    let device = emulator(Numerics::Fast);
    let mut decoder = Decoder::new(&device, &case.config, &case.weights, options(2)).unwrap();
    decoder.feed(&case.tokens[..3]).unwrap();
    let error = decoder.set_adapter(Some(&case.adapter)).unwrap_err();
    assert!(matches!(error, forward::Error::AdapterRank { found: 8, most: 2 }), "{error}");
    let error = decoder.set_adapter(Some(&other.adapter)).unwrap_err();
    assert!(matches!(error, forward::Error::Lora(Error::OtherModel { .. })), "{error}");
    assert_eq!(decoder.tokens(), &case.tokens[..3]);
    let mut merged = case.weights.clone();
    assert!(other.adapter.merge_into(&mut merged, &case.config).is_err());
    assert!(merged == case.weights);
    // Values beyond fp16 leave no half of an adapter.
    let mut decoder = Decoder::new(&device, &case.config, &case.weights, options(8)).unwrap();
    let plain = decoder.feed(&case.tokens).unwrap().to_vec();
    let error = decoder.set_adapter(Some(&case.adapter.clone().scaled(1e9))).unwrap_err();
    assert!(matches!(error, forward::Error::Quantize { .. }), "{error}");
    assert_eq!(decoder.feed(&case.tokens).unwrap(), plain);
}

/// A folder with this configuration and these tensors of zeros.
fn folder(config: &serde_json::Value, tensors: &[(&str, [usize; 2])]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("adapter_config.json"), config.to_string()).unwrap();
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in tensors {
        let begin = end;
        end += 4 * shape[0] * shape[1];
        header.insert((*name).into(), json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}));
    }
    let header = serde_json::Value::from(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; end]].concat();
    std::fs::write(place.path().join("adapter_model.safetensors"), bytes).unwrap();
    place
}

#[test]
fn damaged_adapters_are_diagnosed() {
    let config = cases().into_iter().find(|case| case.name == "llama3").unwrap().config;
    let fields = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": "all-linear"});
    let (q, dim) = (config.q_dim(), config.dim);
    let module = "base_model.model.model.layers.1.self_attn.q_proj";
    let a = format!("{module}.lora_A.weight");
    let b = a.replace("_A", "_B");
    let (a, b) = (a.as_str(), b.as_str());
    let open = |tensors: &[(&str, [usize; 2])]| Adapter::open(folder(&fields, tensors).path(), &config);
    let whole = open(&[(a, [2, dim]), (b, [q, 2])]).unwrap();
    assert_eq!((whole.rank(), whole.parameters()), (2, 2 * dim + 2 * q));
    let far = a.replace("layers.1.", "layers.2.");
    let odd = a.replace("layers.1.", "layers.01.");
    let dora = a.replace("lora_A.weight", "lora_magnitude_vector");
    for (tensors, needle) in [
        (&[][..], "the file has no tensors"),
        (&[(a, [2, dim])], "lora_B.weight is missing"),
        (&[(b, [q, 2])], "has no matrix A"),
        (&[(a, [3, dim]), (b, [q, 3])], "expected shape [2, 16]"),
        (&[(a, [2, dim]), (b, [q + 1, 2])], "expected shape"),
        (&[(far.as_str(), [2, dim])], "belongs to no projection"),
        (&[(odd.as_str(), [2, dim])], "belongs to no projection"),
        (&[(dora.as_str(), [2, dim])], "is not a matrix A or B"),
        (&[("base_model.model.lm_head.lora_A.weight", [2, dim])], "belongs to no projection"),
    ] {
        let error = open(tensors).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
    let mut narrow = fields.clone();
    narrow["target_modules"] = json!(["k_proj"]);
    let error = Adapter::open(folder(&narrow, &[(a, [2, dim]), (b, [q, 2])]).path(), &config).unwrap_err();
    assert!(error.to_string().contains("does not select"), "{error}");
    // Files that end early, at every length of the configuration and at some of the tensors.
    let place = root("adapters").join("llama3");
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let copy = tempfile::tempdir().unwrap();
        for name in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(place.join(name), copy.path().join(name)).unwrap();
        }
        let bytes = std::fs::read(place.join(file)).unwrap();
        for end in (0..bytes.len() - 2).step_by(7) {
            std::fs::write(copy.path().join(file), &bytes[..end]).unwrap();
            assert!(Adapter::open(copy.path(), &config).is_err(), "{file} {end}");
        }
    }
    assert!(matches!(Adapter::open("absent", &config), Err(Error::Io { .. })));
}
