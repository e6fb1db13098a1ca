#!/usr/bin/env python3
"""Writes one transformer block twice, with the same random weights: DIR/block.mlpackage (fp16) and DIR/block.onnx (fp32).

    scripts/export_block.py --out DIR      # or: scripts/export_block.py DIR
    scripts/export_block.py --out DIR --check PATH/TO/ferrane

The block is a Llama's: RMSNorm, 12 heads of 64 with rotation and a causal mask, residual, RMSNorm, SwiGLU of 2048, residual; 256
tokens of 768 channels; input `x`, output `y`, both [1, 256, 768]. Weights are fp16 values in both files. `--check` runs both on
one input and compares. Needs numpy and onnx, for `--check` onnxruntime; coremltools, where it is missing, is installed into
a folder that is removed again.
"""
import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

SEQ, DIM, HEADS, HIDDEN, EPS = 256, 768, 12, 2048, 1e-5
HEAD = DIM // HEADS
MASKED = -65504.0


def parameters():
    import numpy as np

    rng = np.random.default_rng(1)
    matrix = lambda rows, cols: (rng.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float16)
    gain = lambda: (1 + 0.1 * rng.standard_normal(DIM)).astype(np.float16)
    sizes = {"wq": (DIM, DIM), "wk": (DIM, DIM), "wv": (DIM, DIM), "wo": (DIM, DIM)}
    sizes |= {"w1": (HIDDEN, DIM), "w3": (HIDDEN, DIM), "w2": (DIM, HIDDEN)}
    made = {name: matrix(*size) for name, size in sizes.items()} | {"g1": gain(), "g2": gain()}
    angle = np.arange(SEQ)[:, None] / 10000 ** (np.arange(HEAD // 2)[None, :] * 2 / HEAD)
    angle = np.concatenate([angle, angle], axis=1)[None, None]
    seen = np.tril(np.ones((SEQ, SEQ), bool))[None, None]
    made |= {"cos": np.cos(angle).astype(np.float16), "sin": np.sin(angle).astype(np.float16)}
    return made | {"mask": np.where(seen, 0.0, MASKED).astype(np.float16)}


def write_onnx(path, p):
    import numpy as np
    from onnx import TensorProto, checker, helper, numpy_helper, save

    nodes, constants = [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(kind, *inputs, **attributes):
        name = f"{kind.lower()}_{len(nodes)}"
        outputs = [f"{name}_{i}" for i in range(attributes.pop("outputs", 1))]
        nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return outputs if len(outputs) > 1 else outputs[0]

    f32 = {name: value.astype(np.float32) for name, value in p.items()}
    named = {name: constant(name, value.T if name.startswith("w") else value) for name, value in f32.items()}
    two, eps = constant("two", np.float32(2)), constant("eps", np.float32(EPS))
    scale = constant("scale", np.float32(HEAD**-0.5))
    split = constant("split", np.array([1, SEQ, HEADS, HEAD], np.int64))
    joined = constant("joined", np.array([1, SEQ, DIM], np.int64))

    def norm(x, gain):
        mean = op("ReduceMean", op("Pow", x, two), axes=[-1], keepdims=1)
        return op("Mul", op("Div", x, op("Sqrt", op("Add", mean, eps))), named[gain])

    def heads(x, weight):
        return op("Transpose", op("Reshape", op("MatMul", x, named[weight]), split), perm=[0, 2, 1, 3])

    def rotated(x):
        first, second = op("Split", x, axis=-1, outputs=2)
        turned = op("Concat", op("Neg", second), first, axis=-1)
        return op("Add", op("Mul", x, named["cos"]), op("Mul", turned, named["sin"]))

    h = norm("x", "g1")
    q, k, v = rotated(heads(h, "wq")), rotated(heads(h, "wk")), heads(h, "wv")
    scores = op("Mul", op("MatMul", q, op("Transpose", k, perm=[0, 1, 3, 2])), scale)
    probs = op("Softmax", op("Add", scores, named["mask"]), axis=-1)
    attn = op("Reshape", op("Transpose", op("MatMul", probs, v), perm=[0, 2, 1, 3]), joined)
    x = op("Add", "x", op("MatMul", attn, named["wo"]))
    h = norm(x, "g2")
    gate = op("MatMul", h, named["w1"])
    gate = op("Mul", op("Mul", gate, op("Sigmoid", gate)), op("MatMul", h, named["w3"]))
    nodes.append(helper.make_node("Add", [x, op("MatMul", gate, named["w2"])], ["y"], name="y"))

    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SEQ, DIM])
    graph = helper.make_graph(nodes, "block", [port("x")], [port("y")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    save(model, path)


def write_package(path, p):
    import coremltools as ct
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    half = np.float16

    def norm(x, gain):
        mean = mb.reduce_mean(x=mb.mul(x=x, y=x), axes=[-1], keep_dims=True)
        return mb.mul(x=mb.mul(x=x, y=mb.rsqrt(x=mean, epsilon=half(EPS))), y=p[gain])

    def heads(x, weight):
        split = mb.reshape(x=mb.linear(x=x, weight=p[weight]), shape=[1, SEQ, HEADS, HEAD])
        return mb.transpose(x=split, perm=[0, 2, 1, 3])

    def rotated(x):
        first, second = mb.split(x=x, num_splits=2, axis=-1)
        turned = mb.concat(values=[mb.mul(x=second, y=half(-1)), first], axis=-1)
        return mb.add(x=mb.mul(x=x, y=p["cos"]), y=mb.mul(x=turned, y=p["sin"]))

    @mb.program(input_specs=[mb.TensorSpec((1, SEQ, DIM), types.fp16)], opset_version=ct.target.iOS18)
    def block(x):
        h = norm(x, "g1")
        q, k, v = rotated(heads(h, "wq")), rotated(heads(h, "wk")), heads(h, "wv")
        scores = mb.mul(x=mb.matmul(x=q, y=k, transpose_y=True), y=half(HEAD**-0.5))
        probs = mb.softmax(x=mb.add(x=scores, y=p["mask"]), axis=-1)
        attn = mb.transpose(x=mb.matmul(x=probs, y=v), perm=[0, 2, 1, 3])
        attn = mb.linear(x=mb.reshape(x=attn, shape=[1, SEQ, DIM]), weight=p["wo"])
        x = mb.add(x=x, y=attn)
        h = norm(x, "g2")
        gate = mb.mul(x=mb.silu(x=mb.linear(x=h, weight=p["w1"])), y=mb.linear(x=h, weight=p["w3"]))
        return mb.add(x=x, y=mb.linear(x=gate, weight=p["w2"]), name="y")

    model = ct.convert(
        block,
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS18,
        outputs=[ct.TensorType(name="y", dtype=np.float16)],
        skip_model_load=True,
    )
    model.save(str(path))


def check(folder, ferrane):
    """Runs both files on one input; prints the largest difference and the largest value."""
    import numpy as np
    import onnxruntime

    x = np.random.default_rng(2).uniform(-1, 1, (1, SEQ, DIM)).astype(np.float16)
    session = onnxruntime.InferenceSession(str(folder / "block.onnx"), providers=["CPUExecutionProvider"])
    wanted = session.run(["y"], {"x": x.astype(np.float32)})[0]
    with tempfile.TemporaryDirectory() as work:
        np.save(f"{work}/x.npy", x)
        package = str(folder / "block.mlpackage")
        words = [ferrane, "run", package, "--input", f"x={work}/x.npy", "--output", f"{work}/out"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        found = np.load(f"{work}/out/y.npy").astype(np.float32)
    difference, largest = float(np.abs(found - wanted).max()), float(np.abs(wanted).max())
    print(f"largest difference {difference:.4g}, largest value {largest:.4g}")
    # Some tens of roundings to fp16, each of half of 2^-10 of a value as large as those of the
    # residual stream.
    if not difference <= 4e-3 * largest:
        sys.exit("the two blocks differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?")
    parser.add_argument("--out")
    parser.add_argument("--check", metavar="FERRANE")
    a = parser.parse_args()
    if (a.out or a.dir) is None:
        parser.error("where to? --out DIR")
    folder = pathlib.Path(a.out or a.dir)
    if importlib.util.find_spec("coremltools") is None:
        with tempfile.TemporaryDirectory() as work:
            subprocess.run([sys.executable, "-m", "venv", work], check=True)
            python = f"{work}/bin/python"
            needed = ["coremltools==9.0", "numpy==2.2.6", "onnx", "onnxruntime"]
            subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *needed], check=True)
            sys.exit(subprocess.run([python, __file__, *sys.argv[1:]]).returncode)
    os.makedirs(folder, exist_ok=True)
    made = parameters()
    write_onnx(folder / "block.onnx", made)
    write_package(folder / "block.mlpackage", made)
    if a.check:
        check(folder, a.check)


if __name__ == "__main__":
    main()
