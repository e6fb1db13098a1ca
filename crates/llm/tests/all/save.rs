//! Models written for other programs come back: weights to the bit, ids of texts, and what they
//! lack as an error or a note.

use crate::families::folders;
use crate::gguf::Model32;
use ferrane_gguf::{Array, File, MetadataValue};
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::{Activation, Config, Rope, RopeScaling, RopeStyle};
use ferrane_llm::lora::Adapter;
use ferrane_llm::model::Model;
use ferrane_llm::reference::Reference;
use ferrane_llm::save::{self, Error, Saved, SavedWeights};
use ferrane_llm::tokenizer::Tokenizer;
use ferrane_llm::weights::{Init, Weights, llama2c, load, native};
use ferrane_testdata::tokenizer::byte_tokenizer;
use half::f16;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A text with pairs to merge, and others to encode.
const TEXT: &str = "the cat sat on the mat. the hat that the cat had was the best hat, and the cat's mat was flat";
const TEXTS: [&str; 7] =
    ["the cat sat", "", " two  spaces\n", "naïve – 猫 🙂", "that's the cat's hat", "<0x0A>\t", "theeee"];

fn config() -> Config {
    let config =
        Config { dim: 32, hidden: 64, heads: 4, kv_heads: 2, head_dim: 8, vocab: 300, ..crate::gradients::plain() };
    Config { rope: Rope::new(RopeStyle::Half, 1e4), ..config }
}

fn weights(config: &Config) -> Weights {
    Weights::init(config, Init::Normal { std: 0.2 }, 7)
}

/// A run's folder with a tokenizer of `size` pieces.
fn run(folder: &Path, config: &Config, weights: &Weights, size: usize) -> PathBuf {
    let (path, step) = (folder.join("run"), folder.join("run/step-000001"));
    fs::create_dir_all(&step).unwrap();
    native::save(&step.join("model.safetensors"), config, weights).unwrap();
    Tokenizer::train(TEXT, size).unwrap().save(path.join("tokenizer.bin")).unwrap();
    path
}

fn hf(model: &Model, target: &Path) -> Saved {
    save::huggingface(model, SavedWeights::Fp32, target, false, &mut |_| true).unwrap()
}

fn gguf(model: &Model, target: &Path, weights: SavedWeights) -> Saved {
    save::gguf(model, weights, target, true, &mut |_| true).unwrap()
}

fn logits(config: &Config, weights: &Weights) -> Vec<f32> {
    Reference::new(config, weights).unwrap().logits(&[1, 5, 7, 2, 9]).unwrap()
}

fn near(a: &[f32], b: &[f32]) {
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(a.len() == b.len() && worst < 1e-4, "{worst}");
}

#[track_caller]
fn same_ids(a: &Tokenizer, b: &Tokenizer) {
    for text in TEXTS {
        assert_eq!(a.encode(text), b.encode(text), "{text:?}");
        assert_eq!(a.decode(&a.encode(text)), b.decode(&b.encode(text)), "{text:?}");
    }
    assert_eq!((a.begin(), a.bos(), a.eos()), (b.begin(), b.bos(), b.eos()));
}

/// Tied and untied runs, whose pairs are neighbors and whose branches have a factor.
#[test]
fn runs_become_folders_and_files() {
    for tied in [true, false] {
        let rope = Rope::new(RopeStyle::Interleaved, 1e4);
        let config = Config { tied, rope, residual_scale: 0.7, ..config() };
        let made = weights(&config);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let model = Model::open(run(folder.path(), &config, &made, 290)).unwrap();
        let saved = hf(&model, &path("hf"));
        assert_eq!(
            saved.files,
            ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
        );
        assert_eq!(saved.notes, Vec::<String>::new());
        assert_eq!(saved.weight_bytes, 4 * config.parameters() as u64);
        let opened = Model::open(path("hf")).unwrap();
        let (found, read) = load(&path("hf"), None).unwrap();
        assert_eq!((found.tied, found.rope.style, found.residual_scale), (tied, RopeStyle::Half, 1.0));
        near(&logits(&config, &made), &logits(&found, &read));
        same_ids(model.tokenizer().unwrap(), opened.tokenizer().unwrap());
        // Texts of llama2.c end at the begin piece, too.
        assert_eq!(opened.generation.stop, [2, 1]);

        gguf(&model, &path("a.gguf"), SavedWeights::Fp32);
        let (again, values) = load(&path("a.gguf"), None).unwrap();
        assert_eq!(again, found);
        assert!(values == read);
        let opened = Model::open(path("a.gguf")).unwrap();
        same_ids(model.tokenizer().unwrap(), opened.tokenizer().unwrap());
        assert_eq!(opened.tokenizer().unwrap().ends(), [2, 1]);
        let file = File::open(path("a.gguf")).unwrap();
        let list = |key: &str| file.get(&format!("tokenizer.ggml.{key}")).and_then(MetadataValue::as_array).unwrap();
        let tokens = list("tokens").strings().unwrap();
        assert_eq!((tokens.len(), tokens[1].as_str(), tokens[299].as_str()), (300, "<s>", "[PAD299]"));
        assert!(tokens.iter().any(|token| token == "\u{2581}the"));
        let kinds = list("token_type").integers().unwrap();
        assert_eq!((&kinds[..4], kinds[299]), (&[2, 3, 3, 6][..], 5));
        assert!(matches!(list("scores"), Array::F32(scores) if scores.len() == 300));

        // A GGUF file as a folder, and the folder as a file.
        hf(&opened, &path("back"));
        let (_, back) = load(&path("back"), None).unwrap();
        assert!(back == read);
        same_ids(model.tokenizer().unwrap(), Model::open(path("back")).unwrap().tokenizer().unwrap());
    }
}

/// llama.cpp's order of rows: the two halves of a head take turns.
#[test]
fn only_llama_pairs_neighbors() {
    let base = config();
    for (architecture, config) in [
        ("llama", base.clone()),
        ("llama", Config { sliding_window: Some(3), ..base.clone() }),
        ("qwen2", Config { qkv_bias: true, ..base.clone() }),
        ("qwen3", Config { qk_norm: true, tied: true, ..base.clone() }),
    ] {
        let made = weights(&config);
        let folder = tempfile::tempdir().unwrap();
        let model = Model::open(run(folder.path(), &config, &made, 290)).unwrap();
        let target = folder.path().join("a.gguf");
        gguf(&model, &target, SavedWeights::Fp32);
        let (found, read) = load(&target, None).unwrap();
        assert_eq!(found, config);
        assert!(read == made, "{architecture}");
        let file = File::open(&target).unwrap();
        assert_eq!(file.get("general.architecture").and_then(MetadataValue::as_str), Some(architecture));
        let mut rows = vec![0.0; made.layers[0].wq.len()];
        file.read(file.tensor("blk.0.attn_q.weight").unwrap(), &mut rows).unwrap();
        let row = |values: &[f32], row: usize| values[row * config.dim..][..config.dim].to_vec();
        let second = if architecture == "llama" { 4 } else { 1 };
        assert_eq!(row(&rows, 1), row(&made.layers[0].wq, second), "{architecture}");
    }
}

#[test]
fn weights_are_rounded_as_asked() {
    let config = Config { hidden: 40, ..config() };
    let mut made = weights(&config);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let model = Model::open(run(folder.path(), &config, &made, 290)).unwrap();
    save::huggingface(&model, SavedWeights::Fp16, &path("hf"), false, &mut |_| true).unwrap();
    let (_, read) = load(&path("hf"), None).unwrap();
    let half = |v: &f32| f16::from_f32(*v).to_f32();
    assert_eq!(read.layers[1].w2, made.layers[1].w2.iter().map(half).collect::<Vec<_>>());
    let fields: Value = serde_json::from_slice(&fs::read(path("hf/config.json")).unwrap()).unwrap();
    assert_eq!(fields["torch_dtype"], "float16");
    let saved = gguf(&model, &path("a.gguf"), SavedWeights::Q8_0);
    // Rows of 40 are not whole blocks.
    assert!(saved.notes[0].contains("layers.0.w2") && !saved.notes[0].contains("wq"), "{:?}", saved.notes);
    let file = File::open(path("a.gguf")).unwrap();
    let ty = |name: &str| file.tensor(name).unwrap().ty().name();
    let found = [ty("token_embd.weight"), ty("blk.0.ffn_down.weight"), ty("blk.0.attn_norm.weight")];
    assert_eq!(found, ["Q8_0", "F16", "F32"]);
    let refused = save::huggingface(&model, SavedWeights::Q8_0, &path("other"), false, &mut |_| true);
    assert!(matches!(refused, Err(Error::Unwritable { .. })));
    // Beyond fp16.
    made.layers[0].wk[3] = 1e6;
    let model = Model::open(run(folder.path(), &config, &made, 290)).unwrap();
    for error in [
        save::huggingface(&model, SavedWeights::Fp16, &path("big"), false, &mut |_| true).unwrap_err(),
        save::gguf(&model, SavedWeights::Fp16, &path("big"), false, &mut |_| true).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Range { value: 1e6, .. }), "{error}");
    }
    assert!(!path("big").exists());
    hf(&model, &path("big"));
    assert!(load(&path("big"), None).unwrap().1 == made);
}

#[test]
fn llama2c_files_are_models_too() {
    let config = Config { tied: true, rope: Rope::new(RopeStyle::Interleaved, 1e4), norm_eps: 1e-5, ..config() };
    let made = weights(&config);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    llama2c::save(&path("model.bin"), &config, &made).unwrap();
    let saved = hf(&Model::open(path("model.bin")).unwrap(), &path("without"));
    assert!(saved.notes[0].contains("no tokenizer"), "{:?}", saved.notes);
    Tokenizer::train(TEXT, 290).unwrap().save(path("tokenizer.bin")).unwrap();
    let model = Model::open(path("model.bin")).unwrap();
    hf(&model, &path("hf"));
    gguf(&model, &path("a.gguf"), SavedWeights::Fp32);
    for name in ["hf", "a.gguf"] {
        let (found, read) = load(&path(name), None).unwrap();
        near(&logits(&config, &made), &logits(&found, &read));
        same_ids(model.tokenizer().unwrap(), Model::open(path(name)).unwrap().tokenizer().unwrap());
    }
}

/// Folders of every family keep their configuration, their files and their weights.
#[test]
fn folders_of_every_family_come_back() {
    for family in folders() {
        let model = Model::open(&family).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let saved = hf(&model, &folder.path().join("hf"));
        let (config, read) = load(&folder.path().join("hf"), None).unwrap();
        let (expected, made) = load(&family, None).unwrap();
        assert_eq!(config, expected, "{}", family.display());
        // Gemma's gains are stored as differences from 1, which rounds once more.
        for (a, b) in read.tensors(&config).iter().zip(made.tensors(&config)) {
            assert!(a.data.iter().zip(b.data).all(|(a, b)| (a - b).abs() <= 1e-7 * b.abs().max(1.0)), "{}", a.name);
        }
        assert!(saved.files.contains(&"config.json".to_string()));
        // The same as a GGUF file, if its architectures have the options.
        let target = folder.path().join("a.gguf");
        match save::gguf(&model, SavedWeights::Fp32, &target, false, &mut |_| true) {
            Ok(_) => {
                let (found, values) = load(&target, None).unwrap();
                near(&logits(&expected, &made), &logits(&found, &values));
            }
            Err(Error::Unwritable { reason }) => assert!(reason.contains("folder"), "{reason}"),
            Err(other) => panic!("{}: {other}", family.display()),
        }
    }
}

#[test]
fn a_folder_keeps_its_files() {
    let (config, folder) = (config(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let model = Model::open(run(folder.path(), &config, &weights(&config), 290)).unwrap();
    hf(&model, &path("hf"));
    let files = [
        ("tokenizer.json", byte_tokenizer(&["<s>", "<|im_end|>"], Some("<s>")).to_string()),
        (
            "tokenizer_config.json",
            json!({"eos_token": "<|im_end|>", "chat_template": "{{ messages[0].content }}"}).to_string(),
        ),
        ("generation_config.json", json!({"eos_token_id": [257, 5], "temperature": 0.5}).to_string()),
    ];
    for (name, text) in &files {
        fs::write(path("hf").join(name), text).unwrap();
    }
    let model = Model::open(path("hf")).unwrap();
    hf(&model, &path("again"));
    for (name, text) in &files {
        assert_eq!(&fs::read_to_string(path("again").join(name)).unwrap(), text);
    }
    // The GGUF file has the byte-level vocabulary, the template and the ids that end a text.
    gguf(&model, &path("a.gguf"), SavedWeights::Fp32);
    let opened = Model::open(path("a.gguf")).unwrap();
    same_ids(model.tokenizer().unwrap(), opened.tokenizer().unwrap());
    assert_eq!(opened.tokenizer().unwrap().ends(), [257, 5]);
    let file = File::open(path("a.gguf")).unwrap();
    let text = |key: &str| file.get(key).and_then(MetadataValue::as_str);
    assert_eq!(text("tokenizer.ggml.model"), Some("gpt2"));
    assert_eq!(text("tokenizer.ggml.pre"), Some("gpt-2"));
    assert_eq!(text("tokenizer.chat_template"), Some("{{ messages[0].content }}"));
    // And back.
    hf(&opened, &path("back"));
    let back = Model::open(path("back")).unwrap();
    same_ids(model.tokenizer().unwrap(), back.tokenizer().unwrap());
    assert_eq!(back.generation.stop, [257, 5]);
    assert_eq!(fs::read_to_string(path("back/chat_template.jinja")).unwrap(), "{{ messages[0].content }}");
    // Another tokenizer replaces them.
    let given = Model::open_with_tokenizer(path("hf"), path("run/tokenizer.bin")).unwrap();
    hf(&given, &path("given"));
    same_ids(given.tokenizer().unwrap(), Model::open(path("given")).unwrap().tokenizer().unwrap());
}

#[test]
fn unknown_ways_to_split_words_are_refused() {
    let (config, folder) = (config(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    hf(&Model::open(run(folder.path(), &config, &weights(&config), 290)).unwrap(), &path("hf"));
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut tokenizer = byte_tokenizer(&["<s>"], None);
        change(&mut tokenizer);
        fs::write(path("hf/tokenizer.json"), tokenizer.to_string()).unwrap();
        let model = Model::open(path("hf")).unwrap();
        save::gguf(&model, SavedWeights::Fp32, &path("a.gguf"), false, &mut |_| true).unwrap_err().to_string()
    };
    let digits = json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": false},
                        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]});
    assert!(refused(&|json| json["pre_tokenizer"] = digits.clone()).contains("tokenizer.ggml.pre"));
    assert!(refused(&|json| json["normalizer"] = json!({"type": "Lowercase"})).contains("tokenizer.ggml.pre"));
    assert!(refused(&|json| json["model"]["ignore_merges"] = true.into()).contains("tokenizer.ggml.pre"));
    // Words as SentencePiece spells them have no scores in a tokenizer.json.
    assert!(refused(&|json| json["decoder"] = json!({"type": "Metaspace", "replacement": "▁"})).contains("byte-level"));
    assert!(!path("a.gguf").exists());
}

#[test]
fn an_adapter_is_merged() {
    let (config, folder) = (config(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let made = weights(&config);
    let run = run(folder.path(), &config, &made, 290);
    fs::create_dir(path("adapter")).unwrap();
    let settings = json!({"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["v_proj"]});
    fs::write(path("adapter/adapter_config.json"), settings.to_string()).unwrap();
    let name = |matrix: &str| format!("base_model.model.model.layers.0.self_attn.v_proj.lora_{matrix}.weight");
    let (a, b) = (vec![0.5f32; config.dim], vec![0.25f32; config.kv_dim()]);
    let bytes: Vec<u8> = a.iter().chain(&b).flat_map(|v| v.to_le_bytes()).collect();
    let end = 4 * config.dim;
    let header = json!({ name("A"): {"dtype": "F32", "shape": [1, config.dim], "data_offsets": [0, end]},
                         name("B"): {"dtype": "F32", "shape": [config.kv_dim(), 1], "data_offsets": [end, bytes.len()]} });
    let header = header.to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat();
    fs::write(path("adapter/adapter_model.safetensors"), file).unwrap();
    let adapter = Adapter::open(path("adapter"), &config).unwrap();
    let model = Model::open(&run).unwrap().with_adapter(adapter.scaled(0.5)).unwrap();
    let error = save::huggingface(&model, SavedWeights::Fp32, &path("adapter"), true, &mut |_| true).unwrap_err();
    assert!(matches!(error, Error::Source(_)), "{error}");
    hf(&model, &path("hf"));
    gguf(&model, &path("a.gguf"), SavedWeights::Fp32);
    for name in ["hf", "a.gguf"] {
        let (_, read) = load(&path(name), None).unwrap();
        let changed: Vec<f32> = made.layers[0].wv.iter().map(|v| v + 0.125).collect();
        assert_eq!(read.layers[0].wv, changed);
        assert!(read.layers[1] == made.layers[1]);
    }
}

/// The ids that a run left out are suppressed, or at least named.
#[test]
fn untrained_ids_are_named() {
    let (config, folder) = (config(), tempfile::tempdir().unwrap());
    let path = run(folder.path(), &config, &weights(&config), 290);
    let used = Compaction::used((0..300).filter(|id| id % 3 != 0), 300);
    fs::write(path.join("step-000001/state.json"), json!({ "compaction": used }).to_string()).unwrap();
    let model = Model::open(&path).unwrap();
    let target = folder.path().join("hf");
    let saved = hf(&model, &target);
    assert!(saved.notes[0].contains("200 of 300 ids"), "{:?}", saved.notes);
    let fields: Value = serde_json::from_slice(&fs::read(target.join("generation_config.json")).unwrap()).unwrap();
    let suppressed: Vec<u64> = fields["suppress_tokens"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!(suppressed, (0..300).filter(|id| id % 3 == 0).collect::<Vec<u64>>());
    let saved = gguf(&model, &folder.path().join("a.gguf"), SavedWeights::Fp32);
    assert!(saved.notes[0].contains("untrained"), "{:?}", saved.notes);
}

#[test]
fn a_gguf_keeps_its_metadata() {
    let (config, folder) = (config(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let made = weights(&config);
    let model = Model32::of("llama", &config, &made).with("general.name", "a name").with("general.file_type", 0u32);
    let model = Model::open(model.with("llama.rope.scaling.type", "none").save(folder.path())).unwrap();
    let saved = gguf(&model, &path("half.gguf"), SavedWeights::Fp16);
    assert_eq!(saved.files, ["half.gguf"]);
    let file = File::open(path("half.gguf")).unwrap();
    assert_eq!(file.get("general.name").and_then(MetadataValue::as_str), Some("a name"));
    assert_eq!(file.get("general.file_type").and_then(MetadataValue::as_u64), Some(1));
    assert_eq!(file.get("llama.rope.scaling.type").and_then(MetadataValue::as_str), Some("none"));
}

/// Scaled frequencies are written; Llama 3's as divisors.
#[test]
fn rotations_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.gguf");
    for (scaling, same) in [
        (RopeScaling::Linear { factor: 4.0 }, true),
        (RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 32 }, false),
    ] {
        let mut config = config();
        config.rope.scaling = Some(scaling);
        let made = weights(&config);
        let model = Model::open(run(folder.path(), &config, &made, 290)).unwrap();
        gguf(&model, &target, SavedWeights::Fp32);
        let (found, read) = load(&target, None).unwrap();
        assert!(!same || found == config, "{found:?}");
        near(&logits(&config, &made), &logits(&found, &read));
        hf(&model, &folder.path().join(format!("hf{same}")));
        assert_eq!(load(&folder.path().join(format!("hf{same}")), None).unwrap().0, config);
    }
}

#[test]
fn what_would_be_lost_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let plain = config();
    for (config, field) in [
        (Config { logit_softcap: Some(30.0), ..plain.clone() }, "logit_softcap"),
        (Config { activation: Activation::GeluTanh, ..plain.clone() }, "activation"),
        (Config { qk_norm: true, qkv_bias: true, ..plain.clone() }, "qkv_bias"),
    ] {
        let model = Model::open(run(folder.path(), &config, &weights(&config), 290)).unwrap();
        let error = save::gguf(&model, SavedWeights::Fp32, &path("a.gguf"), false, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
        let error = save::huggingface(&model, SavedWeights::Fp32, &path("hf"), false, &mut |_| true).unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
    }
    let model = Model::open(run(folder.path(), &plain, &weights(&plain), 290)).unwrap();
    // The model itself, and a folder around it; then a target that exists, and one that is stopped.
    for target in [model.path.clone(), folder.path().to_path_buf()] {
        let error = save::huggingface(&model, SavedWeights::Fp32, &target, true, &mut |_| true).unwrap_err();
        assert!(matches!(error, Error::Source(_)), "{error}");
        let error = save::gguf(&model, SavedWeights::Fp32, &target, true, &mut |_| true).unwrap_err();
        assert!(matches!(error, Error::Source(_)), "{error}");
    }
    for gguf in [false, true] {
        let write = if gguf { save::gguf } else { save::huggingface };
        let stopped = write(&model, SavedWeights::Fp32, &path("out"), false, &mut |done| done < 3);
        assert!(matches!(stopped, Err(Error::Cancelled)));
        fs::write(path("out"), "mine").unwrap();
        let error = write(&model, SavedWeights::Fp32, &path("out"), false, &mut |_| true).unwrap_err();
        assert!(matches!(error, Error::Exists(_)), "{error}");
        assert_eq!(fs::read(path("out")).unwrap(), b"mine");
        fs::remove_file(path("out")).unwrap();
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["run"]);
}

/// Vocabularies that have no form in a folder are written as they are, and it is said.
#[test]
fn vocabularies_without_a_form_are_named() {
    let (config, folder) = (config(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let run = run(folder.path(), &config, &weights(&config), 290);
    let mut bytes = fs::read(run.join("tokenizer.bin")).unwrap();
    // A second piece of the same name.
    bytes.extend([0, 0, 0, 0, 4, 0, 0, 0]);
    bytes.extend(b" the");
    fs::write(run.join("tokenizer.bin"), bytes).unwrap();
    let model = Model::open(&run).unwrap();
    let saved = hf(&model, &path("hf"));
    assert!(saved.notes[0].contains("tokenizer.bin and no tokenizer.json"), "{:?}", saved.notes);
    assert_eq!(Model::open(path("hf")).unwrap().tokenizer.unwrap().digest(), model.tokenizer().unwrap().digest());
    let error = save::gguf(&model, SavedWeights::Fp32, &path("a.gguf"), false, &mut |_| true).unwrap_err();
    assert!(matches!(error, Error::Tokenizer(_)), "{error}");
}

/// The published vocabularies: Llama 2 as `.bin` and `.model`, GPT-2 and Qwen.
#[test]
fn published_vocabularies_encode_the_same() {
    let Some(root) = ferrane_testdata::root() else { return };
    let text = root.join("text/tinyshakespeare.txt");
    let text = fs::read_to_string(text).map_or_else(|_| TEXT.into(), |text| text[..4000].to_string());
    for name in ["tok512.bin", "llama2_32000.bin", "llama2_32000.model", "gpt2_vocab.json", "qwen_vocab.json"] {
        let path = root.join("tokenizers").join(name);
        if !path.is_file() {
            eprintln!("skipped: {} is missing", path.display());
            continue;
        }
        let tokenizer = Tokenizer::open(&path).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = tokenizer.to_hf().unwrap();
        fs::write(folder.path().join("tokenizer.json"), files.json).unwrap();
        fs::write(folder.path().join("tokenizer_config.json"), Value::Object(files.config).to_string()).unwrap();
        let written = Tokenizer::open(folder.path()).unwrap();
        assert_eq!(written.encode(&text), tokenizer.encode(&text), "{name}");
        same_ids(&tokenizer, &written);
        let mut writer = ferrane_gguf::Writer::new();
        for (key, value) in tokenizer.to_gguf(tokenizer.vocab_size(), tokenizer.ends()).unwrap() {
            writer.metadata(&key, value).unwrap();
        }
        writer.save(folder.path().join("a.gguf")).unwrap();
        let written = Tokenizer::open(folder.path().join("a.gguf")).unwrap();
        assert_eq!(written.encode(&text), tokenizer.encode(&text), "{name}");
        same_ids(&tokenizer, &written);
    }
}
