//! Rows of weights in files, compared with the whole tensors.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ferrane_gguf::{MetadataValue, TensorType, Writer};
use ferrane_host::convert;
use ferrane_llm::config::Config;
use ferrane_llm::weights::{Error, Slot, StoredWeights, WeightSource, Weights, llama2c, native, open};
use half::f16;

use crate::gradients::{everything, random_weights};

/// Rows and values of each.
fn size(slot: Slot, config: &Config) -> (usize, usize) {
    let shape = slot.shape(config);
    let width = *shape.last().unwrap();
    (shape.iter().product::<usize>() / width, width)
}

/// Compares rows of every tensor with the whole ones, in fp32 and fp16, also after their pages were
/// released. Rows that do not exist are errors.
fn compare(source: &dyn WeightSource, config: &Config) -> Result<(), String> {
    let all = Weights::read(source, config).map_err(|e| e.to_string())?;
    for slot in Slot::list(config) {
        let (count, width) = size(slot, config);
        let whole = all.tensor(slot).unwrap();
        let middle = count / 3..count - count / 4;
        for rows in [0..count, middle.clone(), count - 1..count, 0..1, 1..1] {
            let range = rows.start * width..rows.end * width;
            let mut wide = vec![f32::NAN; range.len()];
            source.rows(slot, rows.clone(), &mut wide).map_err(|e| e.to_string())?;
            if wide != whole[range.clone()] {
                return Err(format!("{} {rows:?}", slot.name()));
            }
            let (mut half, mut expected) = (vec![f16::NAN; range.len()], vec![f16::ZERO; range.len()]);
            source.rows_f16(slot, rows.clone(), &mut half).map_err(|e| e.to_string())?;
            convert::f32_to_f16(&wide, &mut expected);
            if half != expected {
                return Err(format!("{} {rows:?} in fp16", slot.name()));
            }
            source.release(slot, rows);
        }
        let refused = |rows: Range<usize>, values: usize| {
            let wide = source.rows(slot, rows.clone(), &mut vec![0.0; values]);
            let half = source.rows_f16(slot, rows, &mut vec![f16::ZERO; values]);
            matches!((wide, half), (Err(Error::Mismatch { .. }), Err(Error::Mismatch { .. })))
        };
        assert!(refused(0..count + 1, (count + 1) * width) && refused(0..count, count * width + 1), "{}", slot.name());
        assert!(refused(count..count + 1, width), "{}", slot.name());
        source.release(slot, count..count + 7);
    }
    let none = Slot::Layer(config.layers, ferrane_llm::weights::Part::Wq);
    assert!(source.rows(none, 0..1, &mut [0.0; 8]).is_err());
    Ok(())
}

fn opened(path: &Path) -> (Config, StoredWeights) {
    open(path, None).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn rows_are_those_of_the_tensors() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(here.join("families")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(paths.len() > 10);
    paths.push(here.join("mlx/model.safetensors"));
    let folder = tempfile::tempdir().unwrap();
    let config = everything();
    native::save(&folder.path().join("own.safetensors"), &config, &random_weights(&config, 3)).unwrap();
    let plain = ferrane_llm::config::preset("stories260k").unwrap();
    llama2c::save(&folder.path().join("own.bin"), &plain, &random_weights(&plain, 4)).unwrap();
    paths.extend(["own.safetensors", "own.bin"].map(|name| folder.path().join(name)));
    for path in paths {
        let (config, source) = opened(&path);
        assert_eq!(compare(&source, &config), Ok(()), "{}", path.display());
        // The same tensors in memory are a source, too.
        assert_eq!(compare(&Weights::read(&source, &config).unwrap(), &config), Ok(()), "{}", path.display());
    }
}

/// Blocks of several sizes, and rows that llama.cpp reorders.
#[test]
fn rows_of_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let number = |i: usize| (i * 7919 % 2003) as u8;
    for matrices in [TensorType::F16, TensorType::BF16, TensorType::Q8_0, TensorType::Q4_K, TensorType::IQ4_XS] {
        let sizes = [
            ("embedding_length", 256u32),
            ("feed_forward_length", 512),
            ("block_count", 2),
            ("context_length", 16),
            ("attention.head_count", 8),
            ("attention.head_count_kv", 4),
            ("rope.dimension_count", 32),
        ];
        let mut tensors = Vec::new();
        let mut tensor = |name: &str, shape: &[usize]| {
            let ty = if shape.len() == 1 { TensorType::F32 } else { matrices };
            let values = shape.iter().product::<usize>();
            let bytes: Vec<u8> = match ty {
                // No exponent bits that make infinities or NaN.
                TensorType::F32 => (0..values).flat_map(|i| (i as f32 * 0.01).to_le_bytes()).collect(),
                _ => (0..ty.bytes(values as u64).unwrap() as usize).map(|i| number(i) & 0x3b).collect(),
            };
            tensors.push((name.to_string(), shape.to_vec(), ty, bytes));
        };
        tensor("token_embd.weight", &[40, 256]);
        tensor("output_norm.weight", &[256]);
        for layer in 0..2 {
            for (name, shape) in [
                ("attn_norm", &[256][..]),
                ("ffn_norm", &[256]),
                ("attn_q", &[256, 256]),
                ("attn_k", &[128, 256]),
                ("attn_v", &[128, 256]),
                ("attn_output", &[256, 256]),
                ("ffn_gate", &[512, 256]),
                ("ffn_up", &[512, 256]),
                ("ffn_down", &[256, 512]),
            ] {
                tensor(&format!("blk.{layer}.{name}.weight"), shape);
            }
        }
        let mut writer = Writer::new();
        writer.metadata("general.architecture", MetadataValue::from("llama")).unwrap();
        for (key, value) in sizes {
            writer.metadata(&format!("llama.{key}"), MetadataValue::U32(value)).unwrap();
        }
        writer.metadata("llama.attention.layer_norm_rms_epsilon", MetadataValue::F32(1e-5)).unwrap();
        tensors.iter().for_each(|(name, shape, ty, bytes)| writer.tensor(name, shape, *ty, bytes).unwrap());
        writer.save(&path).unwrap();
        let (config, source) = opened(&path);
        assert_eq!(compare(&source, &config), Ok(()), "{}", matrices.name());
    }
}

#[test]
fn a_source_belongs_to_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("own.safetensors"), everything());
    native::save(&path, &config, &random_weights(&config, 3)).unwrap();
    let (found, source) = opened(&path);
    assert_eq!((&found, source.path()), (&config, path.as_path()));
    let check = |config: &Config| source.check(config).map_err(|e| e.to_string());
    assert_eq!(check(&Config { max_seq: 1 + config.max_seq, ..config.clone() }), Ok(()));
    let wide = check(&Config { hidden: config.hidden + 1, ..config.clone() }).unwrap_err();
    assert!(wide.contains("layers.0.w1") && wide.contains("own.safetensors"), "{wide}");
    assert!(check(&Config { layers: config.layers + 1, ..config.clone() }).unwrap_err().contains("missing"));
    let fewer = Config { qkv_bias: !config.qkv_bias, ..config.clone() };
    assert!(check(&fewer).is_err());
    assert!(Weights::read(&source, &fewer).is_err());
}
