#!/usr/bin/env python3
"""Writes the small models of crates/onnx/tests/models, each NAME.onnx with NAME.safetensors: inputs, and the outputs that ONNX Runtime
computes (`in.NAME`, `out.NAME`).

Needs onnx, onnxruntime, numpy and safetensors. Weights are random with a fixed seed; the models are our own.
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent.parent / "crates/onnx/tests/models"
RANDOM = np.random.default_rng(7)


def weight(name, *shape, scale=0.5):
    return numpy_helper.from_array((RANDOM.standard_normal(shape) * scale).astype(np.float32), name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def port(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def save(name, nodes, inputs, outputs, initializers, values):
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    path = FOLDER / f"{name}.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    results = session.run(None, values)
    tensors = {f"in.{k}": v for k, v in values.items()}
    tensors |= {f"out.{o.name}": np.ascontiguousarray(r) for o, r in zip(session.get_outputs(), results)}
    save_file(tensors, FOLDER / f"{name}.safetensors")
    print(f"{name}: {path.stat().st_size} bytes")


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def mlp():
    nodes = [
        node("Gemm", "x w1 b1", "h", transB=1),
        node("Relu", "h", "a"),
        node("Gemm", "a w2 b2", "y", transB=1),
    ]
    initializers = [weight("w1", 16, 8), weight("b1", 16), weight("w2", 4, 16), weight("b2", 4)]
    save("mlp", nodes, [port("x", ["batch", 8])], [port("y", ["batch", 4])], initializers, {"x": normal(2, 8)})


def attention():
    """Heads are split by shapes that the model computes from its input, as torch exports them."""
    scalar = lambda value, kind, name: numpy_helper.from_array(np.array(value, kind), name)
    nodes = [
        node("Shape", "tokens", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Gather", "shape one", "seq", axis=0),
        node("Unsqueeze", "batch axis0", "batch1"),
        node("Unsqueeze", "seq axis0", "seq1"),
        node("Concat", "batch1 seq1 heads size", "split", axis=0),
        node("Concat", "batch1 seq1 minus1", "join", axis=0),
        node("Concat", "seq1 seq1", "square", axis=0),
        node("Gather", "table tokens", "e", axis=0),
        node("MatMul", "e wq", "q0"),
        node("MatMul", "e wk", "k0"),
        node("MatMul", "e wv", "v0"),
        node("Reshape", "q0 split", "q1"),
        node("Reshape", "k0 split", "k1"),
        node("Reshape", "v0 split", "v1"),
        node("Transpose", "q1", "q", perm=[0, 2, 1, 3]),
        node("Transpose", "k1", "k", perm=[0, 2, 3, 1]),
        node("Transpose", "v1", "v", perm=[0, 2, 1, 3]),
        node("MatMul", "q k", "scores"),
        node("Sqrt", "size_f", "root"),
        node("Div", "scores root", "scaled"),
        node("ConstantOfShape", "square", "ones", value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
        node("Trilu", "ones", "lower", upper=0),
        node("Cast", "lower", "visible", to=TensorProto.BOOL),
        node("Where", "visible scaled hidden", "masked"),
        node("Softmax", "masked", "p", axis=-1),
        node("MatMul", "p v", "o"),
        node("Transpose", "o", "o1", perm=[0, 2, 1, 3]),
        node("Reshape", "o1 join", "o2"),
        node("LayerNormalization", "o2 gamma beta", "y", axis=-1, epsilon=1e-5),
    ]
    initializers = [
        scalar(0, np.int64, "zero"), scalar(1, np.int64, "one"), scalar(8, np.float32, "size_f"),
        scalar(-1e9, np.float32, "hidden"), ints("axis0", 0), ints("heads", 2), ints("size", 8), ints("minus1", -1),
        weight("table", 32, 16), weight("wq", 16, 16), weight("wk", 16, 16), weight("wv", 16, 16),
        weight("gamma", 16), weight("beta", 16),
    ]
    tokens = RANDOM.integers(0, 32, (2, 6))
    save(
        "attention", nodes, [port("tokens", ["batch", "seq"], TensorProto.INT64)], [port("y", ["batch", "seq", 16])],
        initializers, {"tokens": tokens},
    )


def convnet():
    nodes = [
        node("Conv", "x w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", "c1 gamma beta mean var", "n1"),
        node("HardSwish", "n1", "a1"),
        node("Conv", "a1 w2", "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8),
        node("Sigmoid", "c2", "g2"),
        node("Mul", "c2 g2", "a2"),
        node("MaxPool", "a2", "p2", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        helper.make_node(
            "Resize", ["p2", "", "scales"], ["r2"], mode="linear", coordinate_transformation_mode="half_pixel"
        ),
        node("GlobalAveragePool", "r2", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f w3 b3", "y", transB=1),
    ]
    initializers = [
        weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 8, 1, 3, 3), weight("gamma", 8), weight("beta", 8),
        weight("mean", 8), numpy_helper.from_array(RANDOM.random(8).astype(np.float32) + 0.5, "var"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"), weight("w3", 5, 8), weight("b3", 5),
    ]
    save("convnet", nodes, [port("x", ["n", 3, 16, 16])], [port("y", ["n", 5])], initializers, {"x": normal(1, 3, 16, 16)})


def quantized():
    """Weights of 8 bits along an axis, of 4 bits in blocks, and activations of 8 bits."""
    w8 = RANDOM.integers(-128, 128, (16, 8)).astype(np.int8)
    w4 = helper.make_tensor("w4", TensorProto.INT4, [16, 8], RANDOM.integers(-8, 8, 128).tolist())
    nodes = [
        node("QuantizeLinear", "x sx zx", "xq"),
        node("DequantizeLinear", "xq sx zx", "xd"),
        node("DequantizeLinear", "w8 s8 z8", "w1", axis=0),
        node("Gemm", "xd w1", "h", transB=1),
        node("DequantizeLinear", "w4 s4", "w2", axis=0, block_size=8),
        node("MatMul", "h w2", "y"),
    ]
    initializers = [
        numpy_helper.from_array(np.array(0.03, np.float32), "sx"), numpy_helper.from_array(np.array(120, np.uint8), "zx"),
        numpy_helper.from_array(w8, "w8"),
        numpy_helper.from_array((RANDOM.random(16) * 0.02 + 0.001).astype(np.float32), "s8"),
        numpy_helper.from_array(np.zeros(16, np.int8), "z8"), w4,
        numpy_helper.from_array((RANDOM.random((2, 8)) * 0.1 + 0.01).astype(np.float32), "s4"),
    ]
    save("quantized", nodes, [port("x", [3, 8])], [port("y", [3, 8])], initializers, {"x": normal(3, 8)})


def control():
    """A branch on data, a loop of a known count with collected values, and one whose end depends on data."""
    body = helper.make_graph(
        [node("Add", "state_in step", "state_out"), node("Identity", "go_in", "go_out"), node("Identity", "state_out", "seen")],
        "body",
        [port("turn", [], TensorProto.INT64), port("go_in", [], TensorProto.BOOL), port("state_in", [3])],
        [port("go_out", [], TensorProto.BOOL), port("state_out", [3]), port("seen", [3])],
    )
    grow = helper.make_graph(
        [
            node("Mul", "big_in two", "big_out"),
            node("ReduceMax", "big_out", "top", keepdims=0),
            node("Less", "top limit", "more"),
        ],
        "grow",
        [port("turn2", [], TensorProto.INT64), port("more_in", [], TensorProto.BOOL), port("big_in", [3])],
        [port("more", [], TensorProto.BOOL), port("big_out", [3])],
    )
    positive = helper.make_graph([node("Exp", "x", "then_y")], "positive", [], [port("then_y", [3])])
    negative = helper.make_graph([node("Abs", "x", "else_y")], "negative", [], [port("else_y", [3])])
    nodes = [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "is_positive"),
        helper.make_node("If", ["is_positive"], ["b"], then_branch=positive, else_branch=negative),
        helper.make_node("Loop", ["four", "", "b"], ["last", "all"], body=body),
        node("Abs", "x", "small"),
        helper.make_node("Loop", ["", "yes", "small"], ["big"], body=grow),
    ]
    initializers = [
        numpy_helper.from_array(np.array(0, np.float32), "zero"), numpy_helper.from_array(np.array(4, np.int64), "four"),
        numpy_helper.from_array(np.array([1, 2, 3], np.float32), "step"), numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.array(2, np.float32), "two"), numpy_helper.from_array(np.array(50, np.float32), "limit"),
    ]
    outputs = [port("last", [3]), port("all", [4, 3]), port("big", [3])]
    save("control", nodes, [port("x", [3])], outputs, initializers, {"x": normal(3) - 1})


def functions():
    """A function with an attribute that calls another; contributed operators; external data."""
    scale = helper.make_function(
        "local", "Scaled", ["v"], ["r"],
        [helper.make_node("Constant", [], ["c"]), node("Mul", "v c", "r")],
        [helper.make_opsetid("", 21)], attributes=["factor"],
    )
    constant = scale.node[0].attribute.add()
    constant.name, constant.ref_attr_name, constant.type = "value_float", "factor", onnx.AttributeProto.FLOAT
    twice = helper.make_function(
        "local", "Twice", ["v"], ["r"],
        [
            helper.make_node("Scaled", ["v"], ["a"], domain="local", factor=2.0),
            helper.make_node("Scaled", ["a"], ["r"], domain="local", factor=0.25),
        ],
        [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="local"),
        node("MatMul", "t w", "h"),
        helper.make_node("Gelu", ["h"], ["y"], domain="com.microsoft"),
    ]
    graph = helper.make_graph(nodes, "functions", [port("x", [2, 8])], [port("y", [2, 8])], [weight("w", 8, 8)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[scale, twice], ir_version=10)
    path = FOLDER / "functions.onnx"
    # Saving appends to a file of external data that exists.
    (FOLDER / "functions.data").unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location="functions.data", size_threshold=0)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = normal(2, 8)
    (y,) = session.run(None, {"x": x})
    save_file({"in.x": x, "out.y": y}, FOLDER / "functions.safetensors")
    print(f"functions: {path.stat().st_size} bytes")


def recurrent():
    nodes = [
        node("LSTM", "x w r b", "y0 h c", hidden_size=6, direction="bidirectional"),
        node("Transpose", "y0", "y1", perm=[0, 2, 1, 3]),
        node("Reshape", "y1 shape", "y2"),
        node("GRU", "y2 wg rg bg", "yg hg", hidden_size=5, linear_before_reset=1),
        node("Squeeze", "hg axis", "y"),
    ]
    initializers = [
        weight("w", 2, 24, 4), weight("r", 2, 24, 6), weight("b", 2, 48), ints("shape", 0, 0, -1),
        weight("wg", 1, 15, 12), weight("rg", 1, 15, 5), weight("bg", 1, 30), ints("axis", 0),
    ]
    save("recurrent", nodes, [port("x", [7, 2, 4])], [port("y", [2, 5])], initializers, {"x": normal(7, 2, 4)})


def cells():
    """Cells with a clip, with peepholes, with one gate for input and forgetting."""
    nodes = [
        node("LSTM", "x wl rl bl", "yl hl cl", hidden_size=4, direction="bidirectional", clip=0.6),
        helper.make_node(
            "LSTM", ["x", "wc", "rc", "bc", "", "", "", "pc"], ["yc", "hc", "cc"], hidden_size=4, direction="reverse", input_forget=1, clip=1.5
        ),
        node("GRU", "x wg rg bg", "yg hg", hidden_size=4, clip=0.5),
        node("GRU", "x wg rg bg", "ya ha", hidden_size=4, clip=0.5, linear_before_reset=1),
        node("RNN", "x wr rr br", "yr hr", hidden_size=4, clip=0.5, direction="reverse"),
    ]
    initializers = [
        weight("wl", 2, 16, 3), weight("rl", 2, 16, 4), weight("bl", 2, 32), weight("wc", 1, 16, 3), weight("rc", 1, 16, 4),
        weight("bc", 1, 32), weight("pc", 1, 12), weight("wg", 1, 12, 3), weight("rg", 1, 12, 4), weight("bg", 1, 24),
        weight("wr", 1, 4, 3), weight("rr", 1, 4, 4), weight("br", 1, 8),
    ]
    outputs = [port(name, [5, 2 if name == "yl" else 1, 2, 4]) for name in ("yl", "yc", "yg", "ya", "yr")]
    outputs += [port(name, [2 if name == "cl" else 1, 2, 4]) for name in ("cl", "cc", "ha")]
    save("cells", nodes, [port("x", [5, 2, 3])], outputs, initializers, {"x": 2 * normal(5, 2, 3)})


def sampling():
    """Samples of images and volumes, partly outside of them, and a deformable convolution."""
    nodes, outputs = [], []
    for padding in ("zeros", "border", "reflection"):
        for aligned in (0, 1):
            name = f"{padding}{aligned}"
            nodes.append(node("GridSample", "x grid", f"cubic_{name}", mode="cubic", padding_mode=padding, align_corners=aligned))
            nodes.append(node("GridSample", "v places", f"linear_{name}", mode="linear", padding_mode=padding, align_corners=aligned))
            outputs += [port(f"cubic_{name}", [2, 3, 4, 5]), port(f"linear_{name}", [1, 2, 2, 3, 4])]
    nodes.append(node("DeformConv", "x w offsets b mask", "deformed", kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1], dilations=[1, 2], group=3, offset_group=1))
    nodes.append(node("Det", "squares", "dets"))
    outputs += [port("deformed", [2, 6, 3, 5]), port("dets", [4])]
    inputs = {
        "x": normal(2, 3, 6, 6), "grid": (1.6 * RANDOM.random((2, 4, 5, 2)) - 0.8).astype(np.float32) * 1.4,
        "v": normal(1, 2, 4, 5, 3), "places": (2.6 * RANDOM.random((1, 2, 3, 4, 3)) - 1.3).astype(np.float32),
        "offsets": normal(2, 12, 3, 5), "mask": RANDOM.random((2, 6, 3, 5)).astype(np.float32), "squares": normal(4, 6, 6),
    }
    save(
        "sampling", nodes, [port(name, list(value.shape)) for name, value in inputs.items()], outputs,
        [weight("w", 6, 1, 3, 2), weight("b", 6)], inputs,
    )


FOLDER.mkdir(parents=True, exist_ok=True)
for make in (mlp, attention, convnet, quantized, control, functions, recurrent, cells, sampling):
    make()
