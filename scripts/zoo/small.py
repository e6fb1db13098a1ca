"""small.py FOLDER [NAME…]: writes the small networks of the test suite (crates/suite/zoo).

Each has at most 200 KB and covers ops that the others lack. The files are those of make.py.
"""
import argparse, json, pathlib, sys

import torch
from torch import nn
from torch.nn import functional as F

import blocks
from blocks import conv_bn
from make import make
from nets import Net, image


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width):
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        y = F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))
        return x * F.hardsigmoid(self.excite(y))


class Mobile(nn.Module):
    """Depthwise kernels of 3 and 5, strides, gates, hard swish."""

    def __init__(self):
        super().__init__()
        unit = lambda i, o, k, s: nn.Sequential(
            conv_bn(i, 3 * i, 1, act=nn.Hardswish), conv_bn(3 * i, 3 * i, k, s, 3 * i, nn.Hardswish), Gate(3 * i), conv_bn(3 * i, o, 1, act=None)
        )
        self.enter, self.a, self.b, self.c = conv_bn(3, 8, 3, 2, act=nn.Hardswish), unit(8, 16, 3, 2), unit(16, 16, 5, 1), unit(16, 24, 5, 2)
        self.leave = nn.Linear(24, 10)

    def forward(self, x):
        x = self.a(self.enter(x))
        x = self.c(x + self.b(x))
        return self.leave(F.adaptive_avg_pool2d(F.hardswish(x), 1).flatten(1))


class Shuffle(nn.Module):
    """Grouped convolutions, a channel shuffle, a split, dropped rows."""

    def __init__(self, width=24, groups=4):
        super().__init__()
        self.groups = groups
        self.enter = nn.Conv2d(3, width, 3, 2, (0, 1))
        self.a, self.b = conv_bn(width, width, 3, 1, groups), conv_bn(width // 2, width // 2, 1, act=nn.ReLU6)
        self.c = nn.Conv2d(width // 2, width // 2, 3, padding=1, groups=width // 2)
        self.leave = nn.Conv2d(width, 6, (1, 3), (2, 1), groups=2)

    def forward(self, x):
        x = self.a(self.enter(x))
        n, c, h, w = x.shape
        x = x.reshape(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(n, c, h, w)
        kept, x = x.chunk(2, dim=1)
        x = torch.cat([kept, self.c(self.b(x))], dim=1)
        return self.leave(x[:, :, 1:, :-1])


class Dense(nn.Module):
    """Concatenated features; average and maximum pools, also with a ceiling of the size."""

    def __init__(self, grow=8, layers=3):
        super().__init__()
        self.enter = conv_bn(3, 16, 5, 2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16 + i * grow) for i in range(layers))
        self.convs = nn.ModuleList(nn.Conv2d(16 + i * grow, grow, 3, padding=1, bias=False) for i in range(layers))
        self.mix, self.leave = nn.Conv2d(16 + layers * grow, 16, 1), nn.Linear(32, 10)

    def forward(self, x):
        # 13 to 7 places: the last window is cut by the border.
        x = F.max_pool2d(self.enter(x)[:, :, :13, :13], 2, 2, ceil_mode=True)
        for norm, conv in zip(self.norms, self.convs):
            x = torch.cat([x, conv(F.relu(norm(x)))], dim=1)
        x = F.avg_pool2d(self.mix(x), 3, 2, 1)
        y = F.max_pool2d(x, 3, 1, 1)
        return self.leave(torch.cat([x.mean(dim=(2, 3)), y.amax(dim=(2, 3))], dim=1))


class Pyramid(nn.Module):
    """Dilated convolutions side by side and a pooled image, resized with aligned corners."""

    def __init__(self, width=12):
        super().__init__()
        self.enter = conv_bn(3, width, 3, 2)
        self.rates = nn.ModuleList(nn.Conv2d(width, width, 3, padding=r, dilation=r) for r in (1, 2, 4))
        self.pool, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(4 * width, 5, 1)

    def forward(self, x):
        y = self.enter(x)
        pooled = F.relu(self.pool(F.adaptive_avg_pool2d(y, 1))).expand(-1, -1, y.shape[2], y.shape[3])
        y = torch.cat([F.relu(rate(y)) for rate in self.rates] + [pooled], dim=1)
        return F.interpolate(self.leave(y), size=(31, 29), mode="bilinear", align_corners=True)


class ConvNext(nn.Module):
    """Depthwise kernels of 7, layer norms over channels, GELU, scaled residuals."""

    def __init__(self, width=16):
        super().__init__()
        self.enter, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        self.deep = nn.ModuleList(nn.Conv2d(width, width, 7, padding=3, groups=width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.scale = nn.ParameterList(torch.rand(width) + 0.2 for _ in range(2))
        self.leave = nn.Conv2d(width, 2 * width, 2, 2)

    def forward(self, x):
        x = self.norm(self.enter(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for deep, norm, up, down, scale in zip(self.deep, self.norms, self.up, self.down, self.scale):
            y = norm(deep(x).permute(0, 2, 3, 1))
            x = x + (down(F.gelu(up(y))) * scale).permute(0, 3, 1, 2)
        return F.gelu(self.leave(x), approximate="tanh")


class Video(nn.Module):
    """Convolutions and a pool of volumes."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv3d(2, 8, 3, (1, 2, 2), 1, bias=False), nn.BatchNorm3d(8)
        self.b, self.c = nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0), groups=2), nn.Conv3d(8, 12, 2, 2)

    def forward(self, x):
        x = F.relu(self.norm(self.a(x)))
        return self.c(F.max_pool3d(F.silu(self.b(x)), (1, 2, 2)) + 0.5 * F.avg_pool3d(x, (1, 2, 2)))


class Recurrent(nn.Module):
    """An LSTM in both directions, over it one that yields its last state."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.a, self.b = nn.LSTM(12, 8, 1, batch_first=True, bidirectional=True), nn.LSTM(16, 12, 1, batch_first=True)
        self.leave = nn.Linear(24, 6)

    def forward(self, ids):
        every, (last, cell) = self.b(self.a(self.embed(ids))[0])
        return self.leave(torch.cat([every, last.transpose(0, 1).expand_as(every) * torch.tanh(cell.transpose(0, 1))], dim=-1))


class Vision(nn.Module):
    """A vision transformer: patches, a token for the class, added positions."""

    def __init__(self, width=24, patches=16):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(0.3 * torch.randn(1, patches + 1, width))
        self.blocks, self.norm, self.leave = nn.Sequential(*(blocks.SelfBlock(width, 3, act=F.gelu) for _ in range(2))), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.place
        return F.log_softmax(self.leave(self.norm(self.blocks(x))[:, 0]), dim=-1)


IDS = [("ids", (1, 10), 50)]
# Each network, and the version of the op set that its package is written for.
SMALL = {
    "mobile": (Net(Mobile, image(32)), "iOS15"),
    "shuffle": (Net(Shuffle, image(24)), "iOS16"),
    "dense": (Net(Dense, image(32)), "iOS17"),
    "pyramid": (Net(Pyramid, image(24)), "iOS15"),
    "convnext": (Net(ConvNext, image(32)), "iOS18"),
    "medical_unet": (Net(lambda: blocks.MedicalUnet(1, 8, 1), image(16, 1)), "iOS16"),
    "style_transfer": (Net(lambda: blocks.StyleTransfer(4, 1), image(16)), "iOS17"),
    "diffusion": (Net(lambda: blocks.DiffusionBlock(16, 12, 20, 4, 4), [("x", (1, 16, 8, 8), "image"), ("embedding", (1, 20), "values"), ("context", (1, 5, 12), "values")]), "iOS18"),
    "super_resolution": (Net(lambda: blocks.SuperResolution(8, 1, 3), image(16)), "iOS15"),
    "autoencoder": (Net(lambda: blocks.Autoencoder(8), image(32)), "iOS17"),
    "temporal_conv": (Net(lambda: blocks.TemporalConvNet(4, 12, 3, 5), [("x", (1, 4, 40), "values")]), "iOS16"),
    "keyword_spotter": (Net(lambda: blocks.KeywordSpotter(16, 8, 2), image(24, 1)), "iOS17"),
    "conformer": (Net(lambda: blocks.ConformerBlock(16, 2, 7), [("x", (1, 12, 16), "values")]), "iOS17"),
    "video": (Net(Video, [("x", (1, 2, 4, 16, 16), "values")]), "iOS16"),
    "recurrent": (Net(Recurrent, IDS), "iOS17"),
    "gru": (Net(lambda: blocks.Tagger(nn.GRU, 1, False, 50, 12, 5), IDS), "iOS17"),
    "vision": (Net(Vision, image(32)), "iOS18"),
    "decoder": (Net(lambda: blocks.Decoder(50, 24, 4, 2, 32, 2, 10), IDS), "iOS18"),
    "mobilevit": (Net(lambda: nn.Sequential(conv_bn(3, 12, 3, 2, act=nn.SiLU), blocks.MobileVitBlock(12, 16, 1, 2)), image(16)), "iOS16"),
}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    for name in a.names or SMALL:
        net, target = SMALL[name]
        print(json.dumps(make(a.folder, name, net, target)), flush=True)


if __name__ == "__main__":
    main()
