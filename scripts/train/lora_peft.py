#!/usr/bin/env python3
"""Compares fine-tuning with adapters in Ferrane and in PyTorch with PEFT.

Usage: lora_peft.py FERRANE MODEL.bin TOKENIZER TEXT OUT.json [DEVICE...]

Needs torch, transformers 4.53 and peft 0.17 or later. MODEL.bin is a checkpoint of llama2.c, such as
stories260K.bin, TOKENIZER its tokenizer, TEXT a text that it was not trained on.

`ferrane train --lora` trains on each DEVICE (`reference` and `emulator` by default). PyTorch trains
the same adapters on the same windows in fp32 on the CPU: the draws and the initial adapters are
computed here from the seed, with an implementation of their own. Printed are the loss of each
update, the validation loss, and the validation loss in PyTorch of the adapter that Ferrane wrote,
loaded by `PeftModel.from_pretrained`. OUT.json gets PyTorch's losses. The exit status is 1 if a loss differs by more than 2 %.
"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
import peft
import torch
import transformers

SEQ, ACCUM, STEPS, WINDOWS, SEED = 64, 4, 60, 32, 5
RANK, ALPHA, TARGETS = 8, 16, ["q_proj", "v_proj", "down_proj"]
LR, WARMUP, CLIP, DECAY = 5e-3, 6, 1.0, 0.01
MASK = (1 << 64) - 1
SIDES = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
         "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp"}


class Random:
    """xoshiro256++ under a seed and a stream."""

    def __init__(self, seed, stream):
        value, _ = self.split(stream)
        seed ^= value
        self.state = []
        for _ in range(4):
            value, seed = self.split(seed)
            self.state.append(value)

    @staticmethod
    def split(state):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31), state

    def next(self):
        def rotate(x, k):
            return ((x << k) | (x >> (64 - k))) & MASK

        s = self.state
        result = (rotate((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        return result

    def uniform(self):
        return (self.next() >> 11) / (1 << 53)

    def below(self, bound):
        while True:
            product = self.next() * bound
            if product & MASK >= ((1 << 64) - bound) % bound:
                return product >> 64


def llama(path):
    """The model of a llama2.c file."""
    data = path.read_bytes()
    dim, hidden, layers, heads, kv_heads, vocab, positions = struct.unpack("<7i", data[:28])
    tied, vocab, head = vocab > 0, abs(vocab), dim // heads
    values = torch.frombuffer(bytearray(data[28:]), dtype=torch.float32)
    at = 0

    def take(*shape):
        nonlocal at
        count = math.prod(shape)
        at += count
        return values[at - count : at].reshape(shape).clone()

    def halves(weight, count):
        """Rotary pairs of neighbors become pairs of the two halves of a head."""
        return weight.reshape(layers, count, head // 2, 2, dim).transpose(2, 3).reshape(weight.shape)

    embed, norm1 = take(vocab, dim), take(layers, dim)
    wq, wk = halves(take(layers, dim, dim), heads), halves(take(layers, kv_heads * head, dim), kv_heads)
    wv, wo, norm2 = take(layers, kv_heads * head, dim), take(layers, dim, dim), take(layers, dim)
    w1, w2, w3 = take(layers, hidden, dim), take(layers, dim, hidden), take(layers, hidden, dim)
    norm = take(dim)
    take(positions, head)
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=dim, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=positions,
        rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=tied, attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config)
    state = {"model.embed_tokens.weight": embed, "model.norm.weight": norm}
    state["lm_head.weight"] = embed if tied else take(vocab, dim)
    for i in range(layers):
        names = {"input_layernorm": norm1, "self_attn.q_proj": wq, "self_attn.k_proj": wk, "self_attn.v_proj": wv,
                 "self_attn.o_proj": wo, "post_attention_layernorm": norm2, "mlp.gate_proj": w1,
                 "mlp.up_proj": w3, "mlp.down_proj": w2}
        state.update({f"model.layers.{i}.{name}.weight": weight[i] for name, weight in names.items()})
    model.load_state_dict(state)
    return model.eval()


def cached_ids(folder):
    """The ids that Ferrane encoded: at the start of the only file of its cache."""
    (path,) = folder.glob("*.ids")
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-12:-8])
    footer = json.loads(data[-44 - length : -44])
    kind = "<u2" if footer["width"] == 2 else "<u4"
    return torch.tensor(numpy.frombuffer(data, kind, footer["count"]).astype(numpy.int64))


def adapt(model):
    """PEFT's adapters with the values that Ferrane begins with."""
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, config)
    matrices = dict(model.named_parameters())
    targets = [name for name in SIDES if name in TARGETS]
    index = 0
    for layer in range(model.config.num_hidden_layers):
        for target in targets:
            name = f"base_model.model.model.layers.{layer}.{SIDES[target]}.{target}.lora_%s.default.weight"
            a, random = matrices[name % "A"], Random(SEED, (1 << 63) | index)
            bound = 1 / math.sqrt(a.shape[1])
            values = [bound * (2 * random.uniform() - 1) for _ in range(a.numel())]
            with torch.no_grad():
                a.copy_(torch.tensor(values, dtype=torch.float64).reshape(a.shape))
            assert not matrices[name % "B"].any()
            index += 1
    return model


def loss_of(model, ids, starts):
    windows = torch.stack([ids[start : start + SEQ + 1] for start in starts])
    logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def validation(model, ids):
    cut = int(len(ids) * 0.95)
    stride = max((len(ids) - cut - SEQ - 1) // WINDOWS, 1)
    with torch.no_grad():
        return loss_of(model, ids, [cut + i * stride for i in range(WINDOWS)]).item()


def in_pytorch(model, ids):
    """The loss of each update, and the validation losses before and after."""
    model = adapt(model)
    before = validation(model, ids)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
    draws, positions, losses = Random(SEED, 0x73616D706C65), int(len(ids) * 0.95) - SEQ, []
    for step in range(STEPS):
        done = (step - WARMUP) / (STEPS - WARMUP)
        cosine = 0.1 * LR + 0.5 * (1 + math.cos(math.pi * done)) * 0.9 * LR
        optimizer.param_groups[0]["lr"] = LR * (step + 1) / WARMUP if step < WARMUP else cosine
        optimizer.zero_grad()
        loss = loss_of(model, ids, [draws.below(positions) for _ in range(ACCUM)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        losses.append(loss.item())
    return before, losses, validation(model, ids)


def in_ferrane(ferrane, folder, tokenizer, text, device):
    out = folder / device.replace("?", "-")
    subprocess.run([
        ferrane, "train", "--init", folder / "model", "--tokenizer", tokenizer, "--data", text, "--data-cache",
        folder / "cache", "--device", device, "--lora", str(RANK), "--lora-alpha", str(ALPHA), "--lora-targets",
        ",".join(TARGETS), "--steps", str(STEPS), "--accum", str(ACCUM), "--seq", str(SEQ), "--lr", str(LR),
        "--warmup", str(WARMUP), "--clip", str(CLIP), "--weight-decay", str(DECAY), "--seed", str(SEED),
        "--eval-every", "0", "--eval-windows", str(WINDOWS), "--out", out,
    ], check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [r["loss"] for r in records], records[-1]["valid_loss"], out / f"step-{STEPS:06}"


def main():
    ferrane, model, tokenizer, text, result, *devices = sys.argv[1:]
    torch.manual_seed(0)
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        llama(pathlib.Path(model)).save_pretrained(folder / "model")
        runs = {device: in_ferrane(ferrane, folder, tokenizer, text, device)
                for device in devices or ["reference", "emulator"]}
        ids = cached_ids(folder / "cache")
        load = lambda: transformers.AutoModelForCausalLM.from_pretrained(
            folder / "model", torch_dtype=torch.float32, attn_implementation="eager")
        before, losses, after = in_pytorch(load(), ids)
        print(f"PyTorch: validation loss {before:.4f} before, {after:.4f} after {STEPS} updates")
        for device, (own, valid, checkpoint) in runs.items():
            worst = max(abs(a / b - 1) for a, b in zip(own, losses))
            loaded = validation(peft.PeftModel.from_pretrained(load(), checkpoint).eval(), ids)
            print(f"{device}: validation loss {valid:.4f} ({valid / after - 1:+.3%}), in PyTorch {loaded:.4f} "
                  f"({loaded / valid - 1:+.3%}); loss of an update within {worst:.3%}")
            failed |= max(worst, abs(valid / after - 1), abs(loaded / valid - 1)) > 0.02
    record = dict(seq=SEQ, accum=ACCUM, steps=STEPS, seed=SEED, rank=RANK, alpha=ALPHA, targets=TARGETS, lr=LR,
                  warmup=WARMUP, clip=CLIP, weight_decay=DECAY, eval_windows=WINDOWS, before=before, after=after,
                  losses=losses)
    pathlib.Path(result).write_text(json.dumps(record) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
