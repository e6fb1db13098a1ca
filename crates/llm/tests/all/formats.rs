//! Round trips of every writer, and every reader's errors for corrupt files.

use crate::gradients::{everything, plain, random_weights};
use ferrane_llm::config::{Config, RopeStyle};
use ferrane_llm::weights::container::{self, Container};
use ferrane_llm::weights::{Error, Init, Slot, TensorKind, TensorRef, Weights, llama2c, load, load_hf, native};
use half::{bf16, f16};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn message<T>(result: Result<T, Error>) -> String {
    result.err().map(|e| e.to_string()).expect("an error")
}

/// A plain model whose heads together are as wide as the stream, as llama2.c requires.
fn llama() -> Config {
    Config { head_dim: 4, heads: 3, kv_heads: 1, dim: 12, norm_eps: 1e-5, ..plain() }
}

/// Readers map these files, so a writer must never change one in place.
#[test]
fn saving_replaces_the_file() {
    use ferrane_host::map::Mapped;
    let folder = tempfile::tempdir().unwrap();
    let config = llama();
    type Save = fn(&std::path::Path, &Config, &Weights) -> Result<(), ferrane_llm::weights::Error>;
    for (name, save) in [("model.safetensors", native::save as Save), ("model.bin", llama2c::save)] {
        let path = folder.path().join(name);
        save(&path, &config, &random_weights(&config, 1)).unwrap();
        let (mapped, before) = (Mapped::open(&path).unwrap(), std::fs::read(&path).unwrap());
        save(&path, &config, &random_weights(&config, 2)).unwrap();
        assert!(*mapped == *before, "{name} changed under its reader");
        assert_eq!(load(&path, None).unwrap().1, random_weights(&config, 2));
        // Weights of another configuration are refused, and the file stays.
        let before = std::fs::read(&path).unwrap();
        assert!(save(&path, &config, &random_weights(&everything(), 1)).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn native_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    for config in [everything(), plain()] {
        let weights = random_weights(&config, 1);
        native::save(&path, &config, &weights).unwrap();
        assert_eq!(native::load(&path).unwrap(), (config.clone(), weights.clone()));
        assert_eq!(load(&path, None).unwrap(), (config.clone(), weights.clone()));
        assert_eq!(load(folder.path(), None).unwrap(), (config.clone(), weights.clone()));
        // Another configuration that the tensors fit may replace the file's own.
        let longer = Config { max_seq: 99, ..config.clone() };
        let json = folder.path().join("longer.json");
        std::fs::write(&json, serde_json::to_string(&longer).unwrap()).unwrap();
        assert_eq!(load(&path, Some(&json)).unwrap(), (longer, weights.clone()));
        let wider = Config { hidden: 11, ..config };
        std::fs::write(&json, serde_json::to_string(&wider).unwrap()).unwrap();
        let text = message(load(&path, Some(&json)));
        assert!(text.contains("layers.0.w1") && text.contains("[11, 12]") && text.contains("[10, 12]"), "{text}");
    }
}

#[test]
fn llama2c_round_trip() {
    for config in [llama(), Config { tied: false, ..llama() }] {
        let weights = random_weights(&config, 2);
        let mut bytes = Vec::new();
        llama2c::write(&mut bytes, Path::new("x"), &config, &weights).unwrap();
        assert_eq!(bytes.len() as u64, llama2c::file_size(&config));
        assert_eq!(llama2c::read(&bytes, Path::new("x")).unwrap(), (config, weights));
    }
}

#[test]
fn llama2c_refuses_what_it_cannot_say() {
    type Edit = fn(&mut Config);
    let edits: [(Edit, &str); 8] = [
        (|c| c.rope.style = RopeStyle::Half, "interleaved"),
        (|c| c.rope.base = 1e6, "base"),
        (|c| c.norm_eps = 1e-6, "eps"),
        (|c| c.qk_norm = true, "normalized"),
        (|c| c.qkv_bias = true, "biases"),
        (|c| c.sliding_window = Some(4), "window"),
        (|c| c.residual_scale = 0.5, "residual"),
        (|c| c.head_dim = 6, "wide"),
    ];
    for (edit, needle) in edits {
        let mut config = llama();
        edit(&mut config);
        let text = message(llama2c::write(&mut Vec::new(), Path::new("x"), &config, &Weights::zeros(&config)));
        assert!(text.contains(needle), "{text}");
    }
    let text = message(llama2c::write(&mut Vec::new(), Path::new("x"), &llama(), &Weights::zeros(&everything())));
    assert!(text.contains("do not fit"), "{text}");
}

#[test]
fn llama2c_headers_that_lie() {
    let head = |fields: [i32; 7]| fields.iter().flat_map(|f| f.to_le_bytes()).collect::<Vec<u8>>();
    let read = |bytes: &[u8]| llama2c::read(bytes, Path::new("model.bin"));
    // Sizes of terabytes are refused before any allocation.
    let text = message(read(&head([1 << 12, 1 << 14, 1 << 11, 64, 64, 1 << 20, 1 << 20])));
    assert!(text.contains("expected") && text.contains("found 28"), "{text}");
    for (fields, needle) in [
        ([i32::MAX; 7], "limit"),
        ([0, 1, 1, 1, 1, 1, 1], "dim = 0"),
        ([4, -4, 1, 1, 1, 4, 4], "hidden_dim = -4"),
        ([4, 4, 1, 1, 1, i32::MIN, 4], "limit"),
        ([6, 4, 1, 4, 4, 4, 4], "multiple"),
        ([0x616B_3432, 1, 0, 0, 0, 0, 0], "version 1"),
        ([12, 4, 1, 4, 3, 4, 4], "must be"),
    ] {
        let text = message(read(&head(fields)));
        assert!(text.contains(needle), "{fields:?}: {text}");
    }
    assert!(message(read(&[0; 27])).contains("28"));
}

fn hf_name(slot: Slot) -> String {
    // A second copy of the reader's table of names, for writing test files.
    let Slot::Layer(index, part) = slot else {
        return match slot {
            Slot::Embed => "model.embed_tokens.weight",
            Slot::Norm => "model.norm.weight",
            _ => "lm_head.weight",
        }
        .to_string();
    };
    let suffix = match part.name() {
        "attn_norm" => "input_layernorm.weight",
        "ffn_norm" => "post_attention_layernorm.weight",
        "w1" => "mlp.gate_proj.weight",
        "w2" => "mlp.down_proj.weight",
        "w3" => "mlp.up_proj.weight",
        "q_norm" => "self_attn.q_norm.weight",
        "k_norm" => "self_attn.k_norm.weight",
        other => {
            let (kind, which) = other.split_at(1);
            let end = if kind == "b" { "bias" } else { "weight" };
            return format!("model.layers.{index}.self_attn.{which}_proj.{end}");
        }
    };
    format!("model.layers.{index}.{suffix}")
}

/// A Hugging Face folder: configuration and `model.safetensors`.
struct Folder {
    dir: tempfile::TempDir,
    config: Config,
    weights: Weights,
    json: serde_json::Value,
}

impl Folder {
    fn new() -> Self {
        let config = Config { qk_norm: false, sliding_window: None, residual_scale: 1.0, ..everything() };
        let json = serde_json::json!({
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": config.dim, "intermediate_size": config.hidden,
            "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim, "vocab_size": config.vocab,
            "max_position_embeddings": config.max_seq, "rms_norm_eps": 1e-4, "rope_theta": 100.0,
            "tie_word_embeddings": false
        });
        let weights = random_weights(&config, 3);
        let folder = Folder { dir: tempfile::tempdir().unwrap(), config, weights, json };
        folder.write_config();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_config(&self) {
        std::fs::write(self.path("config.json"), self.json.to_string()).unwrap();
    }

    fn tensors(&self) -> Vec<TensorRef<'_>> {
        let mut list = self.weights.tensors(&self.config);
        for (tensor, slot) in list.iter_mut().zip(Slot::list(&self.config)) {
            tensor.name = hf_name(slot);
        }
        list
    }

    fn write(&self, tensors: &[TensorRef<'_>]) {
        let mut file = std::fs::File::create(self.path("model.safetensors")).unwrap();
        container::write(&mut file, &[("format", "pt")], tensors).unwrap();
    }

    fn load(&self) -> Result<(Config, Weights), Error> {
        load(self.dir.path(), None)
    }
}

#[test]
fn hugging_face_folder() {
    let folder = Folder::new();
    folder.write(&folder.tensors());
    assert_eq!(folder.load().unwrap(), (folder.config.clone(), folder.weights.clone()));
    let (config, weights) = (folder.path("config.json"), folder.path("model.safetensors"));
    assert_eq!(load_hf(&config, &weights).unwrap().1, folder.weights);
    assert_eq!(load(&weights, None).unwrap().1, folder.weights);
    assert_eq!(load(&config, None).unwrap().1, folder.weights);
}

#[test]
fn hugging_face_problems_are_named() {
    let folder = Folder::new();
    let mut tensors = folder.tensors();
    let dropped = tensors.remove(3);
    folder.write(&tensors);
    let text = message(folder.load());
    assert!(text.contains(&dropped.name) && text.contains(&format!("{:?}", dropped.shape)), "{text}");

    let mut tensors = folder.tensors();
    tensors[2].shape.reverse();
    folder.write(&tensors);
    let text = message(folder.load());
    assert!(text.contains("q_proj") && text.contains("shape [24, 12], found [12, 24]"), "{text}");

    let mut tensors = folder.tensors();
    tensors.push(TensorRef { name: "model.extra".into(), kind: TensorKind::Bias, shape: vec![1], data: &[1.0] });
    tensors.push(TensorRef {
        name: "model.layers.0.self_attn.rotary_emb.inv_freq".into(),
        kind: TensorKind::Bias,
        shape: vec![1],
        data: &[1.0],
    });
    folder.write(&tensors);
    let text = message(folder.load());
    assert!(text.contains("1 tensors") && text.contains("model.extra"), "{text}");
}

#[test]
fn the_file_decides_about_the_classifier() {
    let mut folder = Folder::new();
    // Without a classifier the model is tied, even if the configuration says otherwise.
    let mut tensors = folder.tensors();
    tensors.pop();
    folder.write(&tensors);
    assert!(folder.load().unwrap().0.tied);
    // "Tied" with two different tables: both are kept.
    folder.json["tie_word_embeddings"] = true.into();
    folder.write_config();
    folder.write(&folder.tensors());
    assert!(!folder.load().unwrap().0.tied);
    // "Tied" with the same table twice.
    folder.weights.classifier = Some(folder.weights.embed.clone());
    folder.write(&folder.tensors());
    let (config, weights) = folder.load().unwrap();
    assert!(config.tied && weights.classifier.is_none());
}

#[test]
fn shards_and_their_index() {
    let folder = Folder::new();
    let tensors = folder.tensors();
    let mut map = serde_json::Map::new();
    for (number, part) in tensors.chunks(9).enumerate() {
        let name = format!("part{number}.safetensors");
        let mut file = std::fs::File::create(folder.path(&name)).unwrap();
        container::write(&mut file, &[], part).unwrap();
        part.iter().for_each(|t| drop(map.insert(t.name.clone(), name.clone().into())));
    }
    let index = |map: &serde_json::Map<String, serde_json::Value>| {
        let value = serde_json::json!({ "weight_map": map });
        std::fs::write(folder.path("model.safetensors.index.json"), value.to_string()).unwrap();
    };
    index(&map);
    assert_eq!(folder.load().unwrap().1, folder.weights);
    assert_eq!(load(&folder.path("model.safetensors.index.json"), None).unwrap().1, folder.weights);
    // An index must not point outside its folder or at a missing file.
    for wrong in ["../part0.safetensors", "/etc/passwd", "", "absent.safetensors"] {
        let mut map = map.clone();
        map.insert("model.norm.weight".into(), wrong.into());
        index(&map);
        let text = message(folder.load());
        assert!(text.contains("not a file name") || text.contains("absent"), "{wrong}: {text}");
    }
    std::fs::write(folder.path("model.safetensors.index.json"), "{}").unwrap();
    assert!(message(folder.load()).contains("weight_map"));
}

/// A safetensors file of one tensor `x`.
fn safetensors(dtype: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let header =
        serde_json::json!({ "x": { "dtype": dtype, "shape": shape, "data_offsets": [0, data.len()] } }).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn open(bytes: &[u8]) -> Result<Container, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, bytes).unwrap();
    Container::open(&path)
}

#[test]
fn half_precision_is_widened_exactly() {
    let values = [0.0f32, -1.5, 65504.0, 6e-8, 0.1];
    let f16s: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
    let bf16s: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
    let mut out = [0.0; 5];
    open(&safetensors("F16", &[5], &f16s)).unwrap().read("x", &[5], &mut out).unwrap();
    assert_eq!(out, values.map(|v| f16::from_f32(v).to_f32()));
    open(&safetensors("BF16", &[5], &bf16s)).unwrap().read("x", &[5], &mut out).unwrap();
    assert_eq!(out, values.map(|v| bf16::from_f32(v).to_f32()));
    let file = open(&safetensors("I32", &[1], &[0; 4])).unwrap();
    assert!(message(file.read("x", &[1], &mut out[..1])).contains("I32"));
}

#[test]
fn safetensors_headers_that_lie() {
    let good = safetensors("F32", &[2, 2], &[0; 16]);
    open(&good).unwrap();
    assert!(matches!(open(&good[..good.len() - 1]), Err(Error::Size { .. })));
    assert!(matches!(open(&[good.as_slice(), &[0]].concat()), Err(Error::Size { .. })));
    let raw = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let bomb = |length: u64| [&length.to_le_bytes()[..], b"{\"x\":1}"].concat();
    for bytes in [
        vec![],
        vec![1, 2, 3],
        bomb(u64::MAX),
        bomb(1 << 40),
        bomb(7),
        safetensors("F32", &[3, 2], &[0; 16]),
        safetensors("F32", &[u64::MAX, u64::MAX], &[0; 16]),
        safetensors("F32", &[1 << 40], &[0; 16]),
        safetensors("F99", &[4], &[0; 16]),
        // Offsets so large that adding the header's length overflows.
        raw(r#"{"x":{"dtype":"U8","shape":[18446744073709551610],"data_offsets":[0,18446744073709551610]}}"#),
        raw(r#"{"x":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}"#),
    ] {
        assert!(matches!(open(&bytes), Err(Error::Format { .. } | Error::Size { .. })), "{bytes:?}");
    }
    // Sizes that are not whole numbers.
    let text = String::from_utf8(good.clone()).unwrap();
    for wrong in ["[NaN,2]", "[-2,2]", "[2.5,2]", "[1e400,2]"] {
        let changed = text[8..].replace("[2,2]", wrong);
        let length = (changed.len() - 16) as u64;
        let bytes = [&length.to_le_bytes(), changed.as_bytes()].concat();
        assert!(matches!(open(&bytes), Err(Error::Format { .. })), "{wrong}");
    }
}

#[test]
fn a_configuration_in_the_metadata_is_checked_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    for text in ["", "{}", "[]", &serde_json::to_string(&Config { dim: 0, ..plain() }).unwrap()] {
        let mut file = std::fs::File::create(&path).unwrap();
        container::write(&mut file, &[(native::CONFIG_KEY, text)], &[]).unwrap();
        assert!(native::load(&path).is_err(), "{text}");
    }
    // A large model in a file without tensors is refused by name before anything is allocated.
    let text = serde_json::to_string(&Config { dim: 1 << 20, vocab: 1 << 19, ..plain() }).unwrap();
    container::write(&mut std::fs::File::create(&path).unwrap(), &[(native::CONFIG_KEY, &text)], &[]).unwrap();
    assert!(message(native::load(&path)).contains("embed"));
}

#[test]
fn other_files_are_recognized_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    for (bytes, needle) in [(&b"GGUF\x03\0\0\0"[..], "GGUF"), (b"PK\x03\x04....", "PyTorch"), (b"short", "28 bytes")] {
        std::fs::write(&path, bytes).unwrap();
        let text = message(load(&path, None));
        assert!(text.contains(needle) && text.contains("model.bin"), "{text}");
    }
    assert!(matches!(load(&folder.path().join("absent"), None), Err(Error::Io { .. })));
    assert!(message(load(folder.path(), None)).contains("tried model.safetensors.index.json"));
}

#[test]
fn initialization() {
    let config = Config { dim: 64, hidden: 128, layers: 8, vocab: 3000, ..everything() };
    let weights = Weights::init(&config, Init::Normal { std: 0.02 }, 7);
    assert_eq!(weights, Weights::init(&config, Init::Normal { std: 0.02 }, 7));
    assert_ne!(weights, Weights::init(&config, Init::Normal { std: 0.02 }, 8));
    for tensor in weights.tensors(&config) {
        let n = tensor.data.len() as f64;
        let std = (tensor.data.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n).sqrt();
        let expected = match tensor.kind {
            TensorKind::Norm => 1.0,
            TensorKind::Bias => 0.0,
            _ if tensor.name.ends_with(".wo") || tensor.name.ends_with(".w2") => 0.005,
            _ => 0.02,
        };
        // Five standard errors of an estimated standard deviation, 1/√(2n).
        assert!((std - expected).abs() <= expected * 5.0 / (2.0 * n).sqrt(), "{}: {std}", tensor.name);
    }
}

#[test]
fn the_reference_trainers_draws() {
    // drand48 seeded with 42 starts with these values; Wq of layer 0 takes them first, scaled by
    // 1/√dim.
    let config = plain();
    let weights = Weights::init(&config, Init::Reference, 42);
    let scale = f64::from(1.0 / 12f32.sqrt());
    let draw = |d: f64| (scale * (2.0 * d - 1.0)) as f32;
    assert_eq!(weights.layers[0].wq[..2], [draw(0.744_525_000_061_006_6), draw(0.342_701_478_718_908)]);
    assert!(weights.layers[1].attn_norm.iter().chain(&weights.norm).all(|&v| v == 1.0));
    assert!(weights.embed.iter().all(|v| v.abs() <= 0.02) && weights.embed.iter().any(|v| v.abs() > 0.015));
    let residual = 1.0 / (2.0 * 2.0f32).sqrt();
    let bound = residual / 24f32.sqrt();
    let top = weights.layers[1].wo.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    assert!(top <= bound && top > 0.9 * bound);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A damaged file gives a model or an error, never a panic.
    #[test]
    fn damaged_files_do_not_panic(at in 0usize..900, byte in any::<u8>(), cut in 0usize..900) {
        let config = Config { layers: 1, vocab: 3, max_seq: 2, ..llama() };
        let weights = random_weights(&config, 9);
        let mut bytes = Vec::new();
        llama2c::write(&mut bytes, Path::new("x"), &config, &weights).unwrap();
        // Mostly in the header, which determines the sizes.
        bytes[at % 28] = byte;
        let _ = llama2c::read(&bytes, Path::new("x"));
        let _ = llama2c::read(&bytes[..cut.min(bytes.len())], Path::new("x"));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let mut bytes = Vec::new();
        native::write(&mut bytes, &path, &config, &weights).unwrap();
        let length = bytes.len();
        bytes[at % length] = byte;
        std::fs::write(&path, &bytes).unwrap();
        let _ = load(&path, None);
    }
}
