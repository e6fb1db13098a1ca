//! The reader of `config.json`, field by field, and published configurations.

use super::*;
use crate::config::{AttentionKind, Rope, RopeScaling, RopeStyle};
use serde_json::json;

fn base(architecture: &str) -> Value {
    json!({
        "architectures": [architecture], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "rope_scaling": null
    })
}

fn parse(value: &Value) -> Result<Config, Error> {
    parse_hf(value.to_string().as_bytes(), "config.json").map(|c| c.config)
}

/// The base configuration with fields replaced, or removed if `None`.
fn edited(architecture: &str, edits: &[(&str, Option<Value>)]) -> Value {
    let mut value = base(architecture);
    let object = value.as_object_mut().unwrap();
    for (field, edit) in edits {
        match edit {
            Some(new) => object.insert(field.to_string(), new.clone()),
            None => object.remove(*field),
        };
    }
    value
}

#[test]
fn defaults_follow_the_architecture() {
    let absent = |architecture| {
        let many = Some(json!(32));
        parse(&edited(architecture, &[("num_attention_heads", many), ("max_position_embeddings", None)])).unwrap()
    };
    let llama = absent("LlamaForCausalLM");
    assert_eq!((llama.head_dim, llama.kv_heads, llama.max_seq), (2, 32, 2048));
    assert_eq!((llama.sliding_window, llama.tied, llama.qk_norm), (None, false, false));
    assert_eq!(llama.rope, Rope::new(RopeStyle::Half, 5e5));
    let mistral = absent("MistralForCausalLM");
    assert_eq!((mistral.head_dim, mistral.kv_heads, mistral.max_seq), (2, 8, 131_072));
    assert_eq!(mistral.sliding_window, Some(4096));
    let qwen2 = absent("Qwen2ForCausalLM");
    assert_eq!((qwen2.head_dim, qwen2.kv_heads, qwen2.max_seq), (2, 32, 32_768));
    assert!(qwen2.qkv_bias && !qwen2.qk_norm && qwen2.sliding_window.is_none());
    let qwen3 = absent("Qwen3ForCausalLM");
    assert_eq!((qwen3.head_dim, qwen3.kv_heads, qwen3.max_seq), (128, 32, 32_768));
    assert!(!qwen3.qkv_bias && qwen3.qk_norm && qwen3.sliding_window.is_none());
    // The default of 32 key/value heads differs from the number of query heads.
    let wide = [("num_attention_heads", Some(json!(64))), ("head_dim", Some(json!(2)))];
    assert_eq!(parse(&edited("Qwen2ForCausalLM", &wide)).unwrap().kv_heads, 32);
}

#[test]
fn null_is_not_absence() {
    for (_, architecture, _) in FAMILIES {
        let null = [("num_key_value_heads", Some(json!(null))), ("sliding_window", Some(json!(null)))];
        let config = parse(&edited(architecture, &null)).unwrap();
        assert_eq!((config.kv_heads, config.sliding_window), (4, None), "{architecture}");
    }
    let used = [
        ("num_key_value_heads", Some(json!(2))),
        ("use_sliding_window", Some(json!(true))),
        ("max_window_layers", Some(json!(0))),
    ];
    let mut value = edited("Qwen2ForCausalLM", &used);
    assert_eq!(parse(&value).unwrap().sliding_window, Some(4096));
    value["sliding_window"] = json!(null);
    assert_eq!(parse(&value).unwrap().sliding_window, None);
}

#[test]
fn a_qwen3_head_needs_no_width_that_divides() {
    let kv = Some(json!(5));
    let odd = edited("Qwen3ForCausalLM", &[("num_attention_heads", Some(json!(5))), ("num_key_value_heads", kv)]);
    assert_eq!(parse(&odd).unwrap().head_dim, 128);
}

#[test]
fn rotary_settings_may_lie_in_an_object() {
    let rope = |object: Value, top: Option<Value>| {
        parse(&edited("LlamaForCausalLM", &[("rope_parameters", Some(object)), ("rope_theta", top)]))
    };
    let base = |object, top| rope(object, top).unwrap().rope.base;
    assert_eq!(base(json!({"rope_theta": 3e4}), None), 3e4);
    assert_eq!(base(json!({"rope_theta": 3e4, "rope_type": "default"}), Some(json!(1e6))), 3e4);
    assert_eq!(base(json!({"rope_type": "default", "partial_rotary_factor": 1.0}), Some(json!(1e6))), 1e6);
    assert_eq!(base(json!({}), None), 1e4);
    for (object, needle) in [
        (json!({"rope_theta": "big"}), "rope_parameters.rope_theta"),
        (json!({"rope_theta": 1e4, "factor": 2.0}), "rope_parameters.factor: is not"),
        (json!({"rope_type": "linear", "factor": 2.0, "mrope_section": [1]}), "rope_parameters.mrope_section"),
        (json!({"rope_type": 3}), "scaling 3"),
        (json!({"rope_type": "dynamic", "factor": 2.0}), "cache"),
        (json!({"rope_type": "linear"}), "rope_parameters.factor: is missing"),
        (json!({"rope_type": "linear", "factor": "two"}), "rope_parameters.factor: \"two\""),
        (json!({"rope_type": "llama3", "factor": 8.0}), "rope_parameters.low_freq_factor: is missing"),
        (json!({"rope_type": "longrope", "short_factor": 1}), "rope_parameters.short_factor"),
        (json!({"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}), "8 pairs"),
        (json!({"rope_type": "default", "partial_rotary_factor": 0.05}), "partial_rotary_factor: 0.05"),
        (json!({"rope_type": "default", "partial_rotary_factor": 1.5}), "partial_rotary_factor: 1.5"),
        (json!({"rope_type": "yarn", "factor": 4.0, "truncate": 1}), "rope_parameters.truncate"),
        (json!({"sliding_attention": {}}), "rope_parameters.full_attention: is missing"),
        (json!(8), "is not an object"),
    ] {
        let message = rope(object, None).unwrap_err().to_string();
        assert!(message.contains(needle), "{message}");
    }
}

#[test]
fn published_scalings() {
    let read = |edits: &[(&str, Option<Value>)]| parse(&edited("LlamaForCausalLM", edits)).unwrap();
    // Llama 3.1.
    let object = json!({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"});
    let config = read(&[("rope_scaling", Some(object)), ("max_position_embeddings", Some(json!(131_072)))]);
    let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192 };
    assert_eq!((config.rope.scaling, config.max_seq), (Some(llama3), 131_072));
    // Qwen2.5 as its page says: the context grows to factor · original.
    let object = json!({"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"});
    let config = read(&[("rope_scaling", Some(object)), ("max_position_embeddings", Some(json!(32_768)))]);
    let Some(RopeScaling::Yarn { factor, original, attention, beta_fast, beta_slow, truncate }) = config.rope.scaling
    else {
        panic!("{config:?}")
    };
    assert_eq!((factor, original, beta_fast, beta_slow, truncate), (4.0, 32768, 32.0, 1.0, true));
    assert!((attention - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
    assert_eq!(config.max_seq, 131_072);
    // Both scales of the attention factor, and one that is given.
    for (more, expected) in [
        (json!({"mscale": 2.0, "mscale_all_dim": 1.0}), (0.2 * 4f64.ln() + 1.0) / (0.1 * 4f64.ln() + 1.0)),
        (json!({"mscale": 2.0}), 0.1 * 4f64.ln() + 1.0),
        (json!({"attention_factor": 1.25, "mscale": 2.0, "mscale_all_dim": 1.0}), 1.25),
    ] {
        let mut object = json!({"rope_type": "yarn", "factor": 4.0});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match read(&[("rope_scaling", Some(object))]).rope.scaling {
            Some(RopeScaling::Yarn { attention, original: 32, .. }) => assert!((attention - expected).abs() < 1e-12),
            other => panic!("{other:?}"),
        }
    }
    // A quarter of a head of 16 elements.
    assert_eq!(read(&[("partial_rotary_factor", Some(json!(0.25)))]).rope.rotated, Some(4));
}

#[test]
fn layer_types_may_override_the_rule() {
    let types = |architecture: &str, list: Value, edits: &[(&str, Option<Value>)]| {
        let mut value = edited(architecture, edits);
        value["num_key_value_heads"] = json!(4);
        value["layer_types"] = list;
        parse(&value)
    };
    let windows = |config: Config| (0..2).map(|i| config.window(config.attention(i))).collect::<Vec<_>>();
    let (full, sliding) = ("full_attention", "sliding_attention");
    let used = [("use_sliding_window", Some(json!(true))), ("max_window_layers", Some(json!(0)))];
    for (architecture, list, edits, expected) in [
        ("Qwen3ForCausalLM", [full, full], &[][..], [None, None]),
        ("Qwen3ForCausalLM", [sliding, sliding], &used, [Some(4096), Some(4096)]),
        ("Qwen2ForCausalLM", [full, sliding], &used, [None, Some(4096)]),
        ("MistralForCausalLM", [sliding, sliding], &[], [Some(4096), Some(4096)]),
        ("Gemma2ForCausalLM", [full, sliding], &[], [None, Some(4096)]),
        ("Gemma3ForCausalLM", [full, full], &[], [None, None]),
    ] {
        assert_eq!(windows(types(architecture, json!(list), edits).unwrap()), expected, "{architecture} {list:?}");
    }
    for (architecture, list, edits) in [
        ("Qwen3ForCausalLM", json!([full, sliding]), &[][..]),
        ("Qwen2ForCausalLM", json!([full, "linear_attention"]), &used),
        ("MistralForCausalLM", json!([full, full]), &[]),
        ("LlamaForCausalLM", json!([full]), &[]),
        ("LlamaForCausalLM", json!("full_attention"), &[]),
    ] {
        let message = types(architecture, list, edits).unwrap_err().to_string();
        assert!(message.contains("layer_types"), "{message}");
    }
}

#[test]
fn window_is_honored_where_the_architecture_uses_it() {
    let window = |architecture: &str, edit: Value| {
        let mut value = base(architecture);
        value["sliding_window"] = json!(8);
        value["num_key_value_heads"] = json!(4);
        value.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
        parse(&value)
    };
    assert_eq!(window("MistralForCausalLM", json!({})).unwrap().sliding_window, Some(8));
    assert_eq!(window("LlamaForCausalLM", json!({})).unwrap().sliding_window, None);
    assert_eq!(window("Qwen2ForCausalLM", json!({})).unwrap().sliding_window, None);
    let used = json!({"use_sliding_window": true, "max_window_layers": 0});
    assert_eq!(window("Qwen2ForCausalLM", used).unwrap().sliding_window, Some(8));
    // The window starts after the last layer, so no layer has it.
    for all in [json!({"use_sliding_window": true}), json!({"use_sliding_window": true, "max_window_layers": 2})] {
        assert_eq!(window("Qwen3ForCausalLM", all).unwrap().sliding_window, None);
    }
    let partly = window("Qwen3ForCausalLM", json!({"use_sliding_window": true, "max_window_layers": 1})).unwrap();
    let kind = |window| AttentionKind { window, rope: true };
    assert_eq!((partly.sliding_window, partly.layer_attention), (Some(8), vec![kind(false), kind(true)]));
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let cases = [
        ("architectures", json!(["GPT2LMHeadModel"]), "LlamaForCausalLM"),
        ("rope_scaling", json!({"rope_type": "ntk", "factor": 8.0}), "ntk"),
        ("hidden_act", json!("gelu"), "silu"),
        ("partial_rotary_factor", json!(-0.5), "partial_rotary_factor"),
        ("attention_bias", json!(true), "attention_bias"),
        ("mlp_bias", json!(true), "mlp_bias"),
        ("hidden_size", json!(null), "hidden_size: is missing"),
        ("hidden_size", json!(-3), "hidden_size"),
        ("hidden_size", json!(1e300), "hidden_size"),
        ("num_attention_heads", json!(5), "head_dim"),
        ("num_attention_heads", json!(0), "head_dim"),
        ("vocab_size", json!(u64::MAX), "vocab"),
        ("rope_theta", json!("big"), "rope_theta"),
        ("tie_word_embeddings", json!("yes"), "tie_word_embeddings"),
        ("embedding_multiplier", json!(12.0), "embedding_multiplier: 12.0 is not known"),
        ("query_pre_attn_scalar", json!(256), "query_pre_attn_scalar"),
        ("quantization_config", json!({"bits": 4}), "quantization_config"),
        ("quantization_config", json!({"group_size": 64, "quant_method": "gptq"}), "quantization_config"),
        ("qk_norm", json!(true), "qk_norm"),
        ("full_attn_mod", json!(2), "full_attn_mod"),
    ];
    for (field, value, needle) in cases {
        let mut object = base("LlamaForCausalLM");
        object[field] = value;
        let message = parse(&object).unwrap_err().to_string();
        assert!(message.contains(needle), "{field}: {message}");
    }
    assert!(parse_hf(b"[1, 2]", "config.json").is_err());
    assert!(parse_hf(b"{", "config.json").is_err());
}

#[test]
fn fields_that_are_off_or_harmless_pass() {
    let mut value = base("LlamaForCausalLM");
    let more = json!({"embedding_multiplier": null, "use_mrope": false, "adapters": [], "quantization_config": {},
        "hidden_dropout": 0.1, "embd_pdrop": 0.1, "full_attn_mod": 1, "torch_dtype": "bfloat16", "id2label": {"0": "a"}});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    assert_eq!(parse(&value).unwrap(), parse(&base("LlamaForCausalLM")).unwrap());
}

#[test]
fn layers_without_rotation() {
    let read = |edits: &[(&str, Option<Value>)]| parse(&edited("SmolLM3ForCausalLM", edits)).map(|c| c.layer_attention);
    let rope = |list: &[bool]| list.iter().map(|&rope| AttentionKind { window: false, rope }).collect::<Vec<_>>();
    assert_eq!(read(&[]).unwrap(), []);
    assert_eq!(read(&[("no_rope_layer_interval", Some(json!(2)))]).unwrap(), rope(&[true, false]));
    assert_eq!(read(&[("no_rope_layers", Some(json!([0, 1])))]).unwrap(), rope(&[false, true]));
    for (field, value) in [
        ("no_rope_layer_interval", json!(0)),
        ("no_rope_layers", json!([1])),
        ("no_rope_layers", json!([1, 2])),
        ("no_rope_layers", json!(4)),
    ] {
        let message = read(&[(field, Some(value))]).unwrap_err().to_string();
        assert!(message.contains(field), "{message}");
    }
}

#[test]
fn gemma_has_factors_of_its_own() {
    let read = |architecture: &str, edits: &[(&str, Option<Value>)]| parse(&edited(architecture, edits)).unwrap();
    let gemma2 = read("Gemma2ForCausalLM", &[("hidden_size", Some(json!(3072)))]);
    assert_eq!(
        (gemma2.attn_softcap, gemma2.logit_softcap, gemma2.score_scale),
        (Some(50.0), Some(30.0), Some(1.0 / 16.0))
    );
    assert!(gemma2.post_norms && !gemma2.qk_norm && gemma2.local_rope.is_none() && gemma2.tied);
    assert_eq!((gemma2.activation, gemma2.embed_scale), (Activation::GeluTanh, 3072f32.sqrt()));
    // In bf16 the factor has eight bits.
    for (field, expected) in [("bfloat16", 55.5), ("float32", 3072f32.sqrt())] {
        let edits = [("hidden_size", Some(json!(3072))), ("torch_dtype", Some(json!(field)))];
        assert_eq!(read("Gemma2ForCausalLM", &edits).embed_scale, expected);
    }
    let none = [("attn_logit_softcapping", Some(json!(null))), ("final_logit_softcapping", Some(json!(20.0)))];
    let capped = read("Gemma2ForCausalLM", &none);
    assert_eq!((capped.attn_softcap, capped.logit_softcap), (None, Some(20.0)));
    let gemma3 = read("Gemma3ForCausalLM", &[("rope_theta", None), ("sliding_window_pattern", Some(json!(2)))]);
    assert_eq!((gemma3.rope.base, gemma3.attn_softcap, gemma3.logit_softcap, gemma3.qk_norm), (1e6, None, None, true));
    assert_eq!(gemma3.local_rope, Some(Rope::new(RopeStyle::Half, 1e4)));
    let kind = |window| AttentionKind { window, rope: true };
    assert_eq!(gemma3.layer_attention, [kind(true), kind(false)]);
    // The newer spelling, with an object for each type of layer.
    let both = json!({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}});
    let newer = read("Gemma3ForCausalLM", &[("rope_parameters", Some(both)), ("rope_theta", None)]);
    assert_eq!(newer.local_rope, Some(Rope::new(RopeStyle::Half, 5e3)));
    assert_eq!((newer.rope.base, newer.rope.scaling), (2e6, Some(RopeScaling::Linear { factor: 8.0 })));
    let message = parse(&edited("Gemma2ForCausalLM", &[("hidden_activation", Some(json!("gelu")))])).unwrap_err();
    assert!(message.to_string().contains("hidden_activation"), "{message}");
    assert!(gemma2.beyond_kernels().unwrap().contains("gate") && gemma2.beyond_training().is_some());
    assert!(parse(&base("LlamaForCausalLM")).unwrap().beyond_kernels().is_none());
}

/// The fields of published configurations, with what they must become: widths, layers, heads, head
/// size, context, number of layers with a window.
#[test]
fn published_configurations_open() {
    let llama = |more: Value| {
        let mut value = json!({
            "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
            "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02, "mlp_bias": false,
            "model_type": "llama", "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
            "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.0",
            "use_cache": true
        });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    };
    let sizes = |config: &Config| {
        let windows = (0..config.layers).filter(|&i| config.window(config.attention(i)).is_some()).count();
        (config.dim, config.layers, config.heads, config.kv_heads, config.head_dim, config.max_seq, windows)
    };
    let factors = |n: usize| (0..n).map(|i| 1.0 + i as f64 / 4.0).collect::<Vec<_>>();
    let cases = [
        (
            "Llama 3.2 1B",
            llama(json!({
                "bos_token_id": 128_000, "eos_token_id": [128_001, 128_008, 128_009], "head_dim": 64,
                "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131_072,
                "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
                "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
                "rope_theta": 500_000.0, "tie_word_embeddings": true, "vocab_size": 128_256
            })),
            (2048, 16, 32, 8, 64, 131_072, 0),
        ),
        (
            "SmolLM2 135M",
            llama(json!({
                "bos_token_id": 0, "eos_token_id": 0, "hidden_size": 576, "initializer_range": 0.041_666,
                "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192,
                "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
                "rope_interleaved": false, "rope_theta": 100_000, "tie_word_embeddings": true,
                "transformers.js_config": {"dtype": "q4"}, "vocab_size": 49_152
            })),
            (576, 30, 9, 3, 64, 8192, 0),
        ),
        (
            "Mistral 7B v0.1",
            llama(json!({
                "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14_336,
                "max_position_embeddings": 32_768, "model_type": "mistral", "num_attention_heads": 32,
                "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 10_000.0, "sliding_window": 4096,
                "vocab_size": 32_000
            })),
            (4096, 32, 32, 8, 128, 32_768, 32),
        ),
        (
            "Qwen2.5 0.5B",
            llama(json!({
                "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
                "max_position_embeddings": 32_768, "max_window_layers": 24, "model_type": "qwen2",
                "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
                "rope_theta": 1_000_000.0, "sliding_window": 32_768, "tie_word_embeddings": true, "use_mrope": false,
                "use_sliding_window": false, "vocab_size": 151_936
            })),
            (896, 24, 14, 2, 64, 32_768, 0),
        ),
        (
            "Qwen3 0.6B",
            llama(json!({
                "architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
                "max_position_embeddings": 40_960, "max_window_layers": 28, "model_type": "qwen3",
                "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
                "rope_theta": 1_000_000, "sliding_window": null, "tie_word_embeddings": true,
                "use_sliding_window": false, "vocab_size": 151_936
            })),
            (1024, 28, 16, 8, 128, 40_960, 0),
        ),
        (
            "Phi-3 mini 128k",
            llama(json!({
                "_name_or_path": "Phi-3-mini-128k-instruct", "architectures": ["Phi3ForCausalLM"],
                "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0, "eos_token_id": 32_000,
                "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 131_072,
                "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
                "original_max_position_embeddings": 4096, "pad_token_id": 32_000, "resid_pdrop": 0.0,
                "rope_scaling": {"long_factor": factors(48), "short_factor": factors(48), "type": "su"},
                "rope_theta": 10_000.0, "sliding_window": 262_144, "vocab_size": 32_064
            })),
            (3072, 32, 32, 32, 96, 131_072, 32),
        ),
        (
            "Phi-4 mini",
            llama(json!({
                "architectures": ["Phi3ForCausalLM"], "embd_pdrop": 0.0, "full_attn_mod": 1, "hidden_size": 3072,
                "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
                "max_position_embeddings": 131_072, "model_type": "phi3", "num_attention_heads": 24,
                "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
                "pad_token_id": 199_999, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0,
                "rope_scaling": {"long_factor": factors(48), "short_factor": factors(48), "type": "longrope"},
                "rope_theta": 10_000.0, "sliding_window": 262_144, "tie_word_embeddings": true, "vocab_size": 200_064
            })),
            (3072, 32, 24, 8, 128, 131_072, 32),
        ),
        (
            "SmolLM3 3B",
            llama(json!({
                "architectures": ["SmolLM3ForCausalLM"], "hidden_size": 2048, "intermediate_size": 11_008,
                "layer_types": vec!["full_attention"; 36], "max_position_embeddings": 65_536, "max_window_layers": 28,
                "model_type": "smollm3", "no_rope_layer_interval": 4, "no_rope_layers": ([1, 1, 1, 0].repeat(9)),
                "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "pretraining_tp": 2,
                "rms_norm_eps": 1e-06, "rope_theta": 5_000_000.0, "sliding_window": null,
                "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 128_256
            })),
            (2048, 36, 16, 4, 128, 65_536, 0),
        ),
        (
            "Gemma 2 2B",
            json!({
                "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 107],
                "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
                "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
                "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
                "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
                "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10_000.0, "sliding_window": 4096,
                "torch_dtype": "bfloat16", "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256_000
            }),
            (2304, 26, 8, 4, 256, 8192, 13),
        ),
        (
            "Gemma 3 1B",
            json!({
                "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
                "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
                "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
                "hidden_size": 1152, "initializer_range": 0.02, "intermediate_size": 6912,
                "max_position_embeddings": 32_768, "model_type": "gemma3_text", "num_attention_heads": 4,
                "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
                "rms_norm_eps": 1e-06, "rope_local_base_freq": 10_000, "rope_scaling": null, "rope_theta": 1_000_000,
                "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
                "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262_144
            }),
            (1152, 26, 4, 1, 256, 32_768, 22),
        ),
    ];
    for (name, value, expected) in cases {
        let config = parse(&value).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sizes(&config), expected, "{name}");
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config, "{name}");
    }
}
