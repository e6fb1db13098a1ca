#!/usr/bin/env python3
"""A tiny model whose matrices MLX has quantized, and the values that MLX computes for them.

    python scripts/mlx_quantized.py crates/llm/tests/mlx

Writes FOLDER/model.safetensors and config.json, as mlx-lm does, and FOLDER/expected.safetensors
with the same model in fp32. Needs mlx, safetensors and numpy (made with mlx 0.32.4, which runs on
Linux as mlx[cpu]). Weights are random with a fixed seed.
"""

import json
import pathlib
import sys

import mlx.core as mx
import numpy as np
from safetensors.numpy import save_file

DIM, HIDDEN, HEADS, HEAD_DIM, VOCAB = 32, 128, 4, 8, 6

# Shape, bits and group of each matrix; no bits: it stays as it is.
LAYER = "model.layers.0."
MATRICES = {
    "model.embed_tokens": ((VOCAB, DIM), 2, 32),
    LAYER + "self_attn.q_proj": ((DIM, DIM), 4, 32),
    LAYER + "self_attn.k_proj": ((HEAD_DIM, DIM), 8, 32),
    LAYER + "self_attn.v_proj": ((HEAD_DIM, DIM), 3, 32),
    LAYER + "self_attn.o_proj": ((DIM, DIM), 6, 32),
    LAYER + "mlp.gate_proj": ((HIDDEN, DIM), 5, 32),
    LAYER + "mlp.up_proj": ((HIDDEN, DIM), None, None),
    LAYER + "mlp.down_proj": ((DIM, HIDDEN), 4, 128),
    "lm_head": ((VOCAB, DIM), 8, 32),
}
NORMS = [LAYER + "input_layernorm", LAYER + "post_attention_layernorm", "model.norm"]


def main(folder):
    random = np.random.default_rng(5)
    quantized, expected = {}, {}
    for name, (shape, bits, group) in MATRICES.items():
        values = (random.standard_normal(shape) * 0.1).astype(np.float16)
        if bits is None:
            quantized[name + ".weight"] = values
            expected[name + ".weight"] = values.astype(np.float32)
            continue
        words, scales, biases = mx.quantize(mx.array(values), group_size=group, bits=bits)
        for suffix, array in [("weight", words), ("scales", scales), ("biases", biases)]:
            quantized[f"{name}.{suffix}"] = np.array(array)
        wide = [array.astype(mx.float32) for array in (scales, biases)]
        expected[name + ".weight"] = np.array(mx.dequantize(words, *wide, group_size=group, bits=bits))
    for name in NORMS:
        values = (1 + random.standard_normal(DIM) * 0.1).astype(np.float16)
        quantized[name + ".weight"], expected[name + ".weight"] = values, values.astype(np.float32)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": DIM, "intermediate_size": HIDDEN,
        "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "vocab_size": VOCAB, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "quantization": {"group_size": 32, "bits": 4},
    }
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(quantized, folder / "model.safetensors", metadata={"format": "mlx"})
    save_file(expected, folder / "expected.safetensors")


main(sys.argv[1])
