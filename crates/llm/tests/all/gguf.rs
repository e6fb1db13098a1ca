//! GGUF files: published ones against recorded logits and their other forms, written ones against
//! the weights that they were written from, and metadata that cannot be followed.

use crate::checkpoints::{at_most, files, id, largest_difference, name, recorded, text};
use crate::gradients::{plain, random_weights};
use ferrane_gguf::{File, MetadataValue, TensorType, Writer};
use ferrane_llm::config::{Config, Rope, RopeScaling, RopeStyle};
use ferrane_llm::model::Model;
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{Sampler, Sampling};
use ferrane_llm::weights::{Error, Part, Slot, Weights, gguf, load, native};
use ferrane_testdata::Suite;
use half::f16;
use std::path::{Path, PathBuf};

/// `NAME_TYPE.gguf` next to `NAME_logits.json` and the safetensors of the same model.
#[test]
fn published_files() {
    let Some(mut suite) = Suite::open("llm gguf", "checkpoints") else { return };
    for path in files(&suite).into_iter().filter(|p| p.extension().is_some_and(|e| e == "gguf")) {
        suite.case(&id(&path), published(&path));
    }
    suite.finish();
}

fn published(path: &Path) -> Result<(), String> {
    let (config, weights) = load(path, None).map_err(text)?;
    plain_values(path, &config, &weights)?;
    let stem = name(path);
    let stem = stem.rsplit_once('_').ok_or("no type in the name")?.0.to_string();
    let other = path.with_file_name(format!("{stem}.safetensors"));
    let (other_config, expected) = load(&other, None).map_err(text)?;
    if other_config != config {
        // A model of its own, of which no other form lies here.
        let model = Reference::new(&config, &weights).map_err(text)?;
        let logits = model.logits(&[0, 1, 2]).map_err(text)?;
        return if logits.iter().all(|v| v.is_finite()) { Ok(()) } else { Err("logits are not finite".into()) };
    }
    let file = File::open(path).map_err(text)?;
    let halves = file.tensors().iter().any(|t| t.ty() == TensorType::F16);
    for (found, expected) in weights.tensors(&config).into_iter().zip(expected.tensors(&config)) {
        // Norms stay fp32 in a file of fp16 matrices.
        let half = halves && found.shape.len() == 2;
        let same = found.data.iter().zip(expected.data).all(|(&a, &b)| {
            let b = if half { f16::from_f32(b).to_f32() } else { b };
            a.to_bits() == b.to_bits()
        });
        if !same {
            return Err(format!("{} differs from {}", found.name, name(&other)));
        }
    }
    if halves {
        return Ok(());
    }
    let model = Reference::new(&config, &weights).map_err(text)?;
    let mut worst = 0.0f32;
    for (tokens, expected) in recorded(&path.with_file_name(format!("{stem}_logits.json")))? {
        worst = worst.max(largest_difference(&model.logits(&tokens).map_err(text)?, &expected)?);
    }
    eprintln!("{}: |Δlogit| ≤ {worst:.1e}", id(path));
    // The bound of the fp32 reference.
    at_most(&[("logits differ by", worst.into(), 1e-4)])
}

/// Every matrix whose rows are not reordered, computed here from the bytes.
fn plain_values(path: &Path, config: &Config, weights: &Weights) -> Result<(), String> {
    let file = File::open(path).map_err(text)?;
    for (index, layer) in weights.layers.iter().enumerate() {
        let names =
            [(&layer.wv, "attn_v"), (&layer.wo, "attn_output"), (&layer.w1, "ffn_gate"), (&layer.w2, "ffn_down")];
        for (found, name) in names {
            let tensor = file.tensor(&format!("blk.{index}.{name}.weight")).ok_or(name)?;
            let raw = file.raw(tensor);
            let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f32();
            let expected: Vec<f32> = match tensor.ty() {
                TensorType::F32 => raw.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
                TensorType::F16 => raw.as_chunks::<2>().0.iter().map(|b| half(b)).collect(),
                TensorType::Q8_0 => {
                    let block = |b: &[u8; 34]| b.map(|q| f32::from(q as i8) * half(b));
                    raw.as_chunks::<34>().0.iter().flat_map(|b| block(b)[2..].to_vec()).collect()
                }
                other => return Err(format!("{name} has the type {}", other.name())),
            };
            if *found != expected {
                return Err(format!("{name} of layer {index} differs"));
            }
        }
    }
    weights.check(config).map_err(text)
}

/// The rows of queries or keys in llama.cpp's order: the two halves of a head take turns.
fn turned(values: &[f32], heads: usize, width: usize) -> Vec<f32> {
    let rows = values.len() / width / heads;
    let order = (0..heads).flat_map(|h| (0..rows).map(move |row| h * rows + row % 2 * (rows / 2) + row / 2));
    order.flat_map(|row| values[row * width..][..width].to_vec()).collect()
}

fn gguf_name(slot: Slot) -> String {
    let (index, part) = match slot {
        Slot::Embed => return "token_embd.weight".into(),
        Slot::Norm => return "output_norm.weight".into(),
        Slot::Classifier => return "output.weight".into(),
        Slot::Layer(index, part) => (index, part),
    };
    let name = match part {
        Part::AttnNorm => "attn_norm.weight",
        Part::Wq => "attn_q.weight",
        Part::Wk => "attn_k.weight",
        Part::Wv => "attn_v.weight",
        Part::Wo => "attn_output.weight",
        Part::Bq => "attn_q.bias",
        Part::Bk => "attn_k.bias",
        Part::Bv => "attn_v.bias",
        Part::QNorm => "attn_q_norm.weight",
        Part::KNorm => "attn_k_norm.weight",
        Part::FfnNorm => "ffn_norm.weight",
        Part::PostAttnNorm | Part::PostFfnNorm | Part::Router => unreachable!("no model of these tests has one"),
        Part::W1 => "ffn_gate.weight",
        Part::W3 => "ffn_up.weight",
        Part::W2 => "ffn_down.weight",
    };
    format!("blk.{index}.{name}")
}

/// Name, shape and bytes of a tensor.
type Stored = (String, Vec<usize>, Vec<u8>);

/// A model's tensors in fp32 and its metadata, to be changed and written.
pub struct Model32 {
    metadata: Vec<(String, MetadataValue)>,
    tensors: Vec<Stored>,
}

impl Model32 {
    pub fn of(architecture: &str, config: &Config, weights: &Weights) -> Model32 {
        let key = |name: &str| format!("{architecture}.{name}");
        let size = |name: &str, value: usize| (key(name), MetadataValue::U32(value as u32));
        let metadata = vec![
            ("general.architecture".to_string(), MetadataValue::from(architecture)),
            size("embedding_length", config.dim),
            size("feed_forward_length", config.hidden),
            size("block_count", config.layers),
            size("context_length", config.max_seq),
            size("attention.head_count", config.heads),
            size("attention.head_count_kv", config.kv_heads),
            size("attention.key_length", config.head_dim),
            size("attention.value_length", config.head_dim),
            size("rope.dimension_count", config.head_dim),
            (key("rope.freq_base"), MetadataValue::F32(config.rope.base)),
            (key("attention.layer_norm_rms_epsilon"), MetadataValue::F32(config.norm_eps)),
        ];
        let reorder = |slot, data: &[f32]| match slot {
            _ if architecture != "llama" => data.to_vec(),
            Slot::Layer(_, Part::Wq) => turned(data, config.heads, config.dim),
            Slot::Layer(_, Part::Wk) => turned(data, config.kv_heads, config.dim),
            Slot::Layer(_, Part::Bq) => turned(data, config.heads, 1),
            Slot::Layer(_, Part::Bk) => turned(data, config.kv_heads, 1),
            _ => data.to_vec(),
        };
        let tensors = Slot::list(config).into_iter().zip(weights.tensors(config)).map(|(slot, tensor)| {
            let bytes = reorder(slot, tensor.data).iter().flat_map(|v| v.to_le_bytes()).collect();
            (gguf_name(slot), tensor.shape, bytes)
        });
        let tensors = tensors.collect();
        Model32 { metadata, tensors }
    }

    pub fn with(mut self, key: &str, value: impl Into<MetadataValue>) -> Model32 {
        self.metadata.retain(|(other, _)| other != key);
        self.metadata.push((key.to_string(), value.into()));
        self
    }

    fn without(mut self, key: &str) -> Model32 {
        self.metadata.retain(|(other, _)| other != key);
        self
    }

    pub fn save(&self, folder: &Path) -> PathBuf {
        let path = folder.join("model.gguf");
        let mut writer = Writer::new();
        self.metadata.iter().for_each(|(key, value)| writer.metadata(key, value.clone()).unwrap());
        for (name, shape, bytes) in &self.tensors {
            writer.tensor(name, shape, TensorType::F32, bytes).unwrap();
        }
        writer.save(&path).unwrap();
        path
    }

    fn load(&self) -> Result<(Config, Weights), Error> {
        let folder = tempfile::tempdir().unwrap();
        load(&self.save(folder.path()), None)
    }
}

fn half_rope() -> Config {
    Config { rope: Rope::new(RopeStyle::Half, 5e5), heads: 4, kv_heads: 2, head_dim: 6, ..plain() }
}

#[test]
fn every_family_comes_back() {
    let base = half_rope();
    for (architecture, config) in [
        ("llama", base.clone()),
        ("llama", Config { tied: !base.tied, qkv_bias: true, ..base.clone() }),
        ("llama", Config { sliding_window: Some(3), ..base.clone() }),
        ("qwen2", Config { qkv_bias: true, ..base.clone() }),
        ("qwen3", Config { qk_norm: true, ..base.clone() }),
    ] {
        let weights = random_weights(&config, 5);
        let mut model = Model32::of(architecture, &config, &weights);
        if let Some(window) = config.sliding_window {
            model = model.with("llama.attention.sliding_window", window as u32);
        }
        let (found, values) = model.load().unwrap_or_else(|e| panic!("{architecture}: {e}"));
        assert_eq!(found, config, "{architecture}");
        assert_eq!(values, weights, "{architecture}");
    }
}

/// A given configuration replaces that of the file. If it rotates neighbors, rows stay as stored.
#[test]
fn a_configuration_may_be_given() {
    let config = half_rope();
    let weights = random_weights(&config, 6);
    let folder = tempfile::tempdir().unwrap();
    let path = Model32::of("llama", &config, &weights).save(folder.path());
    let rope = Rope::new(RopeStyle::Interleaved, 5e5);
    let neighbors = Config { rope, ..config.clone() };
    let json = folder.path().join("config.json");
    std::fs::write(&json, serde_json::to_string(&neighbors).unwrap()).unwrap();
    let (found, stored) = load(&path, Some(&json)).unwrap();
    assert_eq!(found, neighbors);
    assert_eq!(stored.layers[0].wq, turned(&weights.layers[0].wq, config.heads, config.dim));
    assert_eq!(stored.layers[0].wv, weights.layers[0].wv);
    // Both compute the same function.
    let tokens = [1, 2, 3, 0];
    let of = |config: &Config, weights: &Weights| Reference::new(config, weights).unwrap().logits(&tokens).unwrap();
    let difference = largest_difference(&of(&neighbors, &stored), &of(&config, &weights)).unwrap();
    // The sums over a head have another order.
    assert!(difference < 1e-5, "{difference}");
    std::fs::write(&json, serde_json::to_string(&Config { vocab: 9999, ..config }).unwrap()).unwrap();
    assert!(matches!(load(&path, Some(&json)), Err(Error::Shape { .. })));
}

#[test]
fn what_cannot_be_followed_is_named() {
    let config = half_rope();
    let weights = random_weights(&config, 7);
    let model = || Model32::of("llama", &config, &weights);
    let message = |model: Model32| model.load().map(|_| ()).unwrap_err().to_string();
    for (key, value) in [
        ("llama.rope.scaling.type", MetadataValue::from("longrope")),
        ("llama.rope.scaling.factor", MetadataValue::from("8")),
        ("llama.rope.scaling.attn_factor", MetadataValue::F32(2.0)),
        ("llama.rope.dimension_count", MetadataValue::U32(4)),
        ("llama.rope.freq_base", MetadataValue::U32(10_000)),
        ("llama.expert_count", MetadataValue::U32(8)),
        ("llama.attention.value_length", MetadataValue::U32(8)),
        ("llama.attention.causal", MetadataValue::Bool(false)),
        ("llama.final_logit_softcapping", MetadataValue::F32(30.0)),
        ("llama.logit_scale", MetadataValue::F32(0.5)),
        ("llama.some.new.key", MetadataValue::U8(0)),
        ("llama.vocab_size", MetadataValue::U32(3)),
        ("llama.block_count", MetadataValue::I32(-1)),
        ("llama.feed_forward_length", MetadataValue::from(vec![12u32, 16])),
        ("llama.feed_forward_length", MetadataValue::from("12")),
    ] {
        let text = message(model().with(key, value.clone()));
        assert!(text.contains(key) && text.contains("model.gguf"), "{key} {value}: {text}");
    }
    for key in ["llama.block_count", "llama.context_length", "llama.attention.layer_norm_rms_epsilon"] {
        assert!(message(model().without(key)).contains(&format!("{key}: is missing")), "{key}");
    }
    let architecture = message(model().with("general.architecture", "mamba"));
    assert!(architecture.contains("`mamba` is not supported; supported: llama, qwen2, qwen3"), "{architecture}");
    assert!(message(model().without("general.architecture")).contains("general.architecture: is missing"));
    assert!(message(model().with("general.type", "adapter")).contains("general.type is \"adapter\""));
    assert!(message(model().with("split.count", 3u16)).contains("one of 3 files"));
    // Qwen has a window only on some layers, which the file does not say.
    let qwen = Model32::of(
        "qwen2",
        &Config { qkv_bias: true, ..config.clone() },
        &random_weights(&Config { qkv_bias: true, ..config.clone() }, 7),
    );
    assert!(message(qwen.with("qwen2.attention.sliding_window", 3u32)).contains("qwen2.attention.sliding_window"));
    // Neutral values change nothing.
    let neutral = model()
        .with("llama.expert_count", 0u32)
        .with("llama.rope.scaling.type", "none")
        .with("llama.rope.scaling.factor", 4.0f32)
        .with("llama.attention.sliding_window", 0u32)
        .with("llama.vocab_size", config.vocab as u32)
        .with("llama.feed_forward_length", vec![config.hidden as u32; config.layers])
        .without("llama.attention.key_length")
        .with("general.type", "model")
        .with("general.name", "tiny");
    // Without a length of keys, it is the width divided by the heads.
    let text = message(neutral);
    assert!(config.dim / config.heads != config.head_dim && text.contains("attention.value_length"), "{text}");
}

#[test]
fn rotary_frequencies_are_scaled_as_the_file_says() {
    let config = half_rope();
    let weights = random_weights(&config, 7);
    let model = || Model32::of("llama", &config, &weights);
    let scaling = |model: Model32| model.load().map(|(config, _)| config.rope.scaling);
    let linear = |factor| Some(RopeScaling::Linear { factor });
    assert_eq!(scaling(model().with("llama.rope.scaling.factor", 8.0f32)).unwrap(), linear(8.0));
    assert_eq!(scaling(model().with("llama.rope.scale_linear", 2.0f32)).unwrap(), linear(2.0));
    let named = model().with("llama.rope.scaling.type", "linear").with("llama.rope.scaling.factor", 4.0f32);
    assert_eq!(scaling(named).unwrap(), linear(4.0));
    let yarn = || model().with("llama.rope.scaling.type", "yarn").with("llama.rope.scaling.factor", 4.0f32);
    let whole = yarn().with("llama.rope.scaling.original_context_length", 16u32);
    let Some(RopeScaling::Yarn { factor, original, attention, .. }) = scaling(whole).unwrap() else {
        panic!("not YaRN")
    };
    // YaRN's own factor on cosines and sines is 0.1 · ln 4 + 1.
    assert!((factor, original) == (4.0, 16) && (attention - 1.138_629_436).abs() < 1e-9, "{attention}");
    assert!(scaling(yarn()).unwrap_err().to_string().contains("original_context_length"));
    // Llama 3.1 has a divisor for each pair, which may all be 1.
    let divided = |divisors: &[f32]| {
        let mut model = model();
        let bytes = divisors.iter().flat_map(|divisor| divisor.to_le_bytes()).collect();
        model.tensors.push(("rope_freqs.weight".into(), vec![divisors.len()], bytes));
        model
    };
    let mut divisors = vec![1.0; config.head_dim / 2];
    assert_eq!(scaling(divided(&divisors)).unwrap(), None);
    divisors[1] = 8.0;
    let Some(RopeScaling::LongRope { short, long, attention, .. }) = scaling(divided(&divisors)).unwrap() else {
        panic!("no divisors")
    };
    assert!(short[1] == 8.0 && short[0] == 1.0 && long == short && attention == 1.0, "{short:?}");
    assert!(matches!(divided(&[1.0; 7]).load(), Err(Error::Shape { .. })));
    let twice = divided(&divisors).with("llama.rope.scaling.factor", 2.0f32);
    assert!(scaling(twice).unwrap_err().to_string().contains("rope_freqs.weight"));
}

#[test]
fn tensors_must_fit() {
    let config = half_rope();
    let weights = random_weights(&config, 8);
    let model = |edit: fn(&mut Vec<Stored>)| {
        let mut model = Model32::of("llama", &config, &weights);
        edit(&mut model.tensors);
        model.load()
    };
    assert!(
        matches!(model(|t| t.retain(|t| t.0 != "blk.1.ffn_up.weight")), Err(Error::Missing { name, .. }) if name == "blk.1.ffn_up.weight")
    );
    assert!(matches!(model(|t| t.retain(|t| t.0 != "token_embd.weight")), Err(Error::Missing { .. })));
    assert!(matches!(model(|t| t[1].1 = vec![1, t[1].1[0]]), Err(Error::Shape { .. })));
    let stray = model(|t| t.push(("blk.0.attn_output.bias".into(), vec![1], vec![0; 4]))).unwrap_err();
    assert!(stray.to_string().contains("blk.0.attn_output.bias"), "{stray}");
    // A type that cannot be read is named with the tensor.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let config = Config { dim: 256, hidden: 256, heads: 4, kv_heads: 4, head_dim: 64, layers: 1, vocab: 2, ..config };
    let model = Model32::of("llama", &config, &random_weights(&config, 1));
    let mut writer = Writer::new();
    model.metadata.iter().for_each(|(key, value)| writer.metadata(key, value.clone()).unwrap());
    let blocks = vec![0; 256 * 66];
    for (name, shape, bytes) in &model.tensors {
        if name.ends_with("attn_v.weight") {
            writer.tensor(name, shape, TensorType::IQ2_XXS, &blocks).unwrap();
        } else {
            writer.tensor(name, shape, TensorType::F32, bytes).unwrap();
        }
    }
    writer.save(&path).unwrap();
    let text = load(&path, None).unwrap_err().to_string();
    assert!(text.contains("blk.0.attn_v.weight") && text.contains("IQ2_XXS"), "{text}");
}

/// A model of one file: weights, tokenizer and generation; also as the only file of a folder.
#[test]
fn a_file_is_a_model() {
    let config = Config { vocab: 6, ..half_rope() };
    let model = Model32::of("llama", &config, &random_weights(&config, 9));
    let model = model
        .with("tokenizer.ggml.model", "llama")
        .with("tokenizer.ggml.tokens", vec!["<unk>", "<s>", "</s>", "\u{2581}", "a", "b"])
        .with("tokenizer.chat_template", "{{ x }}");
    let folder = tempfile::tempdir().unwrap();
    let path = model.save(folder.path());
    for path in [path.as_path(), folder.path()] {
        let model = Model::open(path).unwrap();
        let greedy = Sampler::new(&Sampling::greedy()).unwrap();
        let mut generator = model.generator(None, Default::default(), greedy).unwrap();
        assert_eq!(generator.prompt_ids("ab").unwrap(), [1, 3, 4, 5]);
        assert!(generator.generate("ab", 5).unwrap().count() <= 6);
    }
    let file = File::open(&path).unwrap();
    assert_eq!(gguf::chat_template(&file, None), Some("{{ x }}"));
    // With two files, neither is chosen; a checkpoint of another form takes precedence.
    std::fs::copy(&path, folder.path().join("other.gguf")).unwrap();
    assert!(matches!(load(folder.path(), None), Err(Error::NotFound { .. })));
    native::save(&folder.path().join("model.safetensors"), &plain(), &random_weights(&plain(), 1)).unwrap();
    assert_eq!(load(folder.path(), None).unwrap().0, plain());
    // A file that states it has no begin token gets none.
    let path = model.with("tokenizer.ggml.add_bos_token", false).save(folder.path());
    let model = Model::open(&path).unwrap();
    let generator = model.generator(None, Default::default(), Sampler::new(&Sampling::greedy()).unwrap()).unwrap();
    assert_eq!(generator.prompt_ids("ab").unwrap(), [3, 4, 5]);
    // A prompt without tokens begins a text all the same.
    let bos = model.tokenizer().unwrap().bos().unwrap();
    assert_eq!(generator.prompt_ids("").unwrap(), [bos]);
}

/// Bytes of the header may be wrong, and the file may end anywhere.
#[test]
fn damaged_files_are_read_or_refused() {
    let config = Config { layers: 1, vocab: 3, ..half_rope() };
    let folder = tempfile::tempdir().unwrap();
    let path = Model32::of("llama", &config, &random_weights(&config, 9)).save(folder.path());
    let good = std::fs::read(&path).unwrap();
    let header = File::open(&path).unwrap().tensors()[0].range().start;
    let (mut refused, mut tried) = (0, 0);
    // Every third byte, so that all fields are hit in some tensor or key.
    for at in (0..header).step_by(3) {
        for change in [0xff, 0x01] {
            let mut bytes = good.clone();
            bytes[at] ^= change;
            std::fs::write(&path, &bytes).unwrap();
            refused += usize::from(load(&path, None).is_err());
            tried += 1;
        }
    }
    // Most bytes matter; those of padding, base and eps do not make a file invalid.
    assert!(3 * refused > 2 * tried, "{refused} of {tried}");
    std::fs::write(&path, &good).unwrap();
    let end = File::open(&path).unwrap().tensors().iter().map(|t| t.range().end).max().unwrap();
    for cut in (0..end).step_by(11) {
        std::fs::write(&path, &good[..cut]).unwrap();
        assert!(load(&path, None).is_err(), "{cut}");
    }
}
