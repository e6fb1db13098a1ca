"""Authors `.aimodel` folders that cover the ops, types and forms of Core AI.

    python scripts/coreai/samples.py FOLDER [NAME…]

Needs `pip install --pre coreai-core==1.0.0b3`; with `coreai-torch==0.4.3 coreai-opt==0.4.0` also models of PyTorch, whose palettes need `ninja` and a C++ compiler. For each sample NAME the folder gets

    NAME.aimodel      the model
    NAME.coreai.mlir  the program that coreai-core reads from it, as text
    NAME.aicode.mlir  the file itself, as MLIR's generic form
    NAME.debug.mlir   the same, with locations
    NAME.npz          inputs (`in.X`) and outputs (`out.Y`) of `main`, states before (`state.Z`) and after it (`after.Z`), if it runs here

`index.json` lists what was written and what failed, with the reason.
"""

import asyncio
import importlib
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import coreai.authoring  # noqa: F401  (has to be imported first)
import ml_dtypes
import numpy as np
from coreai._compiler.dialects import coreai as ops
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler import ir
from coreai.authoring import AIModelAsset, AIProgram, Module, TensorSpec
from coreai.authoring.constraints import ContainerType, ImageConstraints
from coreai.authoring.context import Context
from coreai.authoring.coreai_types import ImageType
from coreai.runtime import NDArray

rng = np.random.default_rng(20260709)
CASES = {}


class Case:
    """One sample: specs of inputs with data to run it on, and the body of `main`."""

    def __init__(self, body, data, shapes, build, states=None):
        self.body, self.data, self.shapes, self.build, self.states = body, data, shapes, build, states or {}


def case(name, body, shapes=None, **data):
    """A function `main` of `data`, whose declared shapes `shapes` may replace."""
    assert name not in CASES, name
    CASES[name] = Case(body, data, shapes or {}, None)


def module(name, states=None, **data):
    """A whole module, built by the decorated function; `states` are what its states hold before it runs."""

    def wrap(build):
        assert name not in CASES, name
        CASES[name] = Case(None, data, {}, build, states)

    return wrap


def spec(value, shape=None):
    return TensorSpec(list(value.shape if shape is None else shape), value.dtype.type)


def graph(name, inputs, body, **options):
    """A graph with inputs `{name: spec}` whose outputs are what `body` returns."""
    types = [t._to_mlir_type() for t in inputs.values()]
    g = ops.GraphOp(name, types, [], input_names=list(inputs), result_names=[], **options)
    with g.block:
        out = body(*g.arguments)
        out = list(out) if isinstance(out, (list, tuple, ir.OpResultList)) else [out]
    g.outputs_spec = [(f"y{i}" if i else "y", v) for i, v in enumerate(out)]
    return g


def f(*shape, dtype=np.float32, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(dtype)


def i32(*shape, high=8):
    return rng.integers(0, high, shape).astype(np.int32)


def tensor(shape, dtype):
    return TensorSpec(list(shape), dtype)._to_mlir_type()


S = np.int32


def ints(*values, dtype=np.uint32):
    return np.array(values, dtype)


# Functions of one operand, in three types.
UNARY = "abs_ acos acosh asin asinh atan atanh cos cosh erf exp gelu log relu round_ rsqrt sigmoid silu sin sinh sqrt tan tanh"
for op in UNARY.split():
    for dtype in (np.float16, np.float32):
        x = np.abs(f(2, 5, dtype=dtype)) + dtype(1.25 if op == "acosh" else 0.0)
        if op in ("acos", "asin", "atanh"):
            x = (x / dtype(4)).astype(dtype)
        if op not in ("acosh", "log", "rsqrt", "sqrt"):
            x = x * np.where(rng.integers(0, 2, x.shape), 1, -1).astype(dtype)
        case(f"{op.strip('_')}_{np.dtype(dtype).name}", getattr(ops, op), x=x)
case("gelu_tanh", lambda x: ops.gelu(x, approximate="tanh"), x=f(2, 5))
case("not", ops.not_, x=rng.integers(0, 2, (2, 5)).astype(bool))

BINARY = "add sub mul divide floor_divide maximum minimum modulo pow_"
for op in BINARY.split():
    for dtype in (np.float16, np.float32, np.int32):
        x, y = f(2, 5, dtype=np.float32, scale=5), np.abs(f(2, 5, scale=3)) + 1
        if op == "pow_":
            x = np.abs(x)
        case(f"{op.strip('_')}_{np.dtype(dtype).name}", getattr(ops, op), x=x.astype(dtype), y=y.astype(dtype))
for op in ("equal", "not_equal", "greater"):
    case(op, getattr(ops, op), x=i32(2, 5, high=3), y=i32(2, 5, high=3))
for op in ("and_", "or_", "xor_"):
    case(op.strip("_"), getattr(ops, op), x=i32(2, 5, high=2).astype(bool), y=i32(2, 5, high=2).astype(bool))
for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(op, getattr(ops, op), x=i32(2, 5, high=100), y=i32(2, 5, high=100))
for op in "add sub mul divide floor_divide maximum minimum modulo pow".split():
    case(f"broadcasting_{op}", getattr(ops, f"broadcasting_{op}"), x=np.abs(f(2, 1, 5)) + 1, y=np.abs(f(3, 1)) + 1)
for op in ("equal", "not_equal", "greater"):
    case(f"broadcasting_{op}", getattr(ops, f"broadcasting_{op}"), x=i32(2, 1, high=3), y=i32(5, high=3))
for op in ("and", "or", "xor"):
    name = f"broadcasting_{op}"
    case(name, getattr(ops, name), x=i32(2, 1, high=2).astype(bool), y=i32(5, high=2).astype(bool))
    name = f"broadcasting_bitwise_{op}"
    case(name, getattr(ops, name), x=i32(2, 1, high=99), y=i32(5, high=99))
case("broadcasting_batch_matmul", ops.broadcasting_batch_matmul, x=f(2, 1, 3, 4), y=f(5, 4, 2))
case("broadcasting_where", lambda c, x, y: ops.broadcasting_where(c, x, y), c=i32(5, high=2).astype(bool), x=f(2, 5), y=f(2, 1))
case("where", lambda c, x, y: ops.where(c, x, y), c=i32(2, 5, high=2).astype(bool), x=f(2, 5), y=f(2, 5))

# Reductions and orders.
for op in "reduce_max reduce_mean reduce_min reduce_product reduce_sum".split():
    case(op, lambda x, op=op: getattr(ops, op)(x, ints(1, dtype=S)), x=f(2, 3, 4))
    case(op + "_two", lambda x, op=op: getattr(ops, op)(x, ints(0, 2, dtype=S)), x=f(2, 3, 4, dtype=np.float16))
case("all", lambda x: ops.all_(x, ints(1, dtype=S)), x=i32(2, 5, high=2).astype(bool))
case("any", lambda x: ops.any_(x, ints(1, dtype=S)), x=i32(2, 5, high=2).astype(bool))
case("argmax", lambda x: ops.argmax(x, np.int32(1)), x=f(2, 5))
case("argsort", lambda x: ops.argsort(x, np.int32(1), np.bool_(True), np.bool_(True)), x=f(2, 5))
case("sort", lambda x: ops.sort(x, np.int32(1), np.bool_(False), np.bool_(True)), x=f(2, 5))
for combiner in ("sum", "product", "max", "min"):
    case(f"scan_{combiner}", lambda x, c=combiner: ops.scan(x, np.uint32(1), np.bool_(False), combiner=c), x=f(2, 5))
case("softmax", lambda x: ops.softmax(x, np.int32(-1)), x=f(2, 5))

# Moves of elements.
case("reshape", lambda x: ops.reshape(x, ints(3, 4)), x=f(2, 6))
case("reshape_open", lambda x: ops.reshape(x, ints(3, -1, dtype=S)), x=f(2, 6))
case("transpose", lambda x: ops.transpose(x, ints(2, 0, 1)), x=f(2, 3, 4))
case("expand_dims", lambda x: ops.expand_dims(x, ints(0, 2, dtype=S)), x=f(2, 3))
case("shrink_dims", lambda x: ops.shrink_dims(x, ints(1, dtype=S)), x=f(2, 1, 3))
case("concat", lambda x, y: ops.concat(np.int32(1), [x, y]), x=f(2, 3), y=f(2, 4))
case("split", lambda x: ops.split(x, ints(1, 2, 3), np.int32(1)), x=f(2, 6))
case("slice", lambda x: ops.slice_(x, ints(0, 1, dtype=S), ints(2, 6, dtype=S), ints(1, 2, dtype=S)), x=f(2, 6))
case("slice_update", lambda x, u: ops.slice_update(x, ints(0, 1, dtype=S), ints(2, 3, dtype=S), ints(1, 1, dtype=S), u), x=f(2, 6), u=f(2, 2))
case("tile", lambda x: ops.tile(x, ints(2, 3)), x=f(2, 3))
case("reverse", lambda x: ops.reverse(x, ints(1, dtype=S)), x=f(2, 3))
for mode in ("constant", "reflect", "replicate"):
    case(f"pad_{mode}", lambda x, m=mode: ops.pad(x, ints(0, 0, 1, 2), np.float32(0.5), padding_mode=m), x=f(2, 4))
case("broadcast_to", lambda x: ops.broadcast_to(x, ints(3, 2, 4)), x=f(2, 1))
case("broadcast_in_dims", lambda x: ops.broadcast_in_dims(x, ints(3), ints(0, dtype=S)), x=f(1, 2))
case("broadcast_shapes", lambda x, y: ops.broadcast_shapes(ops.get_shape(x), ops.get_shape(y)), x=f(2, 1), y=f(3))
case("get_shape", ops.get_shape, x=f(2, 3))
case("range", lambda: ops.range_(np.int32(1), np.int32(9), np.int32(2)))
case("range_open", lambda x: ops.range_(x, np.int32(9), np.int32(2)), x=np.array(1, S))
case("gather_along_axis", lambda x, i: ops.gather_along_axis(x, i, np.int32(1)), x=f(2, 6), i=i32(2, 3, high=6))
case("gather_nd", lambda x, i: ops.gather_nd(x, i), x=f(3, 6), i=i32(4, 1, high=3))
case("scatter_nd", lambda x, i, u: ops.scatter_nd(x, i, u), x=f(3, 6), i=i32(2, 1, high=3), u=f(2, 6))
case("scatter_along_axis", lambda x, i, u: ops.scatter_along_axis(x.type, x, i, u, np.int32(1)), x=f(2, 6), i=np.array([[0, 2], [1, 5]], S), u=f(2, 2))
for mode in ("add", "update", "max", "min", "mul", "sub", "div"):
    case(f"scatter_along_axis_{mode}", lambda x, i, u, m=mode: ops.scatter_along_axis(x.type, x, i, u, np.int32(1), ir.Attribute.parse(f"#coreai.scatter_mode<{m}>")), x=f(2, 6), i=np.array([[0, 2], [1, 5]], S), u=f(2, 2))
case("non_zero", ops.non_zero, x=i32(2, 5, high=2))

# Products, convolutions and pools.
for dtype in (np.float16, np.float32):
    case(f"batch_matmul_{np.dtype(dtype).name}", ops.batch_matmul, x=f(2, 3, 4, dtype=dtype), y=f(2, 4, 5, dtype=dtype))
case("conv2d", lambda x: ops.conv2d(x, f(4, 3, 3, 3), ints(1, 1), ints(1, 1), np.uint32(1)), x=f(1, 3, 8, 8))
case("conv2d_groups", lambda x: ops.conv2d(x, f(4, 1, 3, 3), ints(2, 1), ints(1, 2), np.uint32(4)), x=f(1, 4, 8, 8))
case("conv3d", lambda x: ops.conv3d(x, f(2, 3, 2, 2, 2), ints(1, 1, 1), ints(1, 1, 1), np.uint32(1)), x=f(1, 3, 4, 4, 4))
case("conv_transpose2d", lambda x: ops.conv_transpose2d(x, f(3, 4, 3, 3), ints(2, 2), ints(0, 0), ints(1, 1), ints(0, 0), np.uint32(1)), x=f(1, 3, 4, 4))
case("conv_transpose3d", lambda x: ops.conv_transpose3d(x, f(3, 2, 2, 2, 2), ints(1, 1, 1), ints(0, 0, 0), ints(1, 1, 1), ints(0, 0, 0), np.uint32(1)), x=f(1, 3, 3, 3, 3))
case("maxpool2d", lambda x: ops.maxpool2d(tensor((1, 2, 3, 3), np.float32), x, ints(2, 2), ints(2, 2), ints(1, 1), np.bool_(False)), x=f(1, 2, 6, 6))
case("maxpool3d", lambda x: ops.maxpool3d(tensor((1, 2, 2, 2, 2), np.float32), x, ints(2, 2, 2), ints(2, 2, 2), ints(1, 1, 1), np.bool_(False)), x=f(1, 2, 4, 4, 4))
case("sumpool2d", lambda x: ops.sumpool2d(x, ints(2, 2), ints(2, 2), ops.constant(ints(1, 1))), x=f(1, 2, 6, 6))
case("sumpool3d", lambda x: ops.sumpool3d(x, ints(2, 2, 2), ints(2, 2, 2), ops.constant(ints(1, 1, 1))), x=f(1, 2, 4, 4, 4))
for mode in ("nearest_neighbor", "linear"):
    case(f"interpolate_{mode}", lambda x, m=mode: ops.interpolate(x, ints(1, 2, 6, 6, dtype=S), np.array([1, 1, 2, 2], np.float32), np.array([0, 0, 0, 0], np.float32), interpolation_mode=ir.Attribute.parse(f"#coreai.interpolation_mode<{m}>")), x=f(1, 2, 3, 3))
    case(f"interpolate_coordinates_{mode}", lambda x, c, m=mode: ops.interpolate_coordinates(x, c, interpolation_mode=ir.Attribute.parse(f"#coreai.interpolation_mode<{m}>")), x=f(3, 3), c=np.abs(f(5, 2)))

# Complex numbers, images, quantization and compressed weights.
case("create_complex", ops.create_complex, real=f(2, 3), imaginary=f(2, 3))
case("real_part", ops.real_part, x=f(2, 3).astype(np.complex64))
case("imaginary_part", ops.imaginary_part, x=f(2, 3).astype(np.complex64))
case("quantize", lambda x: ops.quantize(x, np.array([0.1, 0.2, 0.3], np.float32), np.zeros(3, np.int8), np.zeros(3, np.float32), np.int32(1)), x=f(2, 3))
case("dequantize", lambda x: ops.dequantize(x, np.array([0.1, 0.2, 0.3], np.float32), np.zeros(3, np.int8), np.zeros(3, np.float32), np.int32(1)), x=i32(2, 3).astype(np.int8))
case("blockwise_shift_scale", lambda x: ops.blockwise_shift_scale(x, f(2, 2), np.zeros((2, 2), np.int8), np.zeros((2, 2), np.float32)), x=i32(2, 4).astype(np.int8))
case("lut_to_dense", lambda x: ops.lut_to_dense(x, f(1, 1, 16, 1), np.int16(0)), x=rng.integers(0, 16, (2, 4)).astype(ml_dtypes.uint4))
case("symmetric_quant_stats", lambda x: ops.symmetric_quant_stats(x, ints(-128, 127, dtype=S), np.int32(1)), x=f(2, 3))
case("asymmetric_quant_stats", lambda x: ops.asymmetric_quant_stats(x, ints(-128, 127, dtype=S), np.int32(1)), x=f(2, 3))
DTYPES = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16,
          np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
          ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4]
for dtype in DTYPES:
    name = np.dtype(dtype).name
    # `float8_e8m0fnu` is unsigned, and the four-bit types hold little.
    values = np.array([[1, 0, 1], [1, 1, 0]]) if name != "float8_e8m0fnu" else np.array([[1, 2, 4], [1, 1, 2]])
    case(f"pass_{name}", lambda x: ops.reshape(x, ints(3, 2)), x=values.astype(dtype))
    case(f"constant_{name}", lambda values=values, dtype=dtype: ops.reshape(ops.constant(values.astype(dtype), dtype=dtype), ints(3, 2)))
    case(f"cast_to_{name}", lambda x, dtype=dtype: ops.cast(x, dtype), x=np.abs(f(2, 3)))
case("constant_splat", lambda x: ops.add(x, np.full((2, 3), 1.5, np.float32)), x=f(2, 3))
case("constant_scalars", lambda: [ops.constant(v) for v in (np.float32(1.5), np.float32("inf"), np.float32("nan"), np.float32(-0.0), np.float16(0.1), np.int64(-(2**40)), np.uint64(2**63), np.bool_(True), np.float64(1e300))])
case("constant_large", lambda x: ops.batch_matmul(x, f(1, 64, 64)), x=f(1, 2, 64))
case("constants_many", lambda x: ops.add(ops.batch_matmul(x, f(1, 32, 32)), ops.batch_matmul(x, f(1, 32, 32))), x=f(1, 2, 32))
case("constant_empty", lambda: ops.constant(np.zeros((0, 3), np.float32)))

# Shapes that are not known.
case("dynamic_add", ops.add, shapes={"x": (-1, 3), "y": (-1, 3)}, x=f(2, 3), y=f(2, 3))
case("dynamic_matmul", ops.batch_matmul, shapes={"x": (1, -1, -1), "y": (1, -1, 5)}, x=f(1, 3, 4), y=f(1, 4, 5))
case("dynamic_reshape", lambda x: ops.reshape(x, ints(-1, dtype=S)), shapes={"x": (-1, -1)}, x=f(2, 3))
case("rank_0", lambda x: ops.add(x, x), x=np.array(1.5, np.float32))


# Forms that the operations above have in other models.
E4 = np.float16
case("slice_backward", lambda x: ops.slice_(x, ints(1, 5, dtype=S), ints(0, -7, dtype=S), ints(-1, -2, dtype=S)), x=f(2, 6))
case("slice_negative", lambda x: ops.slice_(x, ints(-1, -5, dtype=S), ints(9, -1, dtype=S), ints(1, 1, dtype=S)), x=f(2, 6))
case("slice_moving", lambda x, i: ops.slice_(x, ops.concat(np.int32(0), [ops.constant(ints(0, dtype=S)), i]), ops.concat(np.int32(0), [ops.constant(ints(2, dtype=S)), ops.add(i, ops.constant(ints(2, dtype=S)))]), ints(1, 1, dtype=S)), x=f(2, 6), i=ints(3, dtype=S))
case("slice_update_moving", lambda x, i, u: ops.slice_update(x, ops.concat(np.int32(0), [ops.constant(ints(0, dtype=S)), i]), ops.concat(np.int32(0), [ops.constant(ints(2, dtype=S)), ops.add(i, ops.constant(ints(2, dtype=S)))]), ints(1, 1, dtype=S), u), x=f(2, 6), i=ints(3, dtype=S), u=f(2, 2))
case("slice_update_steps", lambda x, u: ops.slice_update(x, ints(0, -5, dtype=S), ints(2, 6, dtype=S), ints(1, 2, dtype=S), u), x=f(2, 6), u=f(2, 3))
case("split_size", lambda x: ops.split(x, np.uint32(4), np.int32(-1)), x=f(2, 10))
case("tile_inner", lambda x: ops.tile(x, ints(2)), x=f(2, 3))
case("reverse_all", lambda x: ops.reverse(x, ints(0, -1, dtype=S)), x=f(2, 3))
case("pad_outer", lambda x: ops.pad(x, ints(1, 0, 0, 0, 2, 1), np.float32(0), padding_mode="replicate"), x=f(2, 3, 4))
case("pad_int", lambda x: ops.pad(x, ints(1, 0, 0, 2), np.int32(-3), padding_mode="constant"), x=i32(2, 3))
case("transpose_product", lambda x, y: ops.batch_matmul(x, ops.transpose(y, ints(0, 2, 1))), x=f(2, 3, 4), y=f(2, 5, 4))
case("batch_matmul_int", ops.batch_matmul, x=i32(2, 3, 4), y=i32(2, 4, 5))
case("batch_matmul_plain", ops.batch_matmul, x=f(3, 4), y=f(4, 5))
case("batch_matmul_long", ops.batch_matmul, x=f(1, 3, 512), y=f(1, 512, 5))
case("batch_matmul_long_float16", ops.batch_matmul, x=f(1, 3, 512, dtype=E4), y=f(1, 512, 5, dtype=E4))
case("conv2d_dilated", lambda x: ops.conv2d(x, f(4, 3, 3, 2, dtype=E4), ints(1, 2), ints(2, 1), np.uint32(1)), x=f(1, 3, 9, 8, dtype=E4))
case("conv_transpose2d_padded", lambda x: ops.conv_transpose2d(x, f(4, 2, 3, 3), ints(2, 2), ints(1, 1), ints(1, 2), ints(1, 0), np.uint32(2)), x=f(1, 4, 4, 4))
case("maxpool2d_ceil", lambda x: ops.maxpool2d(tensor((1, 2, 3, 4), np.float32), x, ints(2, 3), ints(2, 2), ints(1, 1), np.bool_(True)), x=f(1, 2, 5, 8))
case("maxpool2d_dilated", lambda x: ops.maxpool2d(tensor((1, 2, 4, 5), np.float32), x, ints(2, 2), ints(1, 1), ints(2, 1), np.bool_(False)), x=f(1, 2, 6, 6))
case("sumpool2d_dilated", lambda x: ops.sumpool2d(x, ints(2, 2), ints(2, 1), ops.constant(ints(1, 3))), x=f(1, 2, 6, 6))
for mode in ("nearest_neighbor", "linear"):
    resized = lambda x, m, out, scale, offset: ops.interpolate(x, ints(*out, dtype=S), np.array(scale, np.float32), np.array(offset, np.float32), interpolation_mode=ir.Attribute.parse(f"#coreai.interpolation_mode<{m}>"))
    case(f"interpolate_odd_{mode}", lambda x, m=mode: resized(x, m, (1, 2, 7, 5), (1, 1, 7 / 3, 5 / 4), (0, 0, 0, 0)), x=f(1, 2, 3, 4))
    case(f"interpolate_corners_{mode}", lambda x, m=mode: resized(x, m, (1, 2, 5, 7), (1, 1, 2, 2), (0, 0, -0.5, -0.5)), x=f(1, 2, 3, 4))
    case(f"interpolate_smaller_{mode}", lambda x, m=mode: resized(x, m, (4, 3), (0.5, 0.5), (0, 0)), x=f(8, 6))
    case(f"interpolate_float16_{mode}", lambda x, m=mode: resized(x, m, (1, 2, 9, 8), (1, 1, 3, 2), (0, 0, 0, 0)), x=f(1, 2, 3, 4, dtype=E4))
for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64):
    name = np.dtype(dtype).name
    values = (np.arange(10).reshape(2, 5) * 23 - (100 if np.dtype(dtype).kind == "i" else 0)).astype(dtype)
    for op in ("add", "mul", "sub", "maximum", "divide", "modulo"):
        case(f"{op}_{name}", getattr(ops, op), x=values, y=(values[::-1, ::-1] | dtype(1)).astype(dtype))
    case(f"reduce_sum_{name}", lambda x: ops.reduce_sum(x, ints(1, dtype=S)), x=values)
    case(f"cast_from_{name}", lambda x: [ops.cast(x, np.float16), ops.cast(x, np.int8), ops.cast(x, np.bool_)], x=values)
case("gather_negative", lambda x, i: ops.gather_along_axis(x, i, np.int32(-1)), x=f(2, 6), i=np.array([[-1, 2], [0, -6]], S))
case("gather_bool", lambda x, i: ops.gather_along_axis(x, i, np.int32(1)), x=i32(2, 6, high=2).astype(bool), i=i32(2, 3, high=6))
case("gather_nd_two", lambda x, i: ops.gather_nd(x, i), x=f(3, 6, 2), i=np.array([[0, -1], [2, 3]], S))
case("scatter_nd_two", lambda x, i, u: ops.scatter_nd(x, i, u), x=f(3, 6), i=np.array([[0, 1], [2, -1]], S), u=f(2))
case("argsort_up", lambda x: ops.argsort(x, np.int32(0), np.bool_(False), np.bool_(True)), x=i32(6, 3, high=4))
case("sort_float16", lambda x: ops.sort(x, np.int32(-1), np.bool_(True), np.bool_(True)), x=f(2, 9, dtype=E4))
for combiner in ("sum", "product", "max"):
    case(f"scan_backward_{combiner}", lambda x, c=combiner: ops.scan(x, np.uint32(0), np.bool_(True), combiner=c), x=f(5, 2))
case("where_scalar", lambda c, x: ops.broadcasting_where(c, x, np.float32(0)), c=i32(2, 5, high=2).astype(bool), x=f(2, 5))
case("softmax_float16", lambda x: ops.softmax(x, np.int32(0)), x=f(7, 5, dtype=E4, scale=3))
case("quantize_tensor", lambda x: ops.quantize(x, np.float32(0.05), np.uint8(100), np.float32(0), ints(0, 1, dtype=S)), x=f(2, 3))
case("quantize_moved", lambda x: ops.quantize(x, np.array([0.1, 0.2, 0.3], np.float32), np.zeros(3, np.int8), np.array([0.5, -1, 2], np.float32), np.int32(1)), x=f(2, 3))
case("quantize_pair", lambda x: ops.dequantize(ops.quantize(x, np.float16(0.05), np.int8(3), np.float16(0), ints(0, 1, dtype=S)), np.float16(0.05), np.int8(3), np.float16(0), ints(0, 1, dtype=S)), x=f(2, 3, dtype=E4))
case("dequantize_moved", lambda x: ops.dequantize(x, np.array([0.1, 0.2, 0.3], np.float32), np.array([1, -2, 3], np.int8), np.array([0.5, -1, 2], np.float32), np.int32(1)), x=i32(2, 3).astype(np.int8))
bytes_of = lambda *shape: rng.integers(-128, 128, shape).astype(np.int8)
case("dequantize_constant", lambda x: ops.batch_matmul(x, ops.dequantize(ops.constant(bytes_of(16, 12)), np.abs(f(12)) / np.float32(99), bytes_of(12), np.zeros(12, np.float32), np.int32(1))), x=f(3, 16))
case("dequantize_constant_float16", lambda x: ops.batch_matmul(x, ops.dequantize(ops.constant(bytes_of(16, 12)), (np.abs(f(12)) / 99).astype(E4), np.zeros(12, np.int8), np.zeros(12, E4), np.int32(1))), x=f(3, 16, dtype=E4))
case("blockwise_constant", lambda x: ops.batch_matmul(x, ops.blockwise_shift_scale(ops.constant(bytes_of(16, 12)), f(4, 12), bytes_of(4, 12), np.zeros((4, 12), np.float32))), x=f(3, 16))
case("blockwise_constant_uint4", lambda x: ops.batch_matmul(x, ops.blockwise_shift_scale(ops.constant(rng.integers(0, 16, (16, 12)).astype(ml_dtypes.uint4)), f(4, 1), np.full((4, 1), 8).astype(ml_dtypes.uint4), np.zeros((4, 1), np.float32))), x=f(3, 16))
case("blockwise_constant_float8", lambda x: ops.batch_matmul(x, ops.blockwise_shift_scale(ops.constant(f(16, 12).astype(ml_dtypes.float8_e4m3fn)), f(4, 1), np.zeros((4, 1)).astype(ml_dtypes.float8_e4m3fn), np.zeros((4, 1), np.float32))), x=f(3, 16))
case("blockwise_moved", lambda x: ops.blockwise_shift_scale(x, f(2, 2), bytes_of(2, 2), f(2, 2)), x=bytes_of(4, 6))
case("lut_constant", lambda x: ops.batch_matmul(x, ops.lut_to_dense(ops.constant(rng.integers(0, 16, (16, 12)).astype(ml_dtypes.uint4)), f(1, 1, 16, 1), np.int16(0))), x=f(3, 16))
case("lut_constant_groups", lambda x: ops.batch_matmul(x, ops.lut_to_dense(ops.constant(rng.integers(0, 4, (16, 12)).astype(ml_dtypes.uint2)), f(4, 1, 4, 1, dtype=E4), np.int16(0))), x=f(3, 16, dtype=E4))
case("lut_constant_vectors", lambda x: ops.batch_matmul(x, ops.lut_to_dense(ops.constant(rng.integers(0, 256, (16, 6)).astype(np.uint8)), f(1, 1, 256, 2), np.int16(1))), x=f(3, 16))
case("lut_groups", lambda x: ops.lut_to_dense(x, f(2, 1, 16, 1), np.int16(0)), x=rng.integers(0, 16, (4, 4)).astype(ml_dtypes.uint4))
case("dynamic_attention", lambda x: ops.softmax(ops.batch_matmul(x, ops.transpose(x, ints(0, 2, 1))), np.int32(-1)), shapes={"x": (1, -1, 8)}, x=f(1, 5, 8))
case("dynamic_shape", lambda x: ops.reshape(x, ops.concat(np.int32(0), [ops.slice_(ops.get_shape(x), ints(0, dtype=S), ints(1, dtype=S), ints(1, dtype=S)), ops.constant(ints(6))])), shapes={"x": (-1, 2, 3)}, x=f(4, 2, 3))


# Control flow, functions, states and what else a module may hold.
@module("if", c=np.array(True), x=f(3), y=f(3))
def _(data):
    def main(c, x, y):
        result, (then, other) = ops.if_([x.type], c)
        with then:
            ops.yield_([ops.add(x, y)])
        with other:
            ops.yield_([ops.mul(x, y)])
        return result

    graph("main", {k: spec(v) for k, v in data.items()}, main)


@module("if_nested", c=np.array(True), d=np.array(False), x=f(3))
def _(data):
    def main(c, d, x):
        result, (then, other) = ops.if_([x.type, x.type], c)
        with then:
            inner, (a, b) = ops.if_([x.type], d)
            with a:
                ops.yield_([ops.exp(x)])
            with b:
                ops.yield_([ops.sin(x)])
            ops.yield_([inner, x])
        with other:
            ops.yield_([x, ops.cos(x)])
        return list(result)

    graph("main", {k: spec(v) for k, v in data.items()}, main)


def doubled(n, x):
    """`x` doubled `n` times, in a loop."""
    results, (before, after) = ops.while_([n.type, x.type], [ops.constant(np.array(0, S)), x])
    with before:
        i, v = before.arguments
        ops.condition(ops.not_equal(i, n), i, v)
    with after:
        i, v = after.arguments
        ops.yield_([ops.add(i, np.int32(1)), ops.add(v, v)])
    return results[1]


@module("while", n=np.array(5, np.int32), x=f(3))
def _(data):
    graph("main", {k: spec(v) for k, v in data.items()}, doubled)


@module("functions", x=f(2, 3))
def _(data):
    x = spec(data["x"])
    helper = graph("helper", {"a": x}, ops.exp, private=True, no_inline=True)
    graph("main", {"x": x}, lambda x: ops.add(helper(x)[0], x))
    graph("other", {"x": x, "z": x}, lambda x, z: [ops.mul(x, z), x])


@module("graph_flags", x=f(2, 3))
def _(data):
    x = spec(data["x"])
    graph("apart", {"x": x}, ops.sin, externalize=True)
    graph("main", {"x": x}, ops.sin)


@module("state", states={"h": f(2, 3)}, x=f(2, 3))
def _(data):
    handle = ir.Type.parse("!coreai.handle<tensor<2x3xf32>>")

    def main(h, x):
        value, token = gen.read_handle(h, gen.create_token())
        total = ops.add(value, x)
        return total, gen.write_handle(h, total, token)

    g = ops.GraphOp("main", [handle, spec(data["x"])._to_mlir_type()], [], input_names=["h", "x"], result_names=[])
    with g.block:
        out, token = main(*g.arguments)
    g.outputs_spec = [("y", out), ("t", token)]


@module("join_token", states={"h": f(2, 3)}, x=f(2, 3))
def _(data):
    handle = ir.Type.parse("!coreai.handle<tensor<2x3xf32>>")
    g = ops.GraphOp("main", [handle, spec(data["x"])._to_mlir_type()], [], input_names=["h", "x"], result_names=[])
    with g.block:
        h, x = g.arguments
        start = gen.create_token()
        a, b = gen.write_handle(h, x, start), gen.write_handle(h, x, start)
        value, token = gen.read_handle(h, gen.join_token(a, [b]))
    g.outputs_spec = [("y", value), ("t", token)]


@module("image")
def _(_data):
    image = ImageType(ops.FourCC.RGB24, 4, 6)._to_mlir_type()
    g = ops.GraphOp("main", [image], [], input_names=["x"], result_names=[])
    with g.block:
        t = ops.image_to_tensor(g.arguments[0])
        out = ops.tensor_to_image(image, t)
    g.outputs_spec = [("y", out)]


@module("image_constraints")
def _(_data):
    limits = ImageConstraints(ContainerType.CVPixelBuffer, (64,))
    image = ImageType(ops.FourCC.ARGB32, 4, 6, constraints=limits)._to_mlir_type()
    g = ops.GraphOp("main", [image], [], input_names=["x"], result_names=[])
    with g.block:
        out = ops.image_to_tensor(g.arguments[0])
    g.outputs_spec = [("y", out)]


@module("composite", x=f(2, 3))
def _(data):
    x = spec(data["x"])
    values = """{a = 1.500000e+00 : f32, b = [1 : si64, 2 : si64], c = "s", d = true, e = -2.5 : f64, f = 3 : si64, g = {h = "i"}, k = -7 : si32,
        l = 1.0 : f16, m = 1.0 : bf16, n = 200 : ui8, o = unit}"""
    decl = ir.Attribute.parse('#coreai.composite_declaration<"thing" = ' + values + ">")
    helper = graph("helper", {"a": x}, ops.exp, private=True, no_inline=True, composite_decl=decl)
    graph("main", {"x": x}, lambda x: helper(x)[0])


@module("decorated", x=f(2, 3), y=f(2, 3))
def _(data):
    from typing import Annotated

    x, out = spec(data["x"]), TensorSpec([2, 3], np.float32, name="z")

    @ops.graph
    def main(x: Annotated[ir.Value, x], y: Annotated[ir.Value, x]) -> Annotated[ir.Value, out]:
        return ops.add(x, y)


def constrained(limits):
    t = f"tensor<2x3xf32, #coreaix.hw_constraints<{limits}>>"
    return f"""coreai.graph @main(%x: tensor<2x3xf32> {{coreai.name = "x"}}) -> (tensor<2x3xf32> {{coreai.name = "y"}}) {{
  %0 = "coreaix.copy_with_constraints"(%x) : (tensor<2x3xf32>) -> {t}
  %1 = "coreaix.copy_discarding_constraints"(%0) : ({t}) -> tensor<2x3xf32>
  coreai.output %1 : tensor<2x3xf32>
}}"""


TEXTS = {
    "target_spec": """"coreai.target_spec"() <{spec = #coreai.target_spec<triple = "arm64-apple-ios", soc = "a17", delegateOptions = {a = 1 : si32}>, compilation = #coreai.compilation<partial>}> : () -> ()
coreai.graph @main(%x: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
  coreai.output %x : tensor<4xf32>
}""",
    "sparse_others": """coreai.graph @main(%a: tensor<2x3xf32, #coreai.sparse_tensor_encoding<coo, numNonZero = 5, posWidth = 8, crdWidth = 16>> {coreai.name = "a"},
    %b: tensor<2x3xf32, #coreai.sparse_tensor_encoding<csr, numNonZero = 4, posWidth = 16, crdWidth = 8>> {coreai.name = "b"},
    %c: tensor<2x3xf32, #coreai.sparse_tensor_encoding<csc, numNonZero = 3, posWidth = 32, crdWidth = 64>> {coreai.name = "c"}, %x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  coreai.output %x : tensor<2xf32>
}""",
    "sparse_wide": """coreai.graph @main(%v: tensor<5xf32> {coreai.name = "v"}, %m: tensor<20x30xui1> {coreai.name = "m"}) -> (tensor<20x30xf32> {coreai.name = "y"}) {
  %s = "coreai.build_sparse_with_bitmask"(%v, %m) : (tensor<5xf32>, tensor<20x30xui1>) -> tensor<20x30xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 5, posWidth = 1, crdWidth = 1>>
  %d = "coreai.sparse_with_bitmask_to_dense"(%s) : (tensor<20x30xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 5, posWidth = 1, crdWidth = 1>>) -> tensor<20x30xf32>
  coreai.output %d : tensor<20x30xf32>
}""",
    "sparse": """coreai.graph @main(%v: tensor<3xf32> {coreai.name = "v"}, %m: tensor<2x3xui1> {coreai.name = "m"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
  %s = "coreai.build_sparse_with_bitmask"(%v, %m) : (tensor<3xf32>, tensor<2x3xui1>) -> tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %d = "coreai.sparse_with_bitmask_to_dense"(%s) : (tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>) -> tensor<2x3xf32>
  coreai.output %d : tensor<2x3xf32>
}""",
    "lut_to_sparse": """coreai.graph @main(%v: tensor<3xui4> {coreai.name = "v"}, %m: tensor<2x3xui1> {coreai.name = "m"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
  %s = "coreai.build_sparse_with_bitmask"(%v, %m) : (tensor<3xui4>, tensor<2x3xui1>) -> tensor<2x3xui4, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %l = coreai.constant dense<0.5> : tensor<1x1x16x1xf32>
  %a = coreai.constant dense<0> : tensor<si16>
  %t = "coreai.lut_to_sparse_with_bitmask"(%s, %l, %a) : (tensor<2x3xui4, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>, tensor<1x1x16x1xf32>, tensor<si16>) -> tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %d = "coreai.sparse_with_bitmask_to_dense"(%t) : (tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>) -> tensor<2x3xf32>
  coreai.output %d : tensor<2x3xf32>
}""",
    # The runtime takes no inputs of one bit.
    "sparse_constant": """coreai.graph @main(%v: tensor<3xf32> {coreai.name = "v"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
  %m = coreai.constant dense<[[1, 0, 1], [0, 1, 0]]> : tensor<2x3xui1>
  %s = "coreai.build_sparse_with_bitmask"(%v, %m) : (tensor<3xf32>, tensor<2x3xui1>) -> tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %d = "coreai.sparse_with_bitmask_to_dense"(%s) : (tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>) -> tensor<2x3xf32>
  coreai.output %d : tensor<2x3xf32>
}""",
    "sparse_constants": """coreai.graph @main(%v: tensor<2x3xf32> {coreai.name = "v"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
  %c = coreai.constant dense<[1.5, -2.0, 0.25]> : tensor<3xf32>
  %m = coreai.constant dense<[[1, 0, 1], [0, 1, 0]]> : tensor<2x3xui1>
  %s = "coreai.build_sparse_with_bitmask"(%c, %m) : (tensor<3xf32>, tensor<2x3xui1>) -> tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %d = "coreai.sparse_with_bitmask_to_dense"(%s) : (tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>) -> tensor<2x3xf32>
  %y = coreai.mul %v, %d : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  coreai.output %y : tensor<2x3xf32>
}""",
    "lut_to_sparse_constant": """coreai.graph @main(%v: tensor<2x3xf32> {coreai.name = "v"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
  %c = coreai.constant dense<[1, 3, 2]> : tensor<3xui2>
  %m = coreai.constant dense<[[1, 0, 1], [0, 1, 0]]> : tensor<2x3xui1>
  %s = "coreai.build_sparse_with_bitmask"(%c, %m) : (tensor<3xui2>, tensor<2x3xui1>) -> tensor<2x3xui2, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %l = coreai.constant dense<[[[[0.5], [1.5], [-2.0], [4.0]]]]> : tensor<1x1x4x1xf32>
  %a = coreai.constant dense<0> : tensor<si16>
  %t = "coreai.lut_to_sparse_with_bitmask"(%s, %l, %a) : (tensor<2x3xui2, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>, tensor<1x1x4x1xf32>, tensor<si16>) -> tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>
  %d = "coreai.sparse_with_bitmask_to_dense"(%t) : (tensor<2x3xf32, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>) -> tensor<2x3xf32>
  %y = coreai.mul %v, %d : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  coreai.output %y : tensor<2x3xf32>
}""",
    "reduce": """coreai.graph @main(%x: tensor<3x4xf32> {coreai.name = "x"}) -> (tensor<3x1xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<1> : tensor<1xsi32>
  %i = coreai.constant dense<0.0> : tensor<f32>
  %r = "coreai.reduce"(%x, %a, %i) ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = coreai.add %p, %q : (tensor<f32>, tensor<f32>) -> tensor<f32>
    coreai.yield %s : tensor<f32>
  }) : (tensor<3x4xf32>, tensor<1xsi32>, tensor<f32>) -> tensor<3x1xf32>
  coreai.output %r : tensor<3x1xf32>
}""",
    "delegate": """coreai.graph @main(%x: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
  %y = "coreai.delegate"(%x) <{delegate_id = "BNNS", resource = array<i8: 1, 2, 3>}> : (tensor<4xf32>) -> tensor<4xf32>
  coreai.output %y : tensor<4xf32>
}""",
    "metal4_kernel": """coreai.graph @main(%x: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
  %g = coreai.constant dense<[4, 1, 1]> : tensor<3xui32>
  %s = coreai.constant dense<[4]> : tensor<1xui32>
  %c = "coreaix.copy_with_constraints"(%x) : (tensor<4xf32>) -> tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>
  %k = "coreai.metal4_kernel"(%c, %g, %g, %s) <{kernel_name = "k", kernel_source = "kernel void k() {}", operandSegmentSizes = array<i32: 1, 1, 1, 1>}> : (tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>, tensor<3xui32>, tensor<3xui32>, tensor<1xui32>) -> tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>
  %y = "coreaix.copy_discarding_constraints"(%k) : (tensor<4xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>>) -> tensor<4xf32>
  coreai.output %y : tensor<4xf32>
}""",
    "isolated_group": """coreai.graph @main(%x: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
  %out = coreai.isolated_group<"Interpreter">(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%arg: tensor<4xf32>):
    %0 = coreai.relu %arg : (tensor<4xf32>) -> tensor<4xf32>
    coreai.yield %0 : tensor<4xf32>
  }
  coreai.output %out : tensor<4xf32>
}""",
    "constraints": constrained("MTLBuffer, alignments: [1x1x1], interleave: [1x1]"),
    "constraints_io": constrained("IOSurface, alignments: [1x2x64], interleave: [1x3]"),
    "constraints_heap": constrained("Heap, alignments: [1x1x1], interleave: [1x1]"),
}


def parsed(text):
    def build(_data):
        read = ir.Module.parse("module {\n" + text + "\n}")
        for op in list(read.body.operations):
            ir.InsertionPoint.current.block.append(op)

    return build


DATA = {
    "target_spec": {"x": f(4)},
    "sparse_constant": {"v": f(3)},
    "sparse_constants": {"v": f(2, 3)},
    "lut_to_sparse_constant": {"v": f(2, 3)},
    "reduce": {"x": f(3, 4)},
    "isolated_group": {"x": f(4)},
    "constraints": {"x": f(2, 3)},
    "constraints_io": {"x": f(2, 3)},
    "constraints_heap": {"x": f(2, 3)},
}
for key, text in TEXTS.items():
    CASES[key] = Case(None, DATA.get(key, {}), {}, parsed(text))


class Torch(Case):
    """A module of PyTorch, converted by coreai-torch, perhaps after coreai-opt compressed it."""

    def __init__(self, make, states=None, **data):
        super().__init__(None, data, {}, None, states)
        self.make = make

    def program(self):
        import torch
        from coreai_torch import TorchConverter, get_decomp_table

        torch.manual_seed(7)
        args = tuple(torch.from_numpy(v) for v in self.data.values())
        model = self.make(args)
        # What coreai-opt has captured as a graph has no mode to switch.
        model = model if isinstance(model, torch.fx.GraphModule) else model.eval()
        exported = torch.export.export(model, args=args).run_decompositions(get_decomp_table())
        return TorchConverter().add_exported_program(exported).to_coreai()


def torch_cases():
    """Small modules; nothing if PyTorch is not installed."""
    try:
        import torch
        from torch import nn
    except ImportError:
        return

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x):
            split = lambda t: t.reshape(1, 4, 2, 8).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)))

    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.LayerNorm(8), nn.GroupNorm(2, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            return self.c(self.b(self.a(x))) + nn.functional.rms_norm(x, (8,))

    class Lambda(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, *x):
            return self.f(*x)

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 3))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    mlp = lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1))
    convnet = lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 5))
    add = lambda name, make, **data: CASES.__setitem__(f"torch_{name}", Torch(make, **data))
    add("mlp", lambda _: mlp(), x=f(2, 8))
    add("convnet", lambda _: convnet(), x=f(1, 3, 8, 8))
    add("attention", lambda _: Attention(), x=f(1, 4, 16))
    add("norms", lambda _: Norms(), x=f(2, 4, 8))
    add("embedding", lambda _: nn.Embedding(10, 4), i=np.array([[1, 2], [9, 0]], np.int32))
    add("buffer", lambda _: Counter(), states={"b_total": f(2, 3)}, x=f(2, 3))
    add("lstm", lambda _: Lambda(lambda x, m=nn.LSTM(4, 3): m(x)[0]), x=f(2, 1, 4))
    add("upsample", lambda _: nn.Upsample(scale_factor=2, mode="bilinear"), x=f(1, 2, 3, 3))
    add("pool", lambda _: nn.AvgPool2d(2), x=f(1, 2, 4, 4))
    add("index", lambda _: Lambda(lambda x, i: x[:, i].cumsum(0).topk(2).values), x=f(3, 6), i=np.array([1, 4, 5], np.int64))
    add("transposed", lambda _: nn.ConvTranspose2d(3, 4, 3, 2, 1), x=f(1, 3, 4, 4))
    add("instance_norm", lambda _: nn.InstanceNorm2d(3, affine=True), x=f(1, 3, 4, 4))
    add("pixel_shuffle", lambda _: nn.PixelShuffle(2), x=f(1, 8, 3, 3))

    def compressed(config, wide=True):
        """A module whose weights coreai-opt compressed by what `config` returns."""

        def make(args):
            from coreai_opt.palettization import KMeansPalettizer, KMeansPalettizerConfig
            from coreai_opt.quantization import Quantizer

            inner = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) if wide else mlp()
            chosen = config()
            if isinstance(chosen, KMeansPalettizerConfig):
                tool = KMeansPalettizer(inner.eval(), chosen)
                tool.prepare(args)
                return tool.finalize()
            tool = Quantizer(inner.eval(), chosen)
            prepared = tool.prepare(args)
            with tool.calibration_mode():
                prepared(*args)
            return tool.finalize()

        return make

    def palettes(**options):
        from coreai_opt.palettization import KMeansPalettizerConfig
        from coreai_opt.palettization.config import ModuleKMeansPalettizerConfig
        from coreai_opt.palettization.spec import PalettizationSpec

        spec = {"weight": PalettizationSpec(**options)}
        fast = options.get("cluster_dim", 1) == 1
        return KMeansPalettizerConfig(global_config=ModuleKMeansPalettizerConfig(op_state_spec=spec, enable_fast_kmeans_mode=fast))

    def table():
        from coreai_opt.quantization.spec import QuantizationScheme, QuantizationSpec

        return palettes(n_bits=2, lut_qspec=QuantizationSpec(dtype=torch.int8, qscheme=QuantizationScheme.SYMMETRIC))

    def preset(module, name, of):
        return lambda: getattr(getattr(importlib.import_module(f"coreai_opt.{module}"), name).presets, of)()

    whole = lambda module, name: lambda: getattr(importlib.import_module(f"coreai_opt.{module}"), name)()
    add("palettized", compressed(whole("palettization", "KMeansPalettizerConfig"), False), x=f(2, 8))
    add("quantized", compressed(whole("quantization", "QuantizerConfig"), False), x=f(2, 8))
    for of in ("w8", "w4", "w4_per_block"):
        add(f"quantized_{of}", compressed(preset("quantization", "QuantizerConfig", of)), x=f(2, 32))
    for of in ("w4", "w6", "w8"):
        add(f"palettized_{of}", compressed(preset("palettization", "KMeansPalettizerConfig", of)), x=f(2, 32))
    for bits in (1, 2, 3):
        add(f"palettized_{bits}_bits", compressed(lambda bits=bits: palettes(n_bits=bits)), x=f(2, 32))
    add("palettized_scaled", compressed(lambda: palettes(enable_per_channel_scale=True)), x=f(2, 32))
    add("palettized_vectors", compressed(lambda: palettes(cluster_dim=2)), x=f(2, 32))
    add("palettized_table", compressed(table), x=f(2, 32))


def aicode(data):
    """The generic form of a file, without and with locations."""
    context = Context()._mlir_context
    with context:
        read = ir.Module.parse(data)
        texts = []
        for debug in (False, True):
            out = io.StringIO()
            read.operation.print(file=out, print_generic_op_form=True, enable_debug_info=debug, use_local_scope=debug)
            texts.append(out.getvalue())
    return texts


async def run(path, sample):
    """The outputs of `main`, and what its states hold after it."""
    async with AIModelAsset.load(path).executable() as model:
        function = model.load_function("main")
        # Models of coreai-torch have the names of PyTorch, and its 64-bit indices become 32-bit
        # ones.
        torch = path.name.startswith("torch_")
        names = function.desc.input_names if torch else sample.data
        values = [v.astype(np.int32) if torch and v.dtype == np.int64 else v for v in sample.data.values()]
        states = {k: NDArray(np.array(v)) for k, v in sample.states.items()}
        out = await function({k: NDArray(v) for k, v in zip(names, values)}, state=states)
        return {k: np.array(v.numpy()) for k, v in out.items()}, {k: np.array(v.numpy()) for k, v in states.items()}


def plain(value):
    """Arrays of types that `.npz` does not have are stored as bytes."""
    return value if value.dtype.kind in "biufc" and value.dtype.itemsize <= 16 and value.dtype.num < 24 else value.view(np.uint8)


def write(folder, name, sample):
    path = folder / f"{name}.aimodel"
    if isinstance(sample, Torch):
        sample.program().save_asset(path)
        return path
    m = Module.create()
    with m:
        if sample.build:
            sample.build(sample.data)
        else:
            specs = {k: spec(v, sample.shapes.get(k)) for k, v in sample.data.items()}
            graph("main", specs, sample.body)
    m.verify()
    AIProgram(m).save_asset(path)
    return path


def record(folder, name, path, sample):
    (folder / f"{name}.coreai.mlir").write_text(str(AIModelAsset.load(path).program))
    generic, debug = aicode((path / "main.mlirb").read_bytes())
    (folder / f"{name}.aicode.mlir").write_text(generic)
    (folder / f"{name}.debug.mlir").write_text(debug)
    try:
        out, after = asyncio.run(run(path, sample))
    except Exception as e:  # noqa: BLE001
        return f"{type(e).__name__}: {str(e)[:900]}"
    parts = {"in": sample.data, "out": out, "state": sample.states, "after": after}
    np.savez(folder / f"{name}.npz", **{f"{part}.{k}": plain(np.asarray(v)) for part, values in parts.items() for k, v in values.items()})
    return None


def one(folder, name, sample):
    shutil.rmtree(folder / f"{name}.aimodel", ignore_errors=True)
    try:
        path = write(folder, name, sample)
    except Exception as e:  # noqa: BLE001
        return {"written": False, "why": f"{type(e).__name__}: {str(e)[:900]}"}
    return {"written": True, "not run": record(folder, name, path, sample)}


def in_child(work):
    """The result of `work`, computed in a process of its own: coreai-core aborts on some programs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as results:
        text = results.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else {"written": False, "why": f"ends the process with status {status}"}


def main():
    folder, only = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    torch_cases()
    index = {}
    for name, sample in CASES.items():
        if only and name not in only:
            continue
        index[name] = in_child(lambda: one(folder, name, sample))
    (folder / "index.json").write_text(json.dumps(index, indent=1))
    written = [n for n, i in index.items() if i["written"]]
    found = set()
    for name in written:
        found |= set(re.findall(r'"aicode\.([\w.]+)"\(', (folder / f"{name}.aicode.mlir").read_text()))
    (folder / "ops.txt").write_text("\n".join(sorted(found)) + "\n")
    print(f"{len(written)} of {len(index)} written, {sum(not i.get('not run', 1) for i in index.values())} run, {len(found)} ops")
    for name, entry in index.items():
        if not entry["written"]:
            print(f"  {name}: {entry['why']}")


if __name__ == "__main__":
    main()
