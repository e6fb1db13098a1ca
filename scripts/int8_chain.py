#!/usr/bin/env python3
"""Times the chain of the public benchmark `ane_int8_bench` on this computer: 1 × 1 convolutions, with 8-bit codes between two, in
Ferrane and in ONNX Runtime.

  int8_chain.py [--channels 512] [--side 64] [--depth 8] [--rounds 5] [--ferrane PATH] [--folder DIR]

Writes four ONNX models: the chain with int8 weights and QuantizeLinear, DequantizeLinear between layers, and the chain with float
weights and without those, each in fp16 and in fp32. All scales are 1/8 and all zero points 0, the codes of the weights are random
bytes, and the float weights lie between -0.5 and 0.5. Programs run in turns, once a round, each in its own process; a ratio belongs
to one round. ONNX Runtime runs the fp32 models, because it has no fp16 convolution for a CPU.

First both run the quantized fp32 chain on the same input, and every result must be equal: its sums are exact.

Needs onnx, onnxruntime and numpy.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PEER = pathlib.Path(__file__).parent / "peers/ort_block.py"


def chain(a, path, kind, quantized):
    """Writes the model. `kind` is np.float16 or np.float32."""
    random = np.random.default_rng(7)
    port = TensorProto.FLOAT16 if kind == np.float16 else TensorProto.FLOAT
    shape = [1, a.channels, a.side, a.side]
    constants = [numpy_helper.from_array(np.array(0.125, kind), "scale"), numpy_helper.from_array(np.array(0, np.int8), "zero")]
    nodes, x = [], "x"
    for i in range(a.depth):
        size = (a.channels, a.channels, 1, 1)
        if quantized:
            constants.append(numpy_helper.from_array(random.integers(-128, 128, size, dtype=np.int8), f"codes{i}"))
            nodes.append(helper.make_node("DequantizeLinear", [f"codes{i}", "scale", "zero"], [f"w{i}"]))
        else:
            constants.append(numpy_helper.from_array(random.uniform(-0.5, 0.5, size).astype(kind), f"w{i}"))
        last = i + 1 == a.depth
        y = "y" if last else f"y{i}"
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [y]))
        if quantized and not last:
            nodes.append(helper.make_node("QuantizeLinear", [y, "scale", "zero"], [f"q{i}"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"q{i}", "scale", "zero"], [f"x{i}"]))
            y = f"x{i}"
        x = y
    ports = [[helper.make_tensor_value_info(name, port, shape)] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", *ports, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def output(command, threads):
    found = subprocess.run(command, env=os.environ | {"RAYON_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if found.returncode:
        sys.exit(f"{' '.join(command)}\n{found.stderr}")
    return found.stdout


def compare(a, model, folder):
    """Both on the same input, a multiple of 1/8 everywhere."""
    import onnxruntime

    x = np.random.default_rng(9).integers(-128, 128, (1, a.channels, a.side, a.side)).astype(np.float32) / 8
    np.save(folder / "x.npy", x)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})[0]
    output([a.ferrane, "run", str(model), "-i", f"x={folder / 'x.npy'}", "-o", str(folder / "out")], a.threads)
    found = np.load(folder / "out/y.npy")
    differ = int((found != wanted).sum())
    print(f"{differ} of {wanted.size} results differ from ONNX Runtime's; {len(np.unique(wanted))} different values")
    if differ:
        sys.exit(1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("channels", 512), ("side", 64), ("depth", 8), ("rounds", 5), ("threads", 2)]:
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--ferrane", default="ferrane")
    p.add_argument("--folder", type=pathlib.Path)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = a.folder or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        models = {}
        for kind in (np.float16, np.float32):
            for quantized in (False, True):
                name = f"{'int8' if quantized else 'float'} {np.dtype(kind).name}"
                models[name] = folder / (name.replace(" ", "-") + ".onnx")
                chain(a, models[name], kind, quantized)
        compare(a, models["int8 float32"], folder)
        ferrane = lambda name: [a.ferrane, "bench", "program", "--json", str(models[name])]
        peer = lambda name: [sys.executable, str(PEER), str(models[name]), "--threads", str(a.threads)]
        runs = {f"Ferrane, {name}": ferrane(name) for name in models}
        runs |= {f"ONNX Runtime, {name}": peer(name) for name in models if name.endswith("float32")}
        times = {name: [] for name in runs}
        for _ in range(a.rounds):
            for name, command in runs.items():
                times[name].append(median(json.loads(output(command, a.threads))))
        print(f"{a.channels} channels, {a.side} × {a.side}, {a.depth} layers, {a.threads} threads, {a.rounds} rounds")
        for name, values in times.items():
            print(f"{name}: {statistics.median(values):.2f} ms ({min(values):.2f}–{max(values):.2f})")
        pairs = [
            ("Ferrane, float float16", "Ferrane, int8 float16"),
            ("Ferrane, float float32", "Ferrane, int8 float32"),
            ("ONNX Runtime, float float32", "ONNX Runtime, int8 float32"),
            ("ONNX Runtime, int8 float32", "Ferrane, int8 float32"),
        ]
        for slow, fast in pairs:
            ratios = [s / f for s, f in zip(times[slow], times[fast])]
            print(f"{slow} / {fast}: {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})")


def median(result):
    """The median in milliseconds, of a result of either program."""
    return result["median_ms"] if "median_ms" in result else result["evaluate"]["median_ms"]


if __name__ == "__main__":
    main()
