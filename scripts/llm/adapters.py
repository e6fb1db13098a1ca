#!/usr/bin/env python3
"""Adapters as PEFT stores them, with the logits of the merged models.

Usage: adapters.py FAMILIES FOLDER [NAME...]

Needs transformers 4.53 and peft 0.17 or later. FAMILIES is the output of `families.py`. Writes a
folder for each adapter: `adapter_config.json` and `adapter_model.safetensors` as PEFT writes them,
and `logits.safetensors` with token ids and the fp32 logits after `merge_and_unload`.
`crates/llm/tests/adapters` holds the output.
"""

import json
import pathlib
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

TOKENS = 40

# Name, which begins with that of the model; fields of the configuration.
ADAPTERS = [
    ("llama3", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], layers_to_transform=[1])),
    ("qwen2", dict(
        r=4, lora_alpha=6, target_modules="all-linear", rank_pattern={"o_proj": 2, r"layers\.1\.mlp\..*": 6},
        alpha_pattern={"q_proj": 12},
    )),
    ("qwen3", dict(r=3, lora_alpha=5, use_rslora=True, target_modules=r".*\.self_attn\.(q|k|o)_proj")),
    ("phi3", dict(r=5, lora_alpha=5, target_modules=["qkv_proj", "o_proj", "gate_up_proj"])),
    ("gemma2", dict(r=8, lora_alpha=4, target_modules=["k_proj", "down_proj", "up_proj"], fan_in_fan_out=True)),
    ("smollm3", dict(r=2, lora_alpha=4, target_modules="all-linear", exclude_modules=["v_proj"])),
]


def main():
    families, out, *names = sys.argv[1:]
    for name, fields in ADAPTERS:
        if names and name not in names:
            continue
        torch.manual_seed(sum(map(ord, name)))
        folder = pathlib.Path(out) / name
        model = transformers.AutoModelForCausalLM.from_pretrained(
            pathlib.Path(families) / name, torch_dtype=torch.float32, attn_implementation="eager"
        )
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **fields))
        with torch.no_grad():
            for key, value in adapted.named_parameters():
                if "lora_" in key:
                    value.normal_(std=0.25)
        adapted.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = name
        # PEFT keeps sets, whose order changes from run to run.
        for key in ("target_modules", "exclude_modules"):
            if isinstance(config.get(key), list):
                config[key].sort()
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
        tokens = torch.randint(3, model.config.vocab_size, (TOKENS,))
        with torch.no_grad():
            logits = adapted.merge_and_unload()(tokens[None]).logits[0]
        save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()}, folder / "logits.safetensors")
        print(f"{name}: logits within {logits.abs().max():.2f}")


main()
