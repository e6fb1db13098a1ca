#!/usr/bin/env python3
"""Writes the packages that crates/suite/tests/all/converted.rs runs: small networks with recurrence, loops, branches, lists, states,
flexible shapes, images and class labels, as coremltools 9.0 converts them from PyTorch.

    scripts/export_flow.py crates/suite/fixtures/converted

Next to NAME.mlpackage lie NAME.0.npz, NAME.1.npz, …: inputs `in.NAME` and what PyTorch computed for them, `out.NAME`. Weights and
inputs are drawn with a fixed seed. Needs coremltools 9.0, torch 2.7, numpy below 2.3 and Pillow.
"""
import logging
import pathlib
import sys
import warnings

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from PIL import Image
from torch import nn

OUT = pathlib.Path(sys.argv[1])
FP32, FP16 = ct.precision.FLOAT32, ct.precision.FLOAT16


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in flat(v)]


def numpy(tensor):
    array = tensor.detach().numpy()
    return array.astype(np.int32) if array.dtype == np.int64 else array


def record(name, case, inputs, outputs):
    arrays = {f"in.{k}": v for k, v in inputs.items()} | {f"out.{k}": v for k, v in outputs.items()}
    np.savez(OUT / f"{name}.{case}.npz", **arrays)


def save(name, module, cases, shapes=None, script=False, types_of=None, precision=FP32, target=ct.target.iOS17, **options):
    """Converts a module; `cases` are dictionaries of inputs, the first of which it is traced with."""
    module = module.eval()
    first = tuple(cases[0].values())
    traced = torch.jit.script(module) if script else torch.jit.trace(module, first)
    tensor = lambda k, v: ct.TensorType(k, (shapes or {}).get(k, v.shape), dtype=np.int32 if v.dtype == torch.int64 else np.float32)
    inputs = types_of or [tensor(k, v) for k, v in cases[0].items()]
    model = ct.convert(
        traced, inputs=inputs, compute_precision=precision, minimum_deployment_target=target, skip_model_load=True, **options
    )
    model.save(str(OUT / f"{name}.mlpackage"))
    names = [o.name for o in model.get_spec().description.output]
    for i, case in enumerate(cases):
        with torch.no_grad():
            outputs = flat(module(*case.values()))
        if "classifier_config" in options:
            names = names[1:] if len(names) > 1 else names
        record(name, i, {k: numpy(v) for k, v in case.items()}, {n: numpy(v) for n, v in zip(names, outputs, strict=True)})


class Call(nn.Module):
    """A recurrent layer whose initial states are inputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, h, c):
        return self.layer(x, (h, c))


class CallGru(Call):
    def forward(self, x, h):
        return self.layer(x, h)


def recurrent():
    x = torch.randn(7, 2, 6)
    save("lstm", nn.LSTM(6, 5, num_layers=2, bidirectional=True), [{"x": x}])
    states = {"h": torch.randn(2, 2, 5), "c": torch.randn(2, 2, 5)}
    save("lstm_states", Call(nn.LSTM(6, 5, bidirectional=True)), [{"x": x, **states}])
    save("gru", nn.GRU(6, 5, batch_first=True), [{"x": torch.randn(2, 7, 6)}])
    save("gru_fp16", nn.GRU(6, 5, batch_first=True), [{"x": torch.randn(2, 7, 6)}], precision=FP16)
    save("gru_layers", nn.GRU(6, 5, num_layers=2, bidirectional=True), [{"x": x}])
    save("gru_states", CallGru(nn.GRU(6, 5, num_layers=2)), [{"x": x, "h": torch.randn(2, 2, 5)}])
    save("rnn", nn.RNN(6, 5, nonlinearity="relu"), [{"x": x}])
    length = {"x": (1, ct.RangeDim(1, 50, 7), 6)}
    cases = [{"x": torch.randn(1, n, 6)} for n in (7, 1, 19)]
    save("lstm_length", nn.LSTM(6, 5, batch_first=True), cases, length)
    save("gru_length", nn.GRU(6, 5, batch_first=True), cases, length)


class While(nn.Module):
    def forward(self, x):
        while x.max() < 50.0:
            x = x * 1.5 + 1.0
        return x


class WhileOne(nn.Module):
    """The condition has the shape [1]."""

    def forward(self, x, n):
        while n < 5.0:
            x = x * 1.5 + 1.0
            n = n + 1.0
        return x


class For(nn.Module):
    def forward(self, x):
        y = x
        for i in range(x.size(0)):
            y = y * 0.5 + x[i]
        return y


class Branch(nn.Module):
    """The predicate has the shape [1]."""

    def forward(self, x, p):
        if p > 0:
            y = x * 2.0
        else:
            y = torch.relu(x)
        return y + 1.0


class BranchInLoop(nn.Module):
    def forward(self, x):
        y = x
        for i in range(4):
            if bool(y.sum() > 1.0):
                y = y * 0.5
            else:
                y = y + 1.0
        return y


def control():
    x = torch.randn(1, 4)
    save("while", While(), [{"x": x}], script=True)
    save("while_one", WhileOne(), [{"x": x, "n": torch.zeros(1)}, {"x": x, "n": torch.tensor([7.0])}], script=True)
    save("for", For(), [{"x": torch.randn(5, 3)}], script=True)
    signs = [{"x": x, "p": torch.tensor([p])} for p in (-1.0, 1.0)]
    save("branch", Branch(), signs, script=True)
    save("branch_in_loop", BranchInLoop(), [{"x": x}], script=True)


def lists():
    """The cumulative sum of the rows by a list that grows; the last row twice; and a scatter."""

    @mb.program(input_specs=[mb.TensorSpec(shape=(5, 3))], opset_version=ct.target.iOS17)
    def program(x):
        ls = mb.make_list(init_length=1, dynamic_length=True, elem_shape=(3,), dtype="fp32")
        zero = mb.fill(shape=(3,), value=0.0)

        def body(i, total, ls):
            row = mb.squeeze(x=mb.gather(x=x, indices=mb.expand_dims(x=i, axes=[0]), axis=0), axes=[0])
            total = mb.add(x=total, y=row)
            return mb.add(x=i, y=1), total, mb.list_write(ls=ls, index=i, value=total)

        i, total, ls = mb.while_loop(_cond=lambda i, t, l: mb.less(x=i, y=5), _body=body, loop_vars=(0, zero, ls))
        ls = mb.list_scatter(ls=ls, indices=[0, 5], value=mb.gather(x=x, indices=[3, 4], axis=0))
        length = mb.list_length(ls=ls, name="length")
        last = mb.list_read(ls=ls, index=4, name="last")
        return mb.list_gather(ls=ls, indices=[0, 1, 2, 3, 4, 5], name="rows"), length, last

    model = ct.convert(program, compute_precision=FP32, minimum_deployment_target=ct.target.iOS17, skip_model_load=True)
    model.save(str(OUT / "lists.mlpackage"))
    x = np.random.default_rng(3).standard_normal((5, 3)).astype(np.float32)
    rows = np.vstack([np.cumsum(x, axis=0, dtype=np.float32), x[4:]])
    rows[0] = x[3]
    record("lists", 0, {"x": x}, {"rows": rows, "length": np.int32(6), "last": rows[4]})


class Accumulate(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("acc", torch.zeros(1, 4, dtype=torch.float16))

    def forward(self, x):
        self.acc.add_(x.to(torch.float16))
        return self.acc * 2.0


def states():
    traced = torch.jit.trace(Accumulate().eval(), (torch.ones(1, 4),))
    model = ct.convert(
        traced,
        inputs=[ct.TensorType("x", (1, 4))],
        outputs=[ct.TensorType("y")],
        states=[ct.StateType(ct.TensorType(shape=(1, 4), dtype=np.float16), name="acc")],
        minimum_deployment_target=ct.target.iOS18,
        skip_model_load=True,
    )
    model.save(str(OUT / "state.mlpackage"))


class Attention(nn.Module):
    """Batch and length vary; `reshape` takes them from the input's shape."""

    def __init__(self):
        super().__init__()
        self.embed, self.q, self.out = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, ids, mask):
        x = self.embed(ids) * mask.unsqueeze(-1)
        n, t, _ = x.shape
        heads = lambda v: v.view(n, t, 2, 4).transpose(1, 2)
        q, k = heads(self.q(x)), heads(x)
        a = torch.softmax(q @ k.transpose(2, 3), dim=-1) @ k
        return self.out(nn.functional.layer_norm(a.transpose(1, 2).reshape(n, t, 8) + x, (8,)))


def shapes():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    sizes = [[1, 3, 16, 16], [1, 3, 24, 32], [2, 3, 8, 8]]
    enumerated = ct.EnumeratedShapes(shapes=sizes, default=sizes[0])
    save("conv_enumerated", net, [{"x": torch.randn(*s)} for s in sizes], {"x": enumerated})
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2))
    side = ct.RangeDim(8, 64, 16)
    save("conv_range", net, [{"x": torch.randn(1, 3, *s)} for s in ((16, 16), (8, 64), (11, 23))], {"x": (1, 3, side, side)})
    batch, length = ct.RangeDim(1, 4, 1), ct.RangeDim(1, 32, 6)
    case = lambda n, t: {"ids": torch.randint(0, 20, (n, t)), "mask": (torch.rand(n, t) > 0.2).float()}
    save("attention", Attention(), [case(2, 6), case(1, 1), case(4, 32)], {"ids": (batch, length), "mask": (batch, length)})


class Half(nn.Module):
    def forward(self, x):
        return x * 0.5


def images():
    rng = np.random.default_rng(1)
    smooth = np.linspace(0, 255, 8 * 6 * 3).reshape(8, 6, 3) + rng.uniform(-20, 20, (8, 6, 3))
    pixels = np.clip(smooth, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(OUT / "photo.png")
    Image.fromarray(pixels).save(OUT / "photo.jpg", quality=95, subsampling=0)
    gray = np.array(Image.fromarray(pixels).convert("L"))
    decoded = np.array(Image.open(OUT / "photo.jpg"))
    resized = np.array(Image.fromarray(pixels).resize((16, 16), Image.BILINEAR))
    np.savez(OUT / "photo.npz", png=pixels, gray=gray, jpg=decoded, resized=resized)

    half = torch.jit.trace(Half().eval(), (torch.rand(1, 3, 8, 6),))
    for name, layout in [("rgb", ct.colorlayout.RGB), ("bgr", ct.colorlayout.BGR), ("gray", ct.colorlayout.GRAYSCALE)]:
        shape = (1, 1 if name == "gray" else 3, 8, 6)
        given = {} if name == "gray" else {"scale": 1 / 128, "bias": [0.1, 0.2, 0.3]}
        model = ct.convert(
            half,
            inputs=[ct.ImageType("image", shape, color_layout=layout, **given)],
            outputs=[ct.ImageType("y", color_layout=layout)],
            compute_precision=FP32,
            minimum_deployment_target=ct.target.iOS17,
            skip_model_load=True,
        )
        model.save(str(OUT / f"image_{name}.mlpackage"))
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
    traced = torch.jit.trace(net.eval(), (torch.rand(1, 3, 16, 16),))
    sizes = {
        "enumerated": ct.EnumeratedShapes(shapes=[[1, 3, 16, 16], [1, 3, 8, 6]], default=[1, 3, 16, 16]),
        "range": (1, 3, ct.RangeDim(8, 64, 16), ct.RangeDim(6, 32, 16)),
    }
    for name, shape in sizes.items():
        model = ct.convert(
            traced, inputs=[ct.ImageType("image", shape)], minimum_deployment_target=ct.target.iOS17, skip_model_load=True
        )
        model.save(str(OUT / f"image_{name}.mlpackage"))


def classifiers():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3), nn.Softmax(dim=1)
    )
    case = [{"image": torch.rand(1, 3, 8, 6)}]
    for name, labels in [("words", ["cat", "dog", "tree frog"]), ("numbers", [3, 10, -5])]:
        save(f"classifier_{name}", net, case, classifier_config=ct.ClassifierConfig(labels))


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for part in (recurrent, control, lists, states, shapes, images, classifiers):
        part()


if __name__ == "__main__":
    main()
