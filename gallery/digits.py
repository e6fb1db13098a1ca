"""Trains digits.mlpackage, which names the digit in an image of 28 x 28 pixels, or measures it.

    python gallery/digits.py train      # minutes on two cores; writes the package and the images in digits/
    python gallery/digits.py measure    # the accuracy for 2000 images that it was not trained on

It needs numpy and ferrane. Ferrane computes the gradients: `grad(lift=...)` makes the weights inputs.
"""

import sys
import time

import numpy as np

import ferrane
from common import GRAY, HERE, Text, classify, conv_weights, describe_images, fit, png, strokes

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
PACKAGE = HERE / "digits.mlpackage"
BATCH, STEPS, RATE = 64, 1500, 0.006
#: Seeds of the images for training, for measuring, and in digits/.
TRAIN, HELD_OUT, SAMPLES = 1, 2, 3


def arc(x, y, rx, ry, begin, end, points=9):
    """Points on an ellipse; angles in degrees, 0 to the right, 90 downward."""
    angle = np.radians(np.linspace(begin, end, points))
    return list(zip(x + rx * np.cos(angle), y + ry * np.sin(angle)))


#: The forms of each digit. A form has lines through points in a box from -1 to 1, whose y axis points downward.
FONT = [
    [[arc(0, 0, 0.6, 1, 0, 360, 17)]],
    [
        [[(0, -1), (0, 1)]],
        [[(-0.4, -0.5), (0, -1), (0, 1)]],
        [[(-0.4, -0.5), (0, -1), (0, 1)], [(-0.4, 1), (0.4, 1)]],
    ],
    [[arc(0, -0.45, 0.55, 0.55, -170, 30) + [(-0.6, 1), (0.6, 1)]]],
    [[arc(0, -0.5, 0.5, 0.5, -150, 90) + arc(0, 0.45, 0.6, 0.55, -90, 150)]],
    [
        [[(0.2, -1), (-0.6, 0.3), (0.6, 0.3)], [(0.25, -0.2), (0.25, 1)]],
        [[(0.3, 1), (0.3, -1), (-0.6, 0.3), (0.7, 0.3)]],
    ],
    [[[(0.5, -1), (-0.45, -1), (-0.5, -0.15)] + arc(-0.05, 0.4, 0.6, 0.6, -120, 140)]],
    [[arc(0.5, 0.2, 1.05, 1.2, -100, -170) + arc(0, 0.45, 0.55, 0.55, -180, 180, 13)]],
    [[[(-0.6, -1), (0.6, -1), (-0.1, 1)]], [[(-0.6, -1), (0.6, -1), (-0.1, 1)], [(-0.3, 0), (0.5, 0)]]],
    [[arc(0, -0.5, 0.45, 0.5, 90, 450, 13), arc(0, 0.5, 0.58, 0.5, -90, 270, 13)]],
    [
        [arc(0, -0.4, 0.5, 0.55, 0, 360, 13) + [(0.35, 1)]],
        [arc(0, -0.4, 0.5, 0.55, 0, 360, 13) + arc(-0.3, 0.1, 0.8, 0.9, 0, 90, 5)],
    ],
]
#: The same as arrays [segments, 2, 2].
FORMS = [[np.array([ends for line in form for ends in zip(line, line[1:])]) for form in forms] for forms in FONT]


def images(random, count):
    """Images [N, 1, 28, 28] from 0 to 255 of random digits, and the digits."""
    labels = random.integers(0, 10, count)
    most = max(len(form) for forms in FORMS for form in forms)
    segments = np.full((count, most, 2, 2), np.nan, np.float32)
    for i, label in enumerate(labels):
        form = FORMS[label][random.integers(len(FORMS[label]))]
        turn, slant = np.radians(random.normal(0, 9)), random.normal(0, 0.18)
        size = random.uniform(6, 10.5) * np.array([random.uniform(0.65, 1.15), 1])
        matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ [[1, slant], [0, 1]] * size
        # A smooth bend of the whole figure, so that two of the same digit differ in form.
        bent = form + np.sin(2 * form[..., ::-1] + random.uniform(0, 6, 2)) @ random.normal(0, 0.08, (2, 2))
        segments[i, : len(form)] = bent @ matrix.T + 14 + random.uniform(-2.5, 2.5, 2)
    ink = strokes(segments, random.uniform(1.2, 3.6, count), 28)
    paper, strength = random.uniform(0, 0.25, (count, 1, 1)), random.uniform(0.45, 0.75, (count, 1, 1))
    noise = random.normal(0, 1, ink.shape) * random.uniform(0, 0.15, (count, 1, 1))
    return np.rint(255 * np.clip(paper + strength * ink + noise, 0, 1)).astype(np.float32)[:, None], labels


def network(weights, batch, dtype):
    """Four convolutions, the mean over the image, and a layer over it. The scores of the digits are `scores`."""
    text = Text(dtype)
    kind = text.const("kind", "string", f'"{dtype}"')
    # The image is fp32, as Core ML passes it.
    value, shape = text.op("pixels", "cast", (batch, 1, 28, 28), x="image", dtype=kind)
    x = text.op("scaled", "mul", shape, x=value, y=text.const("scale", dtype, 1 / 256))
    for layer, stride in ("conv0", 1), ("conv1", 2), ("conv2", 2), ("conv3", 1):
        value, shape = text.conv(layer, x, weights[f"{layer}_weight"], weights[f"{layer}_bias"], stride)
        x = text.op(layer + "_relu", "relu", shape, x=value)
    axes, keep = text.const("axes", "tensor<int32, [2]>", [2, 3]), text.const("keep", "bool", "true")
    x = text.op("mean", "reduce_mean", (*x[1][:2], 1, 1), x=x[0], axes=axes, keep_dims=keep)
    value, _ = text.conv("classes", x, weights["classes_weight"], weights["classes_bias"])
    text.op("scores", "reshape", (batch, 10), x=value, shape=text.const("shape", "tensor<int32, [2]>", [batch, 10]))
    return text


def trainer(weights):
    """The loss of a batch in fp32."""
    text = network(weights, BATCH, "fp32")
    text.cross_entropy(("scores", (BATCH, 10)), "target")
    image, target = f"tensor<fp32, [{BATCH}, 1, 28, 28]> image", f"tensor<fp32, [{BATCH}, 10]> target"
    return text.program(f"{image}, {target}", "loss")


def namer(weights):
    """The program for one image in fp16, which returns the probabilities in fp32."""
    text = network(weights, 1, "fp16")
    text.op("shares", "softmax", (1, 10), x="scores", axis=text.const("axis", "int32", 1))
    text.op("probabilities", "cast", (1, 10), "fp32", x="shares", dtype=text.const("wide", "string", '"fp32"'))
    return text.program("tensor<fp32, [1, 1, 28, 28]> image", "probabilities")


def train():
    random = np.random.default_rng(TRAIN)
    layers = [("conv0", 12, 1, 5, 5), ("conv1", 24, 12, 3, 3), ("conv2", 32, 24, 3, 3), ("conv3", 48, 32, 3, 3)]
    weights = conv_weights(random, [*layers, ("classes", 10, 48, 1, 1)])
    # The weights become inputs, so the program is compiled once. It returns the loss and its
    # gradients by the weights; by the image there is none, because `inputs` does not name it.
    program = ferrane.load(trainer(weights)).grad(inputs=[], lift=list(weights), keep_outputs=True)

    def batch():
        image, labels = images(random, BATCH)
        return {"image": image, "target": np.eye(10)[labels]}

    fit(program, weights, batch, STEPS, RATE)
    ferrane.load(namer(weights)).save(PACKAGE, overwrite=True)
    classify(PACKAGE, "probabilities", WORDS, "digit")
    describe_images(PACKAGE, {"image": (28, 28, GRAY)})
    samples()


def samples():
    """Writes an image of each digit."""
    image, labels = images(np.random.default_rng(SAMPLES), 200)
    (HERE / "digits").mkdir(exist_ok=True)
    for digit, word in enumerate(WORDS):
        first = int(np.argmax(labels == digit))
        (HERE / f"digits/{word}.png").write_bytes(png(image[first, 0]))


def accuracy(count=2000):
    """The share of images that were not trained on whose digit has the largest probability."""
    image, labels = images(np.random.default_rng(HELD_OUT), count)
    run = ferrane.Device("emulator").load(ferrane.load(PACKAGE))
    found = [run(image=one[None])["digit_probs"].argmax() for one in image]
    return np.mean(found == labels)


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    print(f"accuracy {accuracy():.4f} over 2000 images")
