#!/usr/bin/env python3
"""Tiny models of every family that `ferrane-llm` opens, with the logits of transformers.

Usage: families.py FOLDER [NAME...]

Needs transformers 4.53 and safetensors. Writes a folder for each model: `config.json` as
transformers writes it, `model.safetensors` with random weights in fp16, and `logits.safetensors`
with token ids and the fp32 logits of the eager implementation. Sequences are longer than the
windows and than the original contexts, and softcaps, biases and gains are far from neutral, so that
a reader that ignores one of them fails. `crates/llm/tests/families` holds the output.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=32,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    torch_dtype="float32",
)
TOKENS = 40
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
FULL, SLIDING = "full_attention", "sliding_attention"

# Name, configuration class, fields.
MODELS = [
    ("llama3", "LlamaConfig", dict(
        rope_theta=500.0,
        rope_scaling=dict(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    )),
    ("linear", "LlamaConfig", dict(tie_word_embeddings=True, rope_scaling=dict(type="linear", factor=4.0))),
    ("yarn", "LlamaConfig", dict(
        rope_theta=50.0, max_position_embeddings=128, rope_scaling=dict(YARN, beta_fast=1.5, beta_slow=0.5),
    )),
    ("yarn-mscale", "LlamaConfig", dict(
        rope_theta=50.0, max_position_embeddings=128,
        rope_scaling=dict(YARN, beta_fast=1.5, beta_slow=0.5, mscale=4.0, mscale_all_dim=0.5),
    )),
    ("mistral", "MistralConfig", dict(sliding_window=9)),
    ("qwen2", "Qwen2Config", dict(
        num_hidden_layers=3, use_sliding_window=True, sliding_window=9, max_window_layers=1,
    )),
    ("qwen3", "Qwen3Config", dict(
        num_hidden_layers=3, use_sliding_window=True, sliding_window=7, max_window_layers=28,
        max_position_embeddings=128,
        layer_types=[SLIDING, FULL, SLIDING], rope_scaling=dict(YARN, attention_factor=1.3),
    )),
    ("phi3", "Phi3Config", dict(
        hidden_size=32, num_key_value_heads=2, partial_rotary_factor=0.75, original_max_position_embeddings=16,
        sliding_window=21, rope_scaling=dict(
            type="longrope", short_factor=[1.0, 1.1, 1.3], long_factor=[1.5, 3.0, 6.0],
        ),
    )),
    ("smollm3", "SmolLM3Config", dict(
        num_hidden_layers=4, rope_theta=500.0, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=11,
        tie_word_embeddings=True,
    )),
    ("gemma2", "Gemma2Config", dict(
        num_hidden_layers=3, sliding_window=9, query_pre_attn_scalar=5, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    )),
    ("gemma3", "Gemma3TextConfig", dict(
        num_hidden_layers=4, sliding_window=9, sliding_window_pattern=3, query_pre_attn_scalar=5, rope_theta=2000.0,
        rope_local_base_freq=50.0, rope_scaling=dict(rope_type="linear", factor=4.0),
    )),
    ("qwen3-moe", "Qwen3MoeConfig", dict(
        num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8, norm_topk_prob=True,
        mlp_only_layers=[1], decoder_sparse_step=1,
    )),
]


def randomize(model, seed):
    """Fills all parameters with values that fp16 holds."""
    generator = torch.Generator().manual_seed(seed)
    one_plus = "Gemma" in type(model).__name__
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if "norm" in name:
                noise = 0.3 * noise + (0.0 if one_plus else 1.0)
            elif name.endswith("bias"):
                noise = 0.5 * noise
            elif "embed" in name:
                noise = noise / (4.0 if one_plus else 1.0)
            else:
                noise = 1.4 * noise / value.shape[-1] ** 0.5
            value.copy_(noise.half().float())


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().contiguous()


def main():
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for seed, (name, kind, fields) in enumerate(MODELS):
        if names and name not in names:
            continue
        config = getattr(transformers, kind)(**{**SIZES, **fields})
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        config.architectures = [type(model).__name__]
        randomize(model, seed)
        vocab = config.vocab_size
        ids = [(i * i * 7 + i // 3 + 1) % vocab for i in range(TOKENS)]
        out = {"tokens": torch.tensor(ids, dtype=torch.int32), "logits": logits(model, ids)}
        if kind == "Phi3Config":
            short = ids[: config.original_max_position_embeddings]
            out |= {"short_tokens": torch.tensor(short, dtype=torch.int32), "short_logits": logits(model, short)}
        here = folder / name
        here.mkdir(parents=True, exist_ok=True)
        weights = {key: value.half().contiguous() for key, value in model.state_dict().items()}
        if config.tie_word_embeddings:
            del weights["lm_head.weight"]
        save_file(weights, here / "model.safetensors", metadata={"format": "pt"})
        save_file(out, here / "logits.safetensors")
        (here / "config.json").write_text(json.dumps(config.to_diff_dict(), indent=1, sort_keys=True) + "\n")
        spread = out["logits"].max() - out["logits"].min()
        print(f"{name}: {sum(v.numel() for v in weights.values())} weights, logits over {spread:.2f}")


if __name__ == "__main__":
    main()
