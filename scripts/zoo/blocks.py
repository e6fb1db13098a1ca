"""Networks that no library has, or that a library has only with more parts than the zoo needs."""
import torch
from torch import nn
from torch.nn import functional as F


def conv_bn(cin, cout, kernel=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([act()] if act else []))


class CrossAttention(nn.Module):
    """Attention of `[N, T, C]` over itself or over a context `[N, S, D]`."""

    def __init__(self, width, context=None, heads=8):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context or width, width, bias=False)
        self.v = nn.Linear(context or width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x, context=None):
        context = x if context is None else context
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(context)), split(self.v(context)))
        return self.out(y.transpose(1, 2).flatten(2))


class GatedFeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        a, gate = self.up(x).chunk(2, dim=-1)
        return self.down(a * F.gelu(gate))


class TransformerBlock(nn.Module):
    def __init__(self, width, context, heads):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = CrossAttention(width, None, heads), CrossAttention(width, context, heads)
        self.feed = GatedFeedForward(width)

    def forward(self, x, context):
        x = x + self.own(self.norm1(x))
        x = x + self.cross(self.norm2(x), context)
        return x + self.feed(self.norm3(x))


class ResBlock(nn.Module):
    """GroupNorm, SiLU and 3x3 convolutions; the embedding of the time step is added between them."""

    def __init__(self, cin, cout, embedding=None, groups=32):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(groups, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.time = nn.Linear(embedding, cout) if embedding else None
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, embedding=None):
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(F.silu(embedding))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class DiffusionBlock(nn.Module):
    """One level of a latent diffusion UNet: two residual blocks, a transformer block between them."""

    def __init__(self, width=320, context=768, embedding=1280, heads=8, groups=32):
        super().__init__()
        self.res1, self.res2 = ResBlock(width, width, embedding, groups), ResBlock(width, width, embedding, groups)
        self.norm = nn.GroupNorm(groups, width, eps=1e-6)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.block = TransformerBlock(width, context, heads)

    def forward(self, x, embedding, context):
        x = self.res1(x, embedding)
        n, c, h, w = x.shape
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        y = self.block(y, context).transpose(1, 2).reshape(n, c, h, w)
        return self.res2(x + self.leave(y), embedding)


class VaeDecoderBlock(nn.Module):
    """The end of a latent decoder: attention with one head, residual blocks, nearest upsampling."""

    def __init__(self, latent=4, width=128):
        super().__init__()
        self.enter, self.mid1 = nn.Conv2d(latent, width, 3, padding=1), ResBlock(width, width)
        self.norm, self.attention = nn.GroupNorm(32, width), CrossAttention(width, None, 1)
        self.mid2, self.up = ResBlock(width, width), nn.Conv2d(width, width, 3, padding=1)
        self.last, self.end, self.leave = ResBlock(width, width // 2), nn.GroupNorm(32, width // 2), nn.Conv2d(width // 2, 3, 3, padding=1)

    def forward(self, x):
        x = self.mid1(self.enter(x))
        n, c, h, w = x.shape
        x = x + self.attention(self.norm(x).flatten(2).transpose(1, 2)).transpose(1, 2).reshape(n, c, h, w)
        x = self.up(F.interpolate(self.mid2(x), scale_factor=2.0, mode="nearest"))
        return self.leave(F.silu(self.end(self.last(x))))


class SuperResolution(nn.Module):
    """EDSR: residual blocks without norms, then a pixel shuffle; a bilinear image is the base."""

    def __init__(self, width=32, blocks=4, scale=3):
        super().__init__()
        self.scale, self.enter = scale, nn.Conv2d(3, width, 5, padding=2)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width), nn.Conv2d(width, width, 3, padding=1)) for _ in range(blocks))
        self.leave = nn.Conv2d(width, 3 * scale * scale, 3, padding=1)

    def forward(self, x):
        y = self.enter(x)
        for block in self.blocks:
            y = y + block(y)
        base = F.interpolate(x, scale_factor=float(self.scale), mode="bilinear", align_corners=False)
        return F.pixel_shuffle(self.leave(y), self.scale) + base


class MedicalUnet(nn.Module):
    """The UNet of medical images: pooling down, transposed convolutions up, concatenated skips."""

    def __init__(self, channels=1, width=16, levels=3, classes=4):
        super().__init__()
        twice = lambda cin, cout: nn.Sequential(conv_bn(cin, cout), conv_bn(cout, cout))
        widths = [width << i for i in range(levels + 1)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([channels] + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(twice(2 * a, a) for a in widths[:-1])
        self.leave = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([kept[i], self.up[i](x)], dim=1))
        return self.leave(x)


class SpeechFeatures(nn.Module):
    """The encoder of wav2vec: strided 1-D convolutions over samples, a group norm, GELU."""

    def __init__(self, width=128):
        super().__init__()
        shapes = [(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]
        self.convs = nn.ModuleList(nn.Conv1d(width if i else 1, width, k, s, bias=False) for i, (k, s) in enumerate(shapes))
        self.norm, self.end = nn.GroupNorm(width, width), nn.LayerNorm(width)
        self.position = nn.Conv1d(width, width, 31, padding=15, groups=16)

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = conv(x)
            x = F.gelu(self.norm(x) if i == 0 else x)
        x = x + F.gelu(self.position(x))
        return self.end(x.transpose(1, 2))


class TemporalConvNet(nn.Module):
    """Dilated causal 1-D convolutions with residuals."""

    def __init__(self, channels=8, width=32, levels=5, classes=10):
        super().__init__()
        self.enter = nn.Conv1d(channels, width, 1)
        self.a = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=1 << i) for i in range(levels))
        self.b = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=1 << i) for i in range(levels))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(levels))
        self.leave = nn.Linear(width, classes)

    def forward(self, x):
        x = self.enter(x)
        for i, (a, b, norm) in enumerate(zip(self.a, self.b, self.norms)):
            causal = (2 << i, 0)
            y = F.relu(norm(a(F.pad(x, causal))))
            x = F.leaky_relu(x + b(F.pad(y, causal)), 0.1)
        return self.leave(x.mean(dim=2))


class Tagger(nn.Module):
    """A recurrent network that gives each token of a sentence a class."""

    def __init__(self, kind, layers=1, both=False, vocabulary=500, width=64, classes=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.recur = kind(width, width, layers, batch_first=True, bidirectional=both)
        self.leave = nn.Linear(width * (2 if both else 1), classes)

    def forward(self, ids):
        return self.leave(self.recur(self.embed(ids))[0])


class ConformerBlock(nn.Module):
    """Half feed-forward, attention, gated depthwise convolution, half feed-forward."""

    def __init__(self, width=144, heads=4, kernel=15):
        super().__init__()
        feed = lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.feed1, self.feed2 = feed(), feed()
        self.norm, self.attention = nn.LayerNorm(width), CrossAttention(width, None, heads)
        self.before, self.enter = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch, self.leave, self.end = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x):
        x = x + 0.5 * self.feed1(x)
        x = x + self.attention(self.norm(x))
        y = F.glu(self.enter(self.before(x).transpose(1, 2)), dim=1)
        x = x + self.leave(F.silu(self.batch(self.depthwise(y)))).transpose(1, 2)
        return self.end(x + 0.5 * self.feed2(x))


class KeywordSpotter(nn.Module):
    """DS-CNN: depthwise separable convolutions over a spectrogram."""

    def __init__(self, width=64, classes=12, blocks=4):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, width, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(*(nn.Sequential(conv_bn(width, width, groups=width), conv_bn(width, width, 1)) for _ in range(blocks)))
        self.leave = nn.Linear(width, classes)

    def forward(self, x):
        return F.softmax(self.leave(self.blocks(self.enter(x)).mean(dim=(2, 3))), dim=-1)


class RadianceField(nn.Module):
    """NeRF: sines and cosines of a position, eight layers with a skip, a colour and a density."""

    def __init__(self, width=128, octaves=6):
        super().__init__()
        self.octaves, size = octaves, 3 + 6 * octaves
        self.layers = nn.ModuleList(nn.Linear(size if i == 0 else width + size if i == 4 else width, width) for i in range(8))
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, x):
        encoded = torch.cat([x] + [f(x * float(1 << i)) for i in range(self.octaves) for f in (torch.sin, torch.cos)], dim=-1)
        y = encoded
        for i, layer in enumerate(self.layers):
            y = F.relu(layer(torch.cat([y, encoded], dim=-1) if i == 4 else y))
        return torch.cat([torch.sigmoid(self.colour(y)), F.softplus(self.density(y))], dim=-1)


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, stride=1, expand=4, act=nn.SiLU):
        super().__init__()
        wide = cin * expand
        self.add = stride == 1 and cin == cout
        self.body = nn.Sequential(conv_bn(cin, wide, 1, act=act), conv_bn(wide, wide, 3, stride, wide, act), conv_bn(wide, cout, 1, act=None))

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


class SelfBlock(nn.Module):
    """A transformer layer with the norms first."""

    def __init__(self, width, heads, wide=2, act=F.silu):
        super().__init__()
        self.norm1, self.norm2, self.act = nn.LayerNorm(width), nn.LayerNorm(width), act
        self.attention, self.up, self.down = CrossAttention(width, None, heads), nn.Linear(width, wide * width), nn.Linear(wide * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.act(self.up(self.norm2(x))))


class MobileVitBlock(nn.Module):
    """MobileViT: a transformer over the pixels that lie at the same place of every 2x2 patch."""

    def __init__(self, channels, width, depth=2, heads=4):
        super().__init__()
        self.local = nn.Sequential(conv_bn(channels, channels, act=nn.SiLU), nn.Conv2d(channels, width, 1, bias=False))
        self.blocks, self.norm = nn.Sequential(*(SelfBlock(width, heads) for _ in range(depth))), nn.LayerNorm(width)
        self.project, self.fuse = conv_bn(width, channels, 1, act=nn.SiLU), conv_bn(2 * channels, channels, act=nn.SiLU)

    def forward(self, x):
        y = self.local(x)
        n, c, h, w = y.shape
        y = y.reshape(n * c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3).reshape(n, c, 4, (h // 2) * (w // 2))
        y = y.permute(0, 2, 3, 1).reshape(n * 4, (h // 2) * (w // 2), c)
        y = self.norm(self.blocks(y))
        y = y.reshape(n, 4, (h // 2) * (w // 2), c).permute(0, 3, 1, 2)
        y = y.reshape(n * c, 2, 2, h // 2, w // 2).permute(0, 3, 1, 4, 2).reshape(n, c, h, w)
        return self.fuse(torch.cat([x, self.project(y)], dim=1))


class MobileVit(nn.Module):
    def __init__(self, widths=(16, 32, 48, 64), classes=100):
        super().__init__()
        a, b, c, d = widths
        self.body = nn.Sequential(
            conv_bn(3, a, 3, 2, act=nn.SiLU), InvertedResidual(a, b, 2), InvertedResidual(b, b), InvertedResidual(b, c, 2),
            MobileVitBlock(c, 64), InvertedResidual(c, d, 2), MobileVitBlock(d, 80),
        )
        self.leave = nn.Linear(d, classes)

    def forward(self, x):
        return self.leave(self.body(x).mean(dim=(2, 3)))


class StyleTransfer(nn.Module):
    """Instance norms, reflected borders, strided convolutions down, transposed ones up."""

    def __init__(self, width=16, blocks=3):
        super().__init__()
        norm = lambda c: nn.InstanceNorm2d(c, affine=True)
        conv = lambda i, o, k, s: nn.Sequential(nn.ReflectionPad2d(k // 2), nn.Conv2d(i, o, k, s))
        unit = lambda i, o, k, s: nn.Sequential(conv(i, o, k, s), norm(o), nn.ReLU())
        wide = 4 * width
        self.down = nn.Sequential(unit(3, width, 9, 1), unit(width, 2 * width, 3, 2), unit(2 * width, wide, 3, 2))
        self.blocks = nn.ModuleList(nn.Sequential(unit(wide, wide, 3, 1), conv(wide, wide, 3, 1), norm(wide)) for _ in range(blocks))
        up = lambda i, o: nn.Sequential(nn.ConvTranspose2d(i, o, 3, 2, 1, output_padding=1), norm(o), nn.ReLU())
        self.up, self.leave = nn.Sequential(up(wide, 2 * width), up(2 * width, width)), conv(width, 3, 9, 1)

    def forward(self, x):
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return torch.tanh(self.leave(self.up(x)))


class Autoencoder(nn.Module):
    """Strided convolutions down; bilinear and nearest resizing up."""

    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Sequential(conv_bn(3, width, 3, 2, act=nn.ELU), conv_bn(width, 2 * width, 3, 2, act=nn.ELU), nn.AvgPool2d(3, 2, 1))
        self.a, self.b, self.c = conv_bn(2 * width, 2 * width), conv_bn(2 * width, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x = self.a(F.interpolate(self.down(x), scale_factor=2.0, mode="bilinear", align_corners=False))
        x = self.b(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return torch.sigmoid(self.c(F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)))


class GroupNormNet(nn.Module):
    """A residual network with group norms and strided skips."""

    def __init__(self, widths=(32, 64, 128, 256), classes=100, groups=8):
        super().__init__()
        self.enter = nn.Conv2d(3, widths[0], 3, 2, 1)
        self.blocks = nn.ModuleList(ResBlock(a, b, None, groups) for a, b in zip(widths[:1] + widths, widths))
        self.leave = nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = self.enter(x)
        for i, block in enumerate(self.blocks):
            x = block(F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) if i else x)
        return self.leave(x.amax(dim=(2, 3)))


class Csp(nn.Module):
    """The block of YOLO: half of the channels pass through bottlenecks, all are concatenated."""

    def __init__(self, cin, cout, depth=1, add=True):
        super().__init__()
        self.half, self.add = cout // 2, add
        self.enter = conv_bn(cin, cout, 1, act=nn.SiLU)
        self.blocks = nn.ModuleList(nn.Sequential(conv_bn(self.half, self.half, act=nn.SiLU), conv_bn(self.half, self.half, act=nn.SiLU)) for _ in range(depth))
        self.leave = conv_bn((2 + depth) * self.half, cout, 1, act=nn.SiLU)

    def forward(self, x):
        parts = list(self.enter(x).split(self.half, dim=1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.add else y)
        return self.leave(torch.cat(parts, dim=1))


class PyramidPool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter, self.leave = conv_bn(width, width // 2, 1, act=nn.SiLU), conv_bn(2 * width, width, 1, act=nn.SiLU)

    def forward(self, x):
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, dim=1))


class Yolo(nn.Module):
    """A detector: three scales joined down and up; boxes are decoded to pixels."""

    def __init__(self, width=16, classes=20, side=256, bins=8):
        super().__init__()
        w = [width << i for i in range(5)]
        unit = lambda i, o: conv_bn(i, o, 3, 2, act=nn.SiLU)
        self.stem = nn.Sequential(unit(3, w[0]), unit(w[0], w[1]), Csp(w[1], w[1]))
        self.p3, self.p4 = nn.Sequential(unit(w[1], w[2]), Csp(w[2], w[2], 2)), nn.Sequential(unit(w[2], w[3]), Csp(w[3], w[3], 2))
        self.p5 = nn.Sequential(unit(w[3], w[4]), Csp(w[4], w[4]), PyramidPool(w[4]))
        self.n4, self.n3 = Csp(w[4] + w[3], w[3], 1, False), Csp(w[3] + w[2], w[2], 1, False)
        self.d3, self.m4 = unit(w[2], w[2]), Csp(w[2] + w[3], w[3], 1, False)
        self.d4, self.m5 = unit(w[3], w[3]), Csp(w[3] + w[4], w[4], 1, False)
        self.classes, self.bins = classes, bins
        self.heads = nn.ModuleList(nn.Sequential(conv_bn(c, c, act=nn.SiLU), nn.Conv2d(c, 4 * bins + classes, 1)) for c in w[2:])
        places, strides = [], []
        for stride in (8, 16, 32):
            n = side // stride
            y, x = torch.meshgrid(torch.arange(n) + 0.5, torch.arange(n) + 0.5, indexing="ij")
            places.append(torch.stack([x, y]).reshape(2, -1))
            strides.append(torch.full((1, n * n), float(stride)))
        self.register_buffer("places", torch.cat(places, 1)[None])
        self.register_buffer("strides", torch.cat(strides, 1)[None])
        self.register_buffer("weights", torch.arange(bins, dtype=torch.float32).reshape(1, bins, 1, 1))

    def forward(self, x):
        double = lambda t: F.interpolate(t, scale_factor=2.0, mode="nearest")
        c3 = self.p3(self.stem(x))
        c4 = self.p4(c3)
        c5 = self.p5(c4)
        n4 = self.n4(torch.cat([double(c5), c4], 1))
        n3 = self.n3(torch.cat([double(n4), c3], 1))
        m4 = self.m4(torch.cat([self.d3(n3), n4], 1))
        m5 = self.m5(torch.cat([self.d4(m4), c5], 1))
        out = torch.cat([head(t).flatten(2) for head, t in zip(self.heads, (n3, m4, m5))], dim=2)
        boxes, scores = out.split([4 * self.bins, self.classes], dim=1)
        boxes = F.softmax(boxes.unflatten(1, (4, self.bins)).transpose(1, 2), dim=1)
        left, right = (boxes * self.weights).sum(1).chunk(2, dim=1)
        low, high = self.places - left, self.places + right
        boxes = torch.cat([(low + high) / 2, high - low], 1) * self.strides
        return boxes, torch.sigmoid(scores)


class RetinaHead(nn.Module):
    """A feature pyramid, and two heads whose weights all levels share."""

    def __init__(self, width=64, anchors=3, classes=10):
        super().__init__()
        w = (32, 64, 128)
        self.stem = nn.Sequential(conv_bn(3, 16, 3, 2), InvertedResidual(16, 32, 2, act=nn.Hardswish))
        self.down = nn.ModuleList(InvertedResidual(a, b, 2, act=nn.ReLU6) for a, b in zip((32, 32, 64), w))
        self.side, self.smooth = nn.ModuleList(nn.Conv2d(c, width, 1) for c in w), nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in w)
        tower = lambda out: nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU(), nn.Conv2d(width, out, 3, padding=1))
        self.boxes, self.scores, self.classes = tower(anchors * 4), tower(anchors * classes), classes

    def forward(self, x):
        x, kept = self.stem(x), []
        for down in self.down:
            x = down(x)
            kept.append(x)
        levels = [self.side[2](kept[2])]
        for i in (1, 0):
            levels.append(self.side[i](kept[i]) + F.interpolate(levels[-1], scale_factor=2.0, mode="nearest"))
        levels = [smooth(t) for smooth, t in zip(self.smooth, reversed(levels))]
        rows = lambda head, size: torch.cat([head(t).permute(0, 2, 3, 1).reshape(1, -1, size) for t in levels], dim=1)
        return rows(self.boxes, 4), torch.sigmoid(rows(self.scores, self.classes))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class DecoderLayer(nn.Module):
    """The layer of Llama: RMSNorm, rotated queries and keys, grouped heads, a SwiGLU gate."""

    def __init__(self, width, heads, groups, hidden):
        super().__init__()
        size, self.heads, self.groups = width // heads, heads, groups
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * size, bias=False) for n in (heads, groups, groups))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin, mask):
        y = self.norm1(x)
        split = lambda t, n: t.unflatten(-1, (n, -1)).transpose(1, 2)

        def rotate(t):
            a, b = t.chunk(2, dim=-1)
            return t * cos + torch.cat([-b, a], dim=-1) * sin

        q, k, v = rotate(split(self.q(y), self.heads)), rotate(split(self.k(y), self.groups)), split(self.v(y), self.groups)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5) + mask
        x = x + self.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, vocabulary, width=192, heads=6, groups=2, hidden=512, layers=4, length=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, groups, hidden) for _ in range(layers))
        self.norm, self.leave = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(0, size, 2) / size))
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((length, length), -1e4).triu(1))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.leave(self.norm(x))
