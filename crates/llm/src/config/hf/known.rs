//! The fields of a `config.json` that are read, and those that have no effect on the result.

use super::{Family, Fields};
use crate::config::Error;
use serde_json::Value;

/// Fields that the reader reads, or that the architecture's own code does not read either.
const READ: [&str; 24] = [
    "architectures",
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_sliding_window",
    "vocab_size",
];

/// Fields that only some families have.
fn read_by(family: Family) -> &'static [&'static str] {
    match family {
        Family::Qwen3Moe => &[
            "decoder_sparse_step",
            "mlp_only_layers",
            "moe_intermediate_size",
            "norm_topk_prob",
            "num_experts",
            "num_experts_per_tok",
            // Only the loss of training adds the router's.
            "output_router_logits",
            "router_aux_loss_coef",
        ],
        Family::SmolLm3 => &["no_rope_layers", "no_rope_layer_interval"],
        Family::Gemma2 => {
            &["hidden_activation", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"]
        }
        Family::Gemma3 => &[
            "hidden_activation",
            "query_pre_attn_scalar",
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "rope_local_base_freq",
            "sliding_window_pattern",
            "_sliding_window_pattern",
        ],
        _ => &[],
    }
}

/// Fields without an effect on the result: where the model came from, how it was initialized, how
/// other programs run it, ids of tokens, and settings of generation that older files have here.
const HARMLESS: [&str; 62] = [
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "model_max_length",
    "name_or_path",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    // The same products, split into more calls.
    "pretraining_tp",
    "problem_type",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// Fields with the only value that has no effect.
const NEUTRAL: [(&str, i64); 2] = [("full_attn_mod", 1), ("interpolate_factor", 1)];

impl Fields<'_> {
    /// Refuses fields that are neither read nor known to have no effect, unless their value turns
    /// off what they stand for: `null`, `false`, an empty list or object.
    pub(super) fn refuse_unknown(&self, family: Family) -> Result<(), Error> {
        for (field, value) in &self.object {
            let name = field.as_str();
            let off = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(list) => list.is_empty(),
                Value::Object(object) => object.is_empty(),
                Value::Number(_) => NEUTRAL.iter().any(|(known, n)| *known == name && value.as_i64() == Some(*n)),
                _ => false,
            };
            // Dropout is for training only. MLX's forms of matrices are read from the matrices;
            // other quantizers state a method and write tensors of other names.
            let known = off
                || (name.starts_with("quantization")
                    && value.get("group_size").is_some()
                    && value.get("quant_method").is_none())
                || name.ends_with("dropout")
                || name.ends_with("pdrop")
                || READ.contains(&name)
                || HARMLESS.contains(&name)
                || read_by(family).contains(&name);
            if !known {
                let value: String = value.to_string().chars().take(60).collect();
                let reason = format!("{value} is not known and may change the result; remove the field if it has none");
                return Err(self.error(field, reason));
            }
        }
        Ok(())
    }
}
