#!/usr/bin/env python3
"""Reads a folder that `ferrane quantize` wrote with MLX, and compares what MLX makes of it.

    python scripts/llm/quantized_mlx.py FOLDER

Every matrix with scales is dequantized by mlx.core.dequantize with the bits and the group that
config.json states for it, and by the formula of docs/quantization.md. Needs mlx, which runs on Linux
as mlx[cpu], and numpy.
"""

import json
import pathlib
import sys

import mlx.core as mx
import numpy as np


def formula(words, scales, biases, bits, group):
    rows, width = words.shape
    stream = np.unpackbits(words.view(np.uint8).reshape(rows, -1), axis=1, bitorder="little")
    codes = stream.reshape(rows, -1, bits).astype(np.float32) @ (2.0 ** np.arange(bits, dtype=np.float32))
    each = lambda numbers: np.repeat(numbers.astype(np.float32), group, axis=1)
    return each(scales) * codes + each(biases)


def main(folder):
    folder = pathlib.Path(folder)
    stated = json.loads((folder / "config.json").read_text()).get("quantization", {})
    tensors = mx.load(str(folder / "model.safetensors"))
    names = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
    assert names, "no matrix has scales"
    worst = 0.0
    for name in names:
        own = stated.get(name, stated)
        words, scales, biases = (tensors[f"{name}.{part}"] for part in ["weight", "scales", "biases"])
        wide = [array.astype(mx.float32) for array in (scales, biases)]
        found = np.array(mx.dequantize(words, *wide, group_size=own["group_size"], bits=own["bits"]))
        expected = formula(np.array(words), np.array(scales), np.array(biases), own["bits"], own["group_size"])
        assert found.shape == expected.shape, name
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    print(f"{len(names)} matrices, largest difference {worst:.1e} of the largest weight")
    assert worst < 1e-6


main(sys.argv[1])
