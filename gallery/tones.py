"""Trains tones.onnx, which names what is heard in a quarter of a second of sound, or measures it.

    python gallery/tones.py train      # minutes on two cores; writes the model and the signals in tones/
    python gallery/tones.py measure    # the accuracy for 2000 signals that it was not trained on

It needs numpy and ferrane. Ferrane computes the gradients: it opens an ONNX model with the loss, and `grad(lift=...)`
makes the model's initializers inputs.
"""

import sys

import numpy as np

import ferrane
from common import HERE, conv_weights, field, fit

SOUNDS = ["noise", "tone", "chord", "rising", "falling", "warble", "beeps", "clicks"]
MODEL = HERE / "tones.onnx"
BATCH, STEPS, RATE = 32, 2500, 0.004
#: Samples a second, and samples in a signal.
SAMPLING, LENGTH = 8000, 2048
#: Seeds of the signals for training, for measuring, and in tones/.
TRAIN, HELD_OUT, SAMPLES = 1, 2, 3
#: Name, outputs, inputs, height and width of the kernel; the stride along the width.
LAYERS = [
    (("conv0", 16, 1, 1, 7), 4),
    (("conv1", 24, 16, 1, 7), 4),
    (("conv2", 32, 24, 1, 5), 2),
    (("conv3", 32, 32, 1, 5), 2),
    (("conv4", 48, 32, 1, 5), 2),
    (("conv5", 48, 48, 1, 5), 2),
    (("sounds", len(SOUNDS), 48, 1, 1), 1),
]


def signals(random, count):
    """Signals [N, 1, 1, 2048] of random sounds, and the sounds as indices of `SOUNDS`."""
    labels = random.integers(0, len(SOUNDS), count)
    column = lambda low, high: random.uniform(low, high, (count, 1))  # noqa: E731
    is_a = lambda sound: (labels == SOUNDS.index(sound))[:, None]  # noqa: E731
    t = np.arange(LENGTH) / SAMPLING
    share = t / t[-1]
    # The frequency over time: one octave up or down at most, or around a middle.
    low, ratio, rate, depth = column(300, 1500), column(1.4, 2), column(12, 25), column(0.05, 0.15)
    bend = np.where(is_a("rising"), ratio**share, np.where(is_a("falling"), ratio ** (1 - share), 1))
    bend = bend * np.where(is_a("warble"), 1 + depth * np.sin(2 * np.pi * (rate * t + column(0, 1))), 1)
    phase = 2 * np.pi * (np.cumsum(low * bend, axis=1) / SAMPLING + column(0, 1))
    sound = np.sin(phase) + column(0, 0.4) * np.sin(2 * phase + column(0, 6)) + column(0, 0.2) * np.sin(3 * phase)
    sound += is_a("chord") * np.sin(column(1.2, 1.8) * phase + column(0, 6))
    # Beeps have a tone half of the time; clicks are bursts that die away within milliseconds.
    beat = (t / column(0.03, 0.08) + column(0, 1)) % 1
    sound = np.where(is_a("beeps"), sound * (beat < 0.5), sound)
    burst = random.normal(0, 1, (count, LENGTH)) * np.exp(-((t + column(0, 0.1)) % column(0.015, 0.05)) / 0.002)
    sound = np.where(is_a("clicks"), 2 * burst, np.where(is_a("noise"), 0, sound))
    noise = random.normal(0, 1, (count, LENGTH)) * column(0.05, 0.5)
    loud = column(0.1, 0.6)
    return (loud * (sound + np.where(is_a("noise"), 4, 1) * noise)).astype(np.float32)[:, None, None], labels


# ONNX: the numbers of the fields are those of onnx.proto.

FLOAT, INT64, FLOAT16 = 1, 7, 10


def node(op, inputs, output, **ints):
    """`NodeProto`; an attribute is an integer or a list of them."""
    message = b"".join(field(1, name) for name in inputs) + field(2, output) + field(3, output) + field(4, op)
    for name, value in ints.items():
        one = isinstance(value, int)
        numbers = field(3, value) if one else b"".join(field(8, v) for v in value)
        message += field(5, field(1, name) + numbers + field(20, 2 if one else 7))
    return field(1, message)


def tensor(name, array):
    """`TensorProto` of fp32 or fp16."""
    dims = b"".join(field(1, extent) for extent in array.shape)
    kind = FLOAT16 if array.dtype == np.float16 else FLOAT
    return field(5, dims + field(2, kind) + field(8, name) + field(9, array.tobytes()))


def port(number, name, kind, shape):
    """`ValueInfoProto` of an input (11) or an output (12)."""
    dims = b"".join(field(1, field(1, extent)) for extent in shape)
    return field(number, field(1, name) + field(2, field(1, field(1, kind) + field(2, dims))))


def model(weights, batch, kind, loss=False):
    """The bytes of the model: it returns the probability of each sound, or with `loss` the loss of a batch."""
    graph, value = field(2, "tones"), "signal"
    for (layer, *_, width), stride in LAYERS:
        pad = width // 2
        inputs = [value, f"{layer}_weight", f"{layer}_bias"]
        graph += node("Conv", inputs, layer, kernel_shape=[1, width], strides=[1, stride], pads=[0, pad, 0, pad])
        value = layer
        if layer != "sounds":
            value = f"{layer}_relu"
            graph += node("Relu", [layer], value)
        if layer == LAYERS[-2][0][0]:
            graph += node("GlobalAveragePool", [value], "mean")
            value = "mean"
    graph += node("Flatten", [value], "scores", axis=1)
    graph += b"".join(tensor(name, array) for name, array in weights.items())
    graph += port(11, "signal", kind, [batch, 1, 1, LENGTH])
    if loss:
        graph += node("SoftmaxCrossEntropyLoss", ["scores", "sound"], "loss")
        graph += port(11, "sound", INT64, [batch]) + port(12, "loss", kind, [])
    else:
        graph += node("Softmax", ["scores"], "probabilities", axis=1)
        graph += port(12, "probabilities", kind, [batch, len(SOUNDS)])
    return field(1, 8) + field(2, "ferrane gallery") + field(7, graph) + field(8, field(2, 17))


def train():
    random = np.random.default_rng(TRAIN)
    weights = conv_weights(random, [sizes for sizes, _ in LAYERS])
    program = ferrane.load(model(weights, BATCH, FLOAT, loss=True))
    program = program.grad(inputs=[], lift=list(weights), keep_outputs=True)
    fit(program, weights, lambda: dict(zip(("signal", "sound"), signals(random, BATCH))), STEPS, RATE)
    MODEL.write_bytes(model({name: w.astype(np.float16) for name, w in weights.items()}, 1, FLOAT16))
    samples()


def samples():
    """Writes a signal of each sound."""
    signal, labels = signals(np.random.default_rng(SAMPLES), 100)
    (HERE / "tones").mkdir(exist_ok=True)
    for index, sound in enumerate(SOUNDS):
        first = int(np.argmax(labels == index))
        np.save(HERE / f"tones/{sound}.npy", signal[first : first + 1].astype(np.float16))


def accuracy(count=2000):
    """The share of signals that were not trained on whose sound has the largest probability."""
    signal, labels = signals(np.random.default_rng(HELD_OUT), count)
    run = ferrane.Device("emulator").load(ferrane.load(MODEL))
    found = [run(signal=one[None])["probabilities"].argmax() for one in signal]
    return np.mean(found == labels)


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    print(f"accuracy {accuracy():.4f} over 2000 signals")
