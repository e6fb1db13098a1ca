//! Matrices that MLX has quantized.
//!
//! `tests/mlx` is written by scripts/mlx_quantized.py: a model with matrices of all bits, and the
//! values that MLX computes for them.

use ferrane_llm::weights::{Error, load, load_hf};
use safetensors::tensor::{SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlx")
}

#[test]
fn values_are_those_of_mlx() {
    let (config, found) = load_hf(&folder().join("config.json"), &folder().join("model.safetensors")).unwrap();
    let (same, expected) = load_hf(&folder().join("config.json"), &folder().join("expected.safetensors")).unwrap();
    assert_eq!(config, same);
    for (found, expected) in found.tensors(&config).into_iter().zip(expected.tensors(&config)) {
        let largest = expected.data.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!(largest > 0.0, "{}", found.name);
        for (&a, &b) in found.data.iter().zip(expected.data) {
            // MLX may fuse the product and the sum, which saves one rounding of the product.
            assert!((a - b).abs() <= largest * f32::EPSILON, "{}: {a} and {b}", found.name);
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let bytes = std::fs::read(folder().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    std::fs::copy(folder().join("config.json"), temporary.path().join("config.json")).unwrap();
    let path = temporary.path().join("model.safetensors");
    // Loads the model with some tensors replaced, or left out.
    let edited = |edit: &dyn Fn(&mut BTreeMap<String, TensorView<'_>>)| {
        let mut tensors: BTreeMap<String, TensorView<'_>> = file.iter().map(|(n, t)| (n.to_string(), t)).collect();
        edit(&mut tensors);
        std::fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
        load(&path, None).map(|_| ())
    };
    edited(&|_| ()).unwrap();
    let q = "model.layers.0.self_attn.q_proj";
    let name = |suffix: &str| format!("{q}.{suffix}");
    let error = edited(&|t| drop(t.remove(&name("biases")))).unwrap_err();
    assert!(matches!(&error, Error::Missing { name: n, .. } if *n == name("biases")), "{error}");
    // Without scales it is a plain matrix of the wrong width.
    let error = edited(&|t| drop((t.remove(&name("scales")), t.remove(&name("biases"))))).unwrap_err();
    assert!(matches!(&error, Error::Shape { name: n, .. } if *n == name("weight")), "{error}");
    let swap = |suffix: &'static str, other: &'static str| {
        edited(&|t| {
            let view = t[other].clone();
            t.insert(name(suffix), view);
        })
    };
    for (suffix, other, needle) in [
        ("scales", "model.layers.0.mlp.up_proj.weight", "scales"),
        ("weight", "model.layers.0.mlp.down_proj.scales", "instead of U32"),
        ("weight", "model.layers.0.mlp.down_proj.weight", "16 words and 1 scales for 32 values"),
        ("weight", "lm_head.weight", "expected shape [32, 32]"),
        ("biases", "model.layers.0.mlp.down_proj.weight", "biases"),
    ] {
        let text = swap(suffix, other).unwrap_err().to_string();
        assert!(text.contains(needle) && text.contains("model.safetensors"), "{suffix} of {other}: {text}");
    }
}
