#!/usr/bin/env python3
"""Ferrane and MLX read each other's quantized models.

    python scripts/llm/quantized_mlx.py FOLDER
    python scripts/llm/quantized_mlx.py FOLDER --ferrane target/release/ferrane --ids ids.u16

FOLDER is what `ferrane quantize` wrote. Every matrix with scales is dequantized by
mlx.core.dequantize with the bits and the group that config.json states for it, and by the formula
of docs/quantization.md.

With --ferrane and --ids (token ids of 16 bits), mlx-lm also runs the model on windows of 256 ids, and
its mean loss is compared with that of `ferrane eval --device reference`. Then mlx-lm quantizes the
same weights itself, with all bits that it has and groups of 32 and 64, and `ferrane eval` opens what
it saved.

Needs mlx, which runs on Linux as mlx[cpu], numpy, and mlx-lm for the second form (made with mlx
0.32.4 and mlx-lm 0.32.2).
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

import mlx.core as mx
import numpy as np

SEQ, WINDOWS = 256, 16
# Losses near 1.4 are means over 4096 tokens. MLX computes in fp16 what the reference computes in
# fp32, and a model of 2 bits, whose loss is near that of a guess, is the most sensitive.
TOLERANCE = 1e-3


def formula(words, scales, biases, bits, group):
    rows, width = words.shape
    stream = np.unpackbits(words.view(np.uint8).reshape(rows, -1), axis=1, bitorder="little")
    codes = stream.reshape(rows, -1, bits).astype(np.float32) @ (2.0 ** np.arange(bits, dtype=np.float32))
    each = lambda numbers: np.repeat(numbers.astype(np.float32), group, axis=1)
    return each(scales) * codes + each(biases)


def compare_matrices(folder):
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


def mlx_loss(model, ids):
    losses = []
    for first in range(0, WINDOWS * SEQ, SEQ):
        window = mx.array(ids[first : first + SEQ + 1].astype(np.int32))
        logits = model(window[None, :SEQ])[0].astype(mx.float32)
        logits -= mx.logsumexp(logits, axis=-1, keepdims=True)
        losses.append(-mx.take_along_axis(logits, window[1:, None], axis=1).mean().item())
    return float(np.mean(losses))


def ferrane_loss(program, folder, ids):
    words = ["eval", "--checkpoint", folder, "--data", ids, "--seq", SEQ, "--windows", 0, "--device", "reference", "--json"]
    answer = subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)["loss"]


def report(name, theirs, ours):
    print(f"{name:24} mlx-lm {theirs:.4f}  ferrane {ours:.4f}")
    assert abs(theirs - ours) <= TOLERANCE * theirs, name


def compare_losses(folder, program, ids):
    from mlx_lm.utils import dequantize_model, load_model, quantize_model, save_config, save_model

    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        ids = np.fromfile(ids, dtype=np.uint16)[: WINDOWS * SEQ + 1]
        assert len(ids) == WINDOWS * SEQ + 1, "too few ids"
        data = scratch / "ids.u16"
        ids.tofile(data)
        model, _ = load_model(folder)
        report(folder.name, mlx_loss(model, ids), ferrane_loss(program, folder, data))
        for bits in [2, 3, 4, 5, 6, 8]:
            for group in [32, 64]:
                model, config = load_model(folder)
                model = dequantize_model(model)
                for key in ["quantization", "quantization_config"]:
                    config.pop(key, None)
                model, config = quantize_model(model, config, group_size=group, bits=bits)
                saved = scratch / f"{bits}-{group}"
                saved.mkdir()
                save_model(saved, model)
                save_config(config, saved / "config.json")
                for tokenizer in folder.glob("tokenizer*"):
                    shutil.copy(tokenizer, saved)
                report(f"{bits} bits, group {group}", mlx_loss(model, ids), ferrane_loss(program, saved, data))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ferrane", help="the command")
    parser.add_argument("--ids", help="token ids of 16 bits")
    a = parser.parse_args()
    compare_matrices(a.folder)
    if a.ferrane and a.ids:
        compare_losses(a.folder, a.ferrane, a.ids)


main()
