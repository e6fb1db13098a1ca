#!/usr/bin/env python3
"""Repeats a run of ferrane in PyTorch with the same initial weights and the same windows.

  ferrane train --device reference --model stories260k --data IDS.u16 --tokenizer tok512.bin \\
      --steps 1 --accum 1 --lr 1e-30 --eval-windows 0 --seed 1 --out START       # writes the initial weights
  torch_same_draws.py START/step-000001/model.safetensors IDS.u16 --seed 1

Then loss and gradient norm of an update are those of `ferrane train --vocabulary full --accum 8` with that seed, up to rounding.
"""
import argparse, json, math, struct
import numpy as np
import torch, torch.nn as nn
from torch_baseline import MODELS, Model

MASK = (1 << 64) - 1
SAMPLER_STREAM = 0x73616D706C65


def splitmix64(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


class Rng:
    """xoshiro256++, as crates/llm/src/random.rs."""

    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed, value = splitmix64(seed)
            self.s.append(value)

    def next(self):
        s, rotl = self.s, lambda x, k: ((x << k) | (x >> (64 - k))) & MASK
        result = (rotl((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = rotl(s[3], 45)
        return result

    def below(self, bound):
        threshold = ((1 << 64) - bound) % bound
        while True:
            product = self.next() * bound
            if product & MASK >= threshold:
                return product >> 64


def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, torch.from_numpy(np.frombuffer(data[8 + size + begin : 8 + size + end], "<f4").reshape(entry["shape"]).copy())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("weights"); p.add_argument("ids")
    p.add_argument("--seed", type=int, default=1); p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    seq, updates, peak, warm = 256, 1000, 1e-3, 100
    net, start = Model(MODELS["stories260k"], seq), dict(tensors(a.weights))
    with torch.no_grad():
        net.embed.weight.copy_(start["embed"])
        for i, layer in enumerate(net.layers):
            for name in ("wq", "wk", "wv", "wo", "w1", "w2", "w3"):
                getattr(layer, name if name in ("w1", "w2", "w3") else name[1]).weight.copy_(start[f"layers.{i}.{name}"])
    ids = torch.from_numpy(np.fromfile(a.ids, dtype="<u2").astype(np.int64))
    cut = int(len(ids) * 0.95)
    rng, valid = Rng(a.seed ^ splitmix64(SAMPLER_STREAM)[1]), ids[cut:]
    stride = (len(valid) - seq - 1) // 256
    groups = [dict(params=[p for p in net.parameters() if p.ndim == 2], weight_decay=0.1), dict(params=[p for p in net.parameters() if p.ndim < 2], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), eps=1e-8)
    for it in range(updates + 1):
        if it in (0, 100, 250, 500, 750, updates):
            with torch.no_grad():
                v = [torch.stack([valid[j * stride : j * stride + seq + 1] for j in range(i, i + 32)]) for i in range(0, 256, 32)]
                print(f"update {it} valid {sum(net(w[:, :-1], w[:, 1:]).item() for w in v) / len(v):.4f}", flush=True)
        for g in opt.param_groups:
            g["lr"] = peak * (it + 1) / warm if it < warm else peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (it - warm) / (updates - warm))))
        w = torch.stack([ids[k : k + seq + 1] for k in [rng.below(cut - seq) for _ in range(8)]])
        opt.zero_grad(); loss = net(w[:, :-1], w[:, 1:]); loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0); opt.step()
        if it < 5 or it % 50 == 0:
            print(f"update {it + 1} loss {loss.item():.5f} grad_norm {norm.item():.5f}", flush=True)


main()
