"""Converts whole networks of PyTorch with coreai-torch and records what Apple's runtime computes for them.

    python scripts/coreai/networks.py FOLDER [NAME…]

Needs what samples.py needs, coreai-torch and torchvision. The weights are random. The files are those of samples.py, for compare.py.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import samples
import torch
from torch import nn

NETWORKS = {}
rng = np.random.default_rng(9)


def image(size, half=False):
    return rng.standard_normal((1, 3, size, size)).astype(np.float16 if half else np.float32)


def network(name, states=None, **data):
    def wrap(make):
        NETWORKS[f"torch_{name}"] = samples.Torch(lambda _: make(), states, **data)

    return wrap


def vision(name, size=64, **options):
    for half in (False, True):

        def make(half=half):
            import torchvision

            model = getattr(torchvision.models, name)(weights=None, **options)
            # Fresh running statistics would make every batch norm the identity.
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    nn.init.uniform_(module.running_var, 0.5, 1.5)
                    nn.init.normal_(module.running_mean, std=0.1)
            return model.half() if half else model

        network(f"{name}{'_float16' if half else ''}", x=image(size, half))(make)


for name in ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "efficientnet_b0", "densenet121", "convnext_tiny", "regnet_y_400mf"):
    vision(name)
vision("vit_b_16", 224)
vision("swin_t", 64)


class Block(nn.Module):
    """A layer of a decoder: attention with a causal mask, rotation of positions, a gated unit."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 160, bias=False), nn.Linear(width, 160, bias=False), nn.Linear(160, width, bias=False)

    def rotate(self, x):
        positions = torch.arange(x.shape[2], dtype=x.dtype)[:, None] / 10000 ** (torch.arange(0, self.size, 2, dtype=x.dtype) / self.size)
        a, b = x.chunk(2, -1)
        cos, sin = positions.cos(), positions.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norms[0](x)).reshape(b, n, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
        h = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(100, 64), nn.RMSNorm(64), nn.Linear(64, 100, bias=False)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


tokens = rng.integers(0, 100, (1, 12)).astype(np.int32)
network("decoder", tokens=tokens)(Decoder)
network("decoder_float16", tokens=tokens)(lambda: Decoder().half())


class Encoder(nn.Module):
    """PyTorch's own layers, whose fast path is off, and a mask of padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, mask):
        return self.body(x, src_key_padding_mask=mask)


mask = np.zeros((2, 9), bool)
mask[1, 6:] = True
network("encoder", x=rng.standard_normal((2, 9, 64)).astype(np.float32), mask=mask)(Encoder)


class Cache(nn.Module):
    """Attention of one token over keys and values that are states."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.register_buffer("keys", torch.zeros(1, 2, 8, 16))
        self.register_buffer("values", torch.zeros(1, 2, 8, 16))

    def forward(self, x, at):
        q, k, v = self.qkv(x).reshape(1, 1, 3, 2, 16).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        hidden = torch.arange(8)[None, None, None] > at
        scores = (q @ self.keys.transpose(-1, -2) / 4).masked_fill(hidden, -1e4)
        return scores.softmax(-1) @ self.values


cache = {f"b_{name}": rng.standard_normal((1, 2, 8, 16)).astype(np.float32) for name in ("keys", "values")}
network("cache", cache, x=rng.standard_normal((1, 1, 32)).astype(np.float32), at=np.array([3], np.int64))(Cache)


class First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


network("lstm", x=rng.standard_normal((7, 2, 12)).astype(np.float32))(lambda: First(nn.LSTM(12, 10, 2, bidirectional=True)))
network("gru", x=rng.standard_normal((7, 2, 12)).astype(np.float32))(lambda: First(nn.GRU(12, 10)))


class UNet(nn.Module):
    """Convolutions down and up again, with group norms and a resize."""

    def __init__(self):
        super().__init__()
        part = lambda i, o, s=1: nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(4, o), nn.SiLU())
        self.a, self.b, self.c = part(3, 16), part(16, 32, 2), part(32, 32, 2)
        self.up, self.d, self.e = nn.ConvTranspose2d(32, 32, 4, 2, 1), part(64, 16), nn.Conv2d(32, 3, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(a)
        d = self.d(torch.cat([self.up(self.c(b)), b], 1))
        d = nn.functional.interpolate(d, scale_factor=2, mode="bilinear")
        return torch.tanh(self.e(torch.cat([d, a], 1)))


network("unet", x=image(32))(UNet)
network("unet_float16", x=image(32, True))(lambda: UNet().half())


def main():
    folder, only = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    index = {}
    for name, sample in NETWORKS.items():
        if not only or name in only:
            index[name] = samples.in_child(lambda: samples.one(folder, name, sample))
            print(name, json.dumps(index[name])[:300], flush=True)


if __name__ == "__main__":
    main()
