"""Trains upscale.mlpackage, which doubles the size of a drawing, or measures it.

    python gallery/upscale.py train      # minutes on two cores; writes the package and the images in upscale/
    python gallery/upscale.py measure    # the PSNR for 50 drawings that it was not trained on

It needs numpy and ferrane. Ferrane computes the gradients: `grad(lift=...)` makes the weights inputs.
"""

import sys

import numpy as np

import ferrane
from common import GRAY_FP16, HERE, Text, conv_weights, describe_images, fit, png, strokes
from digits import FORMS

PACKAGE = HERE / "upscale.mlpackage"
#: Pixels of a small image in training, and in the package.
PATCH, SIZE = 24, 64
BATCH, STEPS, RATE = 16, 1500, 0.003
#: Seeds of the drawings for training, for measuring, and in upscale/.
TRAIN, HELD_OUT, SAMPLES = 1, 2, 3


def outline(random):
    """The lines [S, 2, 2] of a figure: a path, a polygon, an ellipse or a digit, from 5 to 16 pixels around 0."""
    kind = random.integers(4)
    if kind == 3:
        forms = FORMS[random.integers(10)]
        lines = forms[random.integers(len(forms))]
    else:
        corners = random.integers(2, 5) if kind == 0 else random.integers(4, 8) if kind == 1 else 17
        angles = np.linspace(0, 2 * np.pi, corners) + (random.uniform(0, 6) if kind == 1 else 0)
        path = np.stack([np.cos(angles), random.uniform(0.4, 1) * np.sin(angles)], axis=1)
        path = random.uniform(-1, 1, (corners, 2)) if kind == 0 else path
        lines = np.stack([path[:-1], path[1:]], axis=1)
    return lines * random.uniform(5, 16)


def drawings(random, count, size):
    """Drawings [N, 1, size, size] from 0 to 255: figures in several widths and grays on paper of one gray."""
    # A figure fits into a box that reaches so far to each side of its middle.
    reach = 28
    paper = np.ones((count, size + 2 * reach, size + 2 * reach), np.float32) * random.uniform(0.6, 1, (count, 1, 1))
    for _ in range(size * size // 500):
        middle = random.uniform(0, size, (count, 2))
        segments = np.full((count, 40, 2, 2), np.nan, np.float32)
        for i in range(count):
            lines = outline(random)
            segments[i, : len(lines)] = lines + middle[i] % 1 + reach
        ink = strokes(segments, random.uniform(0.7, 3.5, count), 2 * reach)
        # A third of the figures is lighter than the others.
        gray = random.uniform(0, 0.5, count) + 0.5 * (random.random(count) < 0.3)
        for i, (x, y) in enumerate(middle.astype(int)):
            box = paper[i, y : y + 2 * reach, x : x + 2 * reach]
            box += ink[i] * (gray[i] - box)
    return np.rint(255 * paper[:, None, reach:-reach, reach:-reach])


def halved(image):
    """Images of half the size: the mean of each four pixels, rounded."""
    n, c, h, w = image.shape
    return np.rint(image.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5)))


def nearest(image):
    """Images of twice the size, by repeating pixels."""
    return image.repeat(2, axis=2).repeat(2, axis=3)


def bilinear(image):
    """Images of twice the size, by bilinear interpolation between the centers of pixels."""
    for axis in 2, 3:
        before = np.concatenate([image.take([0], axis), image.take(range(image.shape[axis] - 1), axis)], axis)
        after = np.concatenate([image.take(range(1, image.shape[axis]), axis), image.take([-1], axis)], axis)
        pair = np.stack([0.75 * image + 0.25 * before, 0.75 * image + 0.25 * after], axis + 1)
        image = pair.reshape(*image.shape[:axis], -1, *image.shape[axis + 1 :])
    return image


def psnr(found, wanted):
    """The mean over images of the ratio of peak and noise, in dB."""
    error = np.mean((np.clip(np.rint(found.astype(np.float64)), 0, 255) - wanted) ** 2, axis=(1, 2, 3))
    return np.mean(10 * np.log10(255**2 / error))


LAYERS = [("conv0", 24, 1, 5, 5), ("conv1", 24, 24, 3, 3), ("conv2", 24, 24, 3, 3), ("conv3", 4, 24, 3, 3)]


def network(weights, batch, size, dtype):
    """Four convolutions compute the change of each of a pixel's four parts, and `pixel_shuffle` puts these in place."""
    text = Text(dtype)
    small = text.op("small", "mul", (batch, 1, size, size), x="image", y=text.const("down", dtype, 1 / 256))
    x = small
    for layer, outputs, *_ in LAYERS:
        value, shape = text.conv(layer, x, weights[f"{layer}_weight"], weights[f"{layer}_bias"])
        x = (value, shape) if layer == "conv3" else text.op(layer + "_relu", "relu", shape, x=value)
    parts, shape = text.op("parts", "add", x[1], x=x[0], y=small[0])
    large = (batch, 1, 2 * size, 2 * size)
    text.op("shuffled", "pixel_shuffle", large, x=parts, upscale_factor=text.const("factor", "int32", 2))
    return text, large


def trainer(weights):
    """The mean squared error of a batch in fp32, where 1 is white."""
    text, shape = network(weights, BATCH, PATCH, "fp32")
    text.op("wanted", "mul", shape, x="target", y="down")
    text.op("error", "sub", shape, x="shuffled", y="wanted")
    text.op("squares", "mul", shape, x="error", y="error")
    axes, keep = text.const("axes", "tensor<int32, [4]>", [0, 1, 2, 3]), text.const("keep", "bool", "true")
    text.op("loss", "reduce_mean", (1, 1, 1, 1), x="squares", axes=axes, keep_dims=keep)
    image = f"tensor<fp32, [{BATCH}, 1, {PATCH}, {PATCH}]> image"
    return text.program(f"{image}, tensor<fp32, {list(shape)}> target", "loss")


def upscaler(weights):
    """The program for one image in fp16."""
    text, shape = network(weights, 1, SIZE, "fp16")
    text.op("large", "mul", shape, x="shuffled", y=text.const("up", "fp16", 256))
    return text.program(f"tensor<fp16, [1, 1, {SIZE}, {SIZE}]> image", "large")


def train():
    random = np.random.default_rng(TRAIN)
    weights = conv_weights(random, LAYERS)
    weights["conv3_weight"] *= 0.1
    program = ferrane.load(trainer(weights)).grad(inputs=[], lift=list(weights), keep_outputs=True)
    pool = drawings(random, 200, 128)

    def batch():
        target = np.empty((BATCH, 1, 2 * PATCH, 2 * PATCH), np.float32)
        for i in range(BATCH):
            y, x = 2 * random.integers(0, 64 - PATCH + 1, 2)
            part = pool[random.integers(len(pool)), 0, y : y + 2 * PATCH, x : x + 2 * PATCH]
            target[i, 0] = np.rot90(part, random.integers(4))
        return {"image": halved(target), "target": target}

    fit(program, weights, batch, STEPS, RATE)
    ferrane.load(upscaler(weights)).save(PACKAGE, overwrite=True)
    describe_images(PACKAGE, {"image": (SIZE, SIZE, GRAY_FP16), "large": (2 * SIZE, 2 * SIZE, GRAY_FP16)})
    samples()


def samples():
    """Writes a small drawing, and the drawing that it was made of."""
    large = drawings(np.random.default_rng(SAMPLES), 1, 2 * SIZE)
    (HERE / "upscale").mkdir(exist_ok=True)
    (HERE / "upscale/large.png").write_bytes(png(large[0, 0]))
    (HERE / "upscale/small.png").write_bytes(png(halved(large)[0, 0]))


def quality(count=50):
    """The PSNR of the network, of bilinear interpolation and of repeated pixels, for drawings that are new to it."""
    large = drawings(np.random.default_rng(HELD_OUT), count, 2 * SIZE)
    small = halved(large)
    run = ferrane.Device("emulator").load(ferrane.load(PACKAGE))
    found = np.concatenate([run(image=one[None])["large"] for one in small])
    return psnr(found, large), psnr(bilinear(small), large), psnr(nearest(small), large)


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    print("PSNR %.2f dB; bilinear interpolation %.2f dB, repeated pixels %.2f dB, over 50 drawings" % quality())
