#!/usr/bin/env python3
"""The table of docs/quantization.md: perplexity of a llama2.c checkpoint in every form.

    python scripts/llm/perplexity.py target/release/ferrane stories260K.bin tok512.bin text.txt

The first half of the text is for calibration, the second one is scored. Rows named as types of GGUF
are rounded by the Python package `gguf`, with the embedding in Q8_0 and matrices whose rows are no
whole blocks in fp16, as in the other rows; `ferrane eval` scores them. Needs gguf and numpy (made
with gguf 0.19). `--windows N` and `--seq N` are those of `ferrane eval`.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FORMS = ["int8", "int8-blocks", "int4", "affine4", "palette4", "palette6"]
BLOCK = 32


def tensors(header):
    """Names and shapes of a llama2.c file, version 0, in its order."""
    dim, hidden, layers, heads, kv_heads, vocab, seq = header
    kv_dim, head = dim // heads * kv_heads, dim // heads
    yield "embed", (abs(vocab), dim)
    yield "attn_norm", (layers, dim)
    for name, rows in [("wq", dim), ("wk", kv_dim), ("wv", kv_dim), ("wo", dim)]:
        yield name, (layers, rows, dim)
    yield "ffn_norm", (layers, dim)
    yield "w1", (layers, hidden, dim)
    yield "w2", (layers, dim, hidden)
    yield "w3", (layers, hidden, dim)
    yield "norm", (dim,)
    yield "cos", (seq, head // 2)
    yield "sin", (seq, head // 2)
    if vocab < 0:
        yield "classifier", (-vocab, dim)


def rounded(checkpoint, kind, out):
    """Writes the checkpoint with matrices of a type of GGUF; returns the bytes of its weights."""
    raw = checkpoint.read_bytes()
    header = np.frombuffer(raw[:28], dtype="<i4")
    values, parts, at, size = np.frombuffer(raw[28:], dtype="<f4"), [], 0, 0
    for name, shape in tensors([int(n) for n in header]):
        part = values[at : at + np.prod(shape)].reshape(shape)
        at += part.size
        if name in ("cos", "sin"):
            parts.append(part)
            continue
        matrix = name[0] == "w" or name in ("embed", "classifier")
        if matrix and shape[-1] % BLOCK == 0:
            own = Type.Q8_0 if name in ("embed", "classifier") else kind
            blocks = gguf.quants.quantize(part, own)
            size += blocks.nbytes
            part = gguf.quants.dequantize(blocks, own).reshape(shape)
        elif matrix:
            size += 2 * part.size
            part = part.astype(np.float16)
        else:
            size += 4 * part.size
        parts.append(part.astype("<f4"))
    assert at == values.size, "the size of the file and its header disagree"
    out.write_bytes(raw[:28] + b"".join(part.tobytes() for part in parts))
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ["ferrane", "checkpoint", "tokenizer", "text"]:
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--windows", type=int, default=128)
    args = parser.parse_args()
    window = ["--seq", str(args.seq), "--windows", str(args.windows), "--tokenizer", str(args.tokenizer), "--json"]

    def ferrane(*words):
        run = subprocess.run([args.ferrane, *map(str, words), *window], stdout=subprocess.PIPE, check=True)
        return json.loads(run.stdout)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines = args.text.read_text().splitlines(keepends=True)
        calibration, scored = folder / "calibration.txt", folder / "scored.txt"
        calibration.write_text("".join(lines[: len(lines) // 2]))
        scored.write_text("".join(lines[len(lines) // 2 :]))
        evaluate = lambda path: ferrane("eval", "--device", "reference", "--checkpoint", path, "--data", scored)
        plain = evaluate(args.checkpoint)
        before = plain["perplexity"]
        print(f"{plain['tokens']} tokens are scored, {args.windows} windows of {args.seq} tokens calibrate.\n")
        print("| weights | bytes | perplexity | change |\n|---|---|---|---|")

        def row(name, size, value):
            print(f"| {name} | {size:,} | {value:.4f} | {100 * (value / before - 1):+.2f} % |", flush=True)

        row("fp32", args.checkpoint.stat().st_size, before)
        for kind in [Type.Q8_0, Type.Q4_0, Type.Q4_1]:
            path = folder / "model.bin"
            size = rounded(args.checkpoint, kind, path)
            row(f"{kind.name} of gguf", size, evaluate(path)["perplexity"])
        for form in FORMS:
            for text in [None, calibration]:
                words = ["--calibrate", text] if text else []
                out = folder / "quantized"
                found = ferrane("quantize", args.checkpoint, "-o", out, "--force", "--weights", form, "--eval", scored, *words)
                read = evaluate(out)["perplexity"]
                assert abs(read / found["perplexity"]["after"] - 1) < 1e-6, "what was written is not what was measured"
                row(f"`{form}`" + (", calibrated" if text else ""), found["bytes"], found["perplexity"]["after"])


main()
