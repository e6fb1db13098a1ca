"""What the scripts of the gallery share: strokes, PNG files, MIL text, Adam, and two messages of Core ML and ONNX."""

import struct
import zlib
from pathlib import Path

import numpy as np

import ferrane

HERE = Path(__file__).resolve().parent


# Drawing


def strokes(segments, width, size):
    """Anti-aliased lines as images [N, size, size] from 0 to 1.

    `segments` is [N, S, 2, 2], the two ends of each line as x and y in pixels; an image with fewer lines has NaN after
    its last one. `width` is [N], in pixels.
    """
    width = np.asarray(width, np.float32)[:, None, None]
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) + np.float32(0.5)
    image = np.zeros((len(segments), size, size), np.float32)
    for s in range(segments.shape[1]):
        drawn = ~np.isnan(segments[:, s, 0, 0])
        if not drawn.any():
            break
        (ax, ay), (bx, by) = segments[drawn, s].astype(np.float32).transpose(1, 2, 0)[:, :, :, None, None]
        dx, dy = bx - ax, by - ay
        along = np.clip(((x - ax) * dx + (y - ay) * dy) / np.maximum(dx * dx + dy * dy, 1e-6), 0, 1)
        distance = np.sqrt((x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2)
        ink = np.clip(width[drawn] / 2 + 0.5 - distance, 0, 1)
        image[drawn] = np.maximum(image[drawn], ink)
    return image


def png(pixels):
    """The bytes of a gray PNG file with these pixels from 0 to 255."""
    pixels = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


# Training


class Adam:
    """Adam (Kingma and Ba, 2015) over a dictionary of arrays, which it changes."""

    def __init__(self, weights):
        self.weights, self.step = weights, 0
        self.mean = {name: np.zeros_like(w) for name, w in weights.items()}
        self.square = {name: np.zeros_like(w) for name, w in weights.items()}

    def update(self, gradients, rate):
        self.step += 1
        for name, w in self.weights.items():
            g, m, v = gradients["d_" + name], self.mean[name], self.square[name]
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= rate * (m / (1 - 0.9**self.step)) / (np.sqrt(v / (1 - 0.999**self.step)) + 1e-8)


def fit(program, weights, batches, steps, rate):
    """Changes the weights so that `loss` becomes small.

    `program` returns the loss and its gradients, and takes the weights, an array for each input from `batches`, and
    `d_loss`. The learning rate rises over 5 % of the steps and then follows a cosine to 0.
    """
    executable = ferrane.Device("emulator?numerics=exact").load(program)
    one = np.ones(program.inputs[-1].shape)
    adam, mean = Adam(weights), None
    for step in range(1, steps + 1):
        returned = executable({**batches(), **weights, "d_loss": one})
        adam.update(returned, rate * min(1, step / (0.05 * steps)) * (1 + np.cos(np.pi * step / steps)) / 2)
        loss = float(returned["loss"].item())
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        if step % 100 == 0:
            print(f"step {step} of {steps}: loss {mean:.4g}", flush=True)


# MIL text


def literal(array):
    """The numbers of an array as MIL writes them, nested like its shape."""
    if array.ndim == 0:
        return f"{float(array):.9g}"
    return "[" + ", ".join(literal(part) for part in array) + "]"


class Text:
    """The text of a function with one input, line by line. `dtype` is that of its weights and activations."""

    def __init__(self, dtype):
        self.dtype, self.lines, self.known = dtype, [], set()

    def const(self, name, kind, value):
        if name not in self.known:
            self.known.add(name)
            self.lines.append(f'{kind} {name} = const()[name = string("{name}"), val = {kind}({value})];')
        return name

    def weight(self, name, array):
        kind = f"tensor<{self.dtype}, {list(array.shape)}>"
        return self.const(name, kind, literal(array))

    def op(self, name, op, shape, kind=None, /, **args):
        """Adds an op whose result has this name, shape and, if it is another one, element type."""
        listed = ", ".join(f"{key} = {value}" for key, value in args.items())
        self.lines.append(f'tensor<{kind or self.dtype}, {list(shape)}> {name} = {op}({listed})[name = string("{name}")];')
        return name, tuple(shape)

    def conv(self, name, x, weight, bias, stride=1):
        """A convolution with a square kernel and as much padding as keeps the size, divided by the stride."""
        value, (n, _, h, w) = x
        pad = weight.shape[2] // 2
        return self.op(
            name,
            "conv",
            (n, len(weight), -(-h // stride), -(-w // stride)),
            x=value,
            weight=self.weight(f"{name}_weight", weight),
            bias=self.weight(f"{name}_bias", bias),
            pad_type=self.const("custom", "string", '"custom"'),
            pad=self.const(f"pad{pad}", "tensor<int32, [4]>", [pad] * 4),
            strides=self.const(f"stride{stride}", "tensor<int32, [2]>", [stride] * 2),
            dilations=self.const("stride1", "tensor<int32, [2]>", [1, 1]),
            groups=self.const("groups", "int32", 1),
        )

    def cross_entropy(self, scores, target):
        """The mean loss `loss` of scores [N, C] for the input `target`, which is 1 at the class and 0 elsewhere."""
        value, (n, classes) = scores
        axes, keep = self.const("classes_axis", "tensor<int32, [1]>", [1]), self.const("flat", "bool", "false")
        self.op("partition", "reduce_log_sum_exp", (n,), x=value, axes=axes, keep_dims=keep)
        self.op("chosen", "mul", (n, classes), x=value, y=target)
        self.op("score", "reduce_sum", (n,), x="chosen", axes=axes, keep_dims=keep)
        self.op("losses", "sub", (n,), x="partition", y="score")
        batch = self.const("batch_axis", "tensor<int32, [1]>", [0])
        return self.op("loss", "reduce_mean", (1,), x="losses", axes=batch, keep_dims=self.const("kept", "bool", "true"))

    def program(self, inputs, outputs):
        """The whole program: `inputs` are declarations, `outputs` are names."""
        body = "\n".join("        " + line for line in self.lines)
        text = f"program(1.3)\n{{\n    func main<ios17>({inputs}) {{\n{body}\n    }} -> ({outputs});\n}}\n"
        return text.encode()


def conv_weights(random, sizes):
    """He-initialized weights: `sizes` has (name, outputs, inputs, height, width)."""
    weights = {}
    for name, out, into, h, w in sizes:
        deviation = np.sqrt(2 / (into * h * w))
        weights[f"{name}_weight"] = random.normal(0, deviation, (out, into, h, w)).astype(np.float32)
        weights[f"{name}_bias"] = np.zeros(out, np.float32)
    return weights


# Protocol buffers: ONNX models, and the description of a Core ML package


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field of a message: an integer, a text, or bytes (also those of an inner message)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else bytes(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """The fields of a message with their numbers, and where the bytes of each begin and end."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        start, key = at, number()
        if key & 7 == 0:
            value = number()
        elif key & 7 == 2:
            size = number()
            value, at = message[at : at + size], at + size
        else:
            raise ValueError(f"wire type {key & 7} is not part of a model description")
        yield key >> 3, value, message[start:at]


def edited(message, path, change):
    """A message with the fields at a path of numbers changed."""
    if not path:
        return change(message)
    return b"".join(field(n, edited(v, path[1:], change)) if n == path[0] else raw for n, v, raw in fields(message))


def map_entry(key, value):
    return field(1, key) + field(2, value)


def edit_package(package, path, change):
    file = Path(package, "Data/com.apple.CoreML/model.mlmodel")
    file.write_bytes(edited(file.read_bytes(), path, change))


#: Color spaces of `ImageFeatureType` in Core ML's `FeatureTypes.proto`.
GRAY, GRAY_FP16 = 10, 40


def describe_images(package, images):
    """Makes ports of a package images: `images` has the width, the height and the color space of each by its name.

    Field 2 of Core ML's `Model` is the description. Its inputs are field 1, its outputs field 10; each has a name
    (field 1) and a type (field 3), in which field 4 is an image.
    """

    def port(value):
        name = next(v for n, v, _ in fields(value) if n == 1).decode()
        if name not in images:
            return value
        width, height, color = images[name]
        image = field(1, width) + field(2, height) + field(3, color)
        return field(1, name) + field(3, field(4, image))

    for ports in 1, 10:
        edit_package(package, [2, ports], port)


#: Types of tensors in Core ML's `MIL.proto`.
STRING, FLOAT64 = 2, 12


def classify(package, probabilities, labels, chosen):
    """Makes a package whose output is `probabilities` a classifier, as coremltools' `ClassifierConfig` does.

    The function then ends in the op `classify`. Its outputs are `chosen`, the label of the largest probability, and
    `chosen_probs`, a dictionary.
    """

    def scalar(kind):
        return field(1, field(1, kind))

    def text(value):
        return field(2, scalar(STRING)) + field(3, field(1, field(4, field(1, value))))

    listed = field(2, field(1, scalar(STRING)) + field(2, field(1, field(1, len(labels)))))
    classes = field(2, listed) + field(3, field(3, b"".join(field(1, text(label)) for label in labels)))
    outputs = [chosen, chosen + "_probs"]
    op = field(1, "classify")
    op += field(2, map_entry("probabilities", field(1, field(1, probabilities))))
    op += field(2, map_entry("classes", field(1, field(2, classes))))
    op += field(3, field(1, outputs[0]) + field(2, scalar(STRING)))
    op += field(3, field(1, outputs[1]) + field(2, field(4, field(1, scalar(STRING)) + field(2, scalar(FLOAT64)))))
    op += field(5, map_entry("name", text("classify")))

    def block(message):
        kept = b"".join(raw for n, _, raw in fields(message) if n != 2)
        return kept + field(3, op) + b"".join(field(2, output) for output in outputs)

    def description(message):
        kept = b"".join(raw for n, _, raw in fields(message) if n != 10)
        text_type, dictionary = field(3, b""), field(6, field(2, b""))
        ports = zip(outputs, (text_type, dictionary))
        kept += b"".join(field(10, field(1, name) + field(3, kind)) for name, kind in ports)
        return kept + field(11, outputs[0]) + field(12, outputs[1])

    # The program, its function, the block of that.
    edit_package(package, [502, 2, 2, 3, 2], block)
    edit_package(package, [2], description)
