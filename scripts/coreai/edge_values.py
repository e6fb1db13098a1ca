"""Records what Apple's runtime computes for the operations of Core AI, on numbers at the edges of each element type.

    python scripts/coreai/edge_values.py crates/coreai/tests/numbers [PREFIX…]

Needs coreai-core, as samples.py says. A row is one operation on one element type, in one form: `add.f16`, `pad.i32.reflect`. Each row
is tried in a process of its own, because some end the process. The folder gets

    rows.mlirb.gz           a function for each row that runs, named like the row; its inputs are named like those of `inputs`
    inputs.safetensors.gz   the inputs, shared by the rows
    outputs.safetensors.gz  what Apple's runtime returns, `ROW/OUTPUT`
    stopped.txt             rows that coreai-core accepts and its runtime does not run, with the reason

With prefixes only rows that begin with one are recorded, which is for trials.
"""

import asyncio
import gzip
import itertools
import json
import os
import pickle
import re
import sys
import tempfile
from pathlib import Path

import coreai.authoring  # noqa: F401  (has to be imported first)
import ml_dtypes
import numpy as np
from coreai._compiler import ir
from coreai._compiler.dialects import coreai as ops
from coreai.authoring import AIModelAsset, AIProgram, Module
from coreai.runtime import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from samples import doubled, graph, ints, spec, tensor

S = np.int32
FLOATS = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f64": np.float64}
INTS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64}
BOOL = {"bool": np.bool_}
TYPES = FLOATS | INTS | BOOL
CODES = {"f16": "F16", "f32": "F32", "bf16": "BF16", "f64": "F64", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64", "u8": "U8",
         "u16": "U16", "u32": "U32", "u64": "U64", "bool": "BOOL"}
NAMES = {np.dtype(t): name for name, t in TYPES.items()}
np.seterr(all="ignore")


def info(kind):
    return ml_dtypes.finfo(TYPES[kind]) if kind in FLOATS else np.iinfo(TYPES[kind])


def edges(kind, short=False):
    """Numbers at the edges of a type; the short list is for pairs. Those of 64 bits have counterparts in 32 bits, as all that MIL has."""
    if kind == "bool":
        return np.array([False, True])
    t, limits = TYPES[kind], info(kind)
    if kind in ("i64", "u64"):
        return np.array([0, 1, 2, 3, 7, 10, 100, 999] + ([-1, -2, -3, -7, -50] if kind == "i64" else [])).astype(t)
    if kind in INTS:
        low, high = int(limits.min), int(limits.max)
        near = [0, 1, 2, 3, 7, 10, 100, high, high - 1, high // 2 + 1, low, low + 1] + ([-1, -2, -3, -7] if low < 0 else [])
        far = [5, 11, 13, 64, 99, high // 3, high // 2] + ([-10, -64, -100, low // 2] if low < 0 else [])
        return np.array(near if short else near + far, dtype=np.object_).astype(t)
    if kind == "f64":
        return edges("f32", short).astype(t)
    big, tiny, least = float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)
    near = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, big, -big, least, np.inf, -np.inf, np.nan]
    far = [-0.5, 1.5, 2.5, 3.5, -1.5, -3.5, 0.1, -0.1, 0.3, 0.9990234375, -0.9990234375, 2.0, -2.0, -3.0, 5.0, 10.0, -10.0, 15.9,
           -17.3, 88.0, -88.0, 100.0, 1000.5, -1000.5, tiny, -tiny, -least, big / 2, float(limits.eps), -float(limits.eps)]
    return np.array(near if short else near + far).astype(t)


def plain(kind, *shape, seed=0):
    """Numbers that every type has, in no order."""
    count = int(np.prod(shape, dtype=int))
    values = (np.arange(count) * 7919 + 31 * seed + 5) % 23
    if kind == "bool":
        return (values % 2 == 0).reshape(shape)
    signed = values - (11 if kind[0] != "u" else 0)
    return (signed / 4 if kind in FLOATS else signed).reshape(shape).astype(TYPES[kind])


class Row:
    def __init__(self, body, inputs, text=None):
        self.body, self.inputs, self.text = body, inputs, text


ROWS = {}
INPUTS = {}


def shared(value):
    """The name under which an input is stored; equal inputs share it."""
    value = np.ascontiguousarray(value).reshape(np.shape(value))
    key = (NAMES[value.dtype], value.shape, value.tobytes())
    return INPUTS.setdefault(key, f"{key[0]}_{len(INPUTS)}")


def row(name, body, *inputs):
    assert name not in ROWS, name
    named = {}
    for value in inputs:
        key = shared(value)
        while key in named:
            key += "_"
        named[key] = np.asarray(value)
    ROWS[name] = Row(body, named)


def pairs(kind, short=True):
    x = edges(kind, short)
    return [np.repeat(x, len(x)), np.tile(x, len(x))]


# Functions of one operand.
for op in "abs_ acos acosh asin asinh atan atanh cos cosh erf exp log relu round_ rsqrt sigmoid silu sin sinh sqrt tan tanh not_".split():
    for kind in TYPES:
        row(f"{op.strip('_')}.{kind}", getattr(ops, op), edges(kind))
for approximate in ("none", "tanh"):
    for kind in TYPES:
        row(f"gelu.{kind}.{approximate}", lambda x, a=approximate: ops.gelu(x, approximate=a), edges(kind))
row("add.i64.beyond", ops.add, np.array([2**31 - 1, 2**40]), np.array([1, 2]))
for rank, shape in enumerate(((), (1,), (3, 1), (1, 5, 3), (2, 1, 3, 1), (1, 2, 1, 2, 3))):
    row(f"tanh.f32.rank{rank}", ops.tanh, plain("f32", *shape))
    row(f"abs.i16.rank{rank}", ops.abs_, plain("i16", *shape))
    row(f"add.f16.rank{rank}", ops.add, plain("f16", *shape), plain("f16", *shape, seed=1))
    row(f"mul.u8.rank{rank}", ops.mul, plain("u8", *shape), plain("u8", *shape, seed=1))

# Functions of two operands. Integers are divided by 0, and the least one by -1, in rows of their
# own.
for op in "add sub mul divide floor_divide maximum minimum modulo pow_ equal not_equal greater and_ or_ xor_ bitwise_and bitwise_or bitwise_xor".split():
    name = op.strip("_")
    for kind in TYPES:
        x, y = pairs(kind)
        if kind in INTS and name in ("divide", "floor_divide", "modulo"):
            least = np.iinfo(TYPES[kind]).min
            zero = y == 0
            over = (x == least) & (y == TYPES[kind](-1)) if least < 0 else np.zeros_like(zero)
            row(f"{name}.{kind}", getattr(ops, op), x[~zero & ~over], y[~zero & ~over])
            row(f"{name}.{kind}.by_zero", getattr(ops, op), x[zero], y[zero])
            if over.any():
                row(f"{name}.{kind}.overflow", getattr(ops, op), x[over], y[over])
        elif kind in INTS and name == "pow":
            negative = y < 0
            row(f"{name}.{kind}", getattr(ops, op), x[~negative], y[~negative])
            if negative.any():
                row(f"{name}.{kind}.negative", getattr(ops, op), x[negative], y[negative])
        else:
            row(f"{name}.{kind}", getattr(ops, op), x, y)
for op in "add sub mul divide floor_divide maximum minimum modulo pow equal not_equal greater and or xor bitwise_and bitwise_or bitwise_xor".split():
    name = f"broadcasting_{op}"
    for kind in TYPES:
        x, y = plain(kind, 3, 1, 2), plain(kind, 4, 1, seed=3)
        if op in ("divide", "floor_divide", "modulo") and kind != "bool":
            y = np.where(y == 0, TYPES[kind](1), y)
        if op == "pow" and kind in INTS:
            y = np.abs(y) if kind[0] == "i" else y
        row(f"{name}.{kind}", getattr(ops, name), x, y)
    for form, a, b in (("scalar", (), (2, 3)), ("ranks", (2, 1, 3, 1, 2), (1, 4, 2)), ("ones", (1, 1), (1,)), ("left", (1, 3), (2, 1))):
        kind = "bool" if op in ("and", "or", "xor") else "i32" if op.startswith("bitwise") else "f32"
        x, y = plain(kind, *a, seed=2), plain(kind, *b, seed=4)
        row(f"{name}.{kind}.{form}", getattr(ops, name), x, np.abs(y) + 1 if kind == "f32" else y)
for kind in TYPES:
    x = edges(kind)
    c = np.arange(len(x)) % 3 == 0
    row(f"where.{kind}", ops.where, c, x, x[::-1].copy())
    row(f"broadcasting_where.{kind}", ops.broadcasting_where, plain("bool", 3, 1), plain(kind, 4), plain(kind, 2, 1, 1, seed=5))
    row(f"broadcasting_where.{kind}.scalar", ops.broadcasting_where, np.array(True), plain(kind, 2, 2), plain(kind, seed=5))

# Casts: numbers that fit, and numbers that do not.
for kind, to in itertools.product(TYPES, TYPES):
    x = edges(kind)
    if to in INTS and kind != "bool":
        exact = [int(v) if np.isfinite(v) else None for v in x.astype(np.float64 if kind in FLOATS else np.object_)]
        fits = np.array([v is not None and np.iinfo(TYPES[to]).min <= v <= np.iinfo(TYPES[to]).max for v in exact])
        row(f"cast.{kind}.to_{to}", lambda x, t=to: ops.cast(x, TYPES[t]), x[fits])
        if not fits.all():
            row(f"cast.{kind}.to_{to}_beyond", lambda x, t=to: ops.cast(x, TYPES[t]), x[~fits])
    else:
        row(f"cast.{kind}.to_{to}", lambda x, t=to: ops.cast(x, TYPES[t]), x)


# Reductions, scans and orders.
def special(kind):
    """Rows with -0.0, an infinity, both infinities, and no number; of integers with the largest and the least."""
    if kind == "bool":
        return np.array([[0, 0, 0], [1, 1, 1], [0, 1, 0]], bool)
    if kind in INTS:
        narrow = TYPES[kind.replace("64", "16")]
        low, high = int(np.iinfo(narrow).min), int(np.iinfo(narrow).max)
        return np.array([[low, high, 1], [high, high, 2], [low, low, 3], [5, 5, 5]], np.object_).astype(TYPES[kind])
    big, inf, nan = float(info("f32" if kind == "f64" else kind).max), np.inf, np.nan
    return np.array([[-0.0, 0.0, -0.0], [inf, 1, 2], [inf, -inf, 1], [nan, 1, 2], [1, 2, nan], [-inf, -inf, -inf], [big, big, -big], [-inf, 0, 1]]).astype(TYPES[kind])


for op in "reduce_max reduce_mean reduce_min reduce_product reduce_sum".split():
    for kind in TYPES:
        f = getattr(ops, op)
        row(f"{op}.{kind}", lambda x, f=f: f(x, ints(1, dtype=S)), plain(kind, 2, 3, 4))
        row(f"{op}.{kind}.all", lambda x, f=f: f(x, ints(0, -1, 1, dtype=S)), plain(kind, 2, 3, 3))
        row(f"{op}.{kind}.edges", lambda x, f=f: f(x, ints(-1, dtype=S)), special(kind))
    for form, shape, axes in (("rank5", (2, 1, 3, 2, 2), (0, 3)), ("extent1", (3, 1), (1,)), ("none", (2, 3), ()), ("rank1", (7,), (0,)), ("empty", (2, 0), (1,))):
        row(f"{op}.f32.{form}", lambda x, f=f, a=axes: f(x, np.array(a, S)), plain("f32", *shape))
for op in ("all_", "any_"):
    f = getattr(ops, op)
    row(f"{op.strip('_')}.bool", lambda x, f=f: f(x, ints(1, dtype=S)), special("bool"))
    row(f"{op.strip('_')}.bool.all", lambda x, f=f: f(x, ints(0, 1, 2, dtype=S)), plain("bool", 2, 3, 2))
    row(f"{op.strip('_')}.bool.none", lambda x, f=f: f(x, np.array([], S)), plain("bool", 2, 2))
    row(f"{op.strip('_')}.bool.empty", lambda x, f=f: f(x, ints(1, dtype=S)), plain("bool", 2, 0))
for kind in TYPES:
    row(f"argmax.{kind}", lambda x: ops.argmax(x, np.int32(1)), plain(kind, 3, 9))
    row(f"argmax.{kind}.edges", lambda x: ops.argmax(x, np.int32(-1)), special(kind))
    for down in (False, True) if kind in FLOATS or kind in ("i8", "i32", "u16", "u32") else (True,):
        form = "down" if down else "up"
        row(f"argsort.{kind}.{form}", lambda x, d=down: ops.argsort(x, np.int32(0), np.bool_(d), np.bool_(True)), plain(kind, 9, 2))
        row(f"sort.{kind}.{form}", lambda x, d=down: ops.sort(x, np.int32(-1), np.bool_(d), np.bool_(True)), plain(kind, 2, 9))
        row(f"sort.{kind}.edges_{form}", lambda x, d=down: ops.sort(x, np.int32(1), np.bool_(d), np.bool_(True)), special(kind))
        row(f"argsort.{kind}.edges_{form}", lambda x, d=down: ops.argsort(x, np.int32(1), np.bool_(d), np.bool_(True)), special(kind))
    for combiner in ("sum", "product", "max", "min") if kind in ("f16", "f32", "bf16", "i8", "i32", "u8", "u32") else ():
        row(f"scan.{kind}.{combiner}", lambda x, c=combiner: ops.scan(x, np.uint32(1), np.bool_(False), combiner=c), plain(kind, 2, 5))
        row(f"scan.{kind}.{combiner}_back", lambda x, c=combiner: ops.scan(x, np.uint32(0), np.bool_(True), combiner=c), plain(kind, 5, 1, seed=2))
        row(f"scan.{kind}.{combiner}_edges", lambda x, c=combiner: ops.scan(x, np.uint32(1), np.bool_(False), combiner=c), special(kind))
    row(f"softmax.{kind}", lambda x: ops.softmax(x, np.int32(-1)), plain(kind, 3, 5))
    row(f"softmax.{kind}.edges", lambda x: ops.softmax(x, np.int32(1)), special(kind))
row("softmax.f32.rank5", lambda x: ops.softmax(x, np.int32(2)), plain("f32", 2, 1, 3, 1, 2))
row("softmax.f32.extent1", lambda x: ops.softmax(x, np.int32(0)), plain("f32", 1, 4))
row("softmax.f16.long", lambda x: ops.softmax(x, np.int32(0)), plain("f16", 129))

# Moves of elements. Those of 64 bits and unsigned ones move as the others do.
MOVED = ("f16", "f32", "bf16", "i8", "i16", "i32", "i64", "u8", "bool")
for kind in MOVED:
    zero = TYPES[kind](0)
    row(f"reshape.{kind}", lambda x: ops.reshape(x, ints(3, -1, dtype=S)), plain(kind, 2, 6))
    row(f"transpose.{kind}", lambda x: ops.transpose(x, ints(2, 0, 1)), plain(kind, 2, 3, 4))
    row(f"expand_dims.{kind}", lambda x: ops.expand_dims(x, ints(0, -1, dtype=S)), plain(kind, 2, 3))
    row(f"shrink_dims.{kind}", lambda x: ops.shrink_dims(x, ints(-2, dtype=S)), plain(kind, 2, 1, 3))
    row(f"concat.{kind}", lambda x, y: ops.concat(np.int32(-1), [x, y, x]), plain(kind, 2, 3), plain(kind, 2, 1, seed=1))
    row(f"split.{kind}", lambda x: ops.split(x, ints(1, 2, 3), np.int32(-1)), plain(kind, 2, 6))
    row(f"slice.{kind}", lambda x: ops.slice_(x, ints(0, -5, dtype=S), ints(9, 6, dtype=S), ints(1, 2, dtype=S)), plain(kind, 2, 6))
    row(f"slice.{kind}.back", lambda x: ops.slice_(x, ints(1, 5, dtype=S), ints(-9, 0, dtype=S), ints(-1, -2, dtype=S)), plain(kind, 2, 6))
    row(f"slice_update.{kind}", lambda x, u: ops.slice_update(x, ints(0, 1, dtype=S), ints(2, -1, dtype=S), ints(1, 2, dtype=S), u), plain(kind, 2, 6), plain(kind, 2, 2, seed=1))
    row(f"tile.{kind}", lambda x: ops.tile(x, ints(2, 1)), plain(kind, 2, 3))
    row(f"reverse.{kind}", lambda x: ops.reverse(x, ints(1, dtype=S)), plain(kind, 2, 3))
    for mode in ("constant", "reflect", "replicate"):
        row(f"pad.{kind}.{mode}", lambda x, m=mode, z=zero: ops.pad(x, ints(1, 0, 2, 3), z, padding_mode=m), plain(kind, 3, 4))
    row(f"broadcast_to.{kind}", lambda x: ops.broadcast_to(x, ints(3, 2, 4)), plain(kind, 2, 1))
    row(f"broadcast_in_dims.{kind}", lambda x: ops.broadcast_in_dims(x, ints(3), ints(0, dtype=S)), plain(kind, 1, 2))
    row(f"get_shape.{kind}", ops.get_shape, plain(kind, 2, 3))
    row(f"constant.{kind}", lambda k=kind: ops.constant(edges(k), dtype=TYPES[k]))
    row(f"non_zero.{kind}", ops.non_zero, plain(kind, 3, 4))
    index = np.array([[-1, 2, 2], [0, -6, 5]], S)
    row(f"gather_along_axis.{kind}", lambda x, i: ops.gather_along_axis(x, i, np.int32(1)), plain(kind, 2, 6), index)
    row(f"gather_nd.{kind}", ops.gather_nd, plain(kind, 3, 6), np.array([[0, -1], [2, 3], [2, 3]], S))
    row(f"gather_nd.{kind}.rows", ops.gather_nd, plain(kind, 3, 2, 2), np.array([[-1], [0]], S))
    row(f"scatter_nd.{kind}", ops.scatter_nd, plain(kind, 3, 6), np.array([[-1], [0]], S), plain(kind, 2, 6, seed=1))
    row(f"scatter_nd.{kind}.again", ops.scatter_nd, plain(kind, 4), np.array([[1], [1], [-3]], S), plain(kind, 3, seed=1))
    unique = np.array([[0, -1, 2], [1, 5, -2]], S)
    for mode in ("update", "add", "sub", "mul", "div", "max", "min"):
        attribute = f"#coreai.scatter_mode<{mode}>"
        body = lambda x, i, u, a=attribute: ops.scatter_along_axis(x.type, x, i, u, np.int32(1), ir.Attribute.parse(a))
        u = plain(kind, 2, 3, seed=1)
        u = np.where(u == 0, TYPES[kind](1), u) if mode == "div" else u
        row(f"scatter_along_axis.{kind}.{mode}", body, plain(kind, 2, 6), unique, u)
        row(f"scatter_along_axis.{kind}.{mode}_again", body, plain(kind, 2, 6), np.array([[0, 0, 2], [5, 5, -1]], S), u)
    if kind != "bool":
        one = TYPES[kind](1)
        row(f"range.{kind}", lambda k=TYPES[kind]: ops.range_(k(1), k(10), k(3)))
        row(f"range.{kind}.open", lambda x, k=TYPES[kind]: ops.range_(x, k(9), k(2)), np.array(one))
        if kind[0] != "u":
            row(f"range.{kind}.down", lambda k=TYPES[kind]: ops.range_(k(5), k(-5), k(-3)))
row("concat.f32.rank1", lambda x, y: ops.concat(np.int32(0), [x, y]), plain("f32", 1), plain("f32", 5))
row("concat.f32.empty", lambda x, y: ops.concat(np.int32(1), [x, y]), plain("f32", 2, 0), plain("f32", 2, 2))
row("tile.f32.inner", lambda x: ops.tile(x, ints(3)), plain("f32", 2, 2))
row("tile.f32.rank5", lambda x: ops.tile(x, ints(2, 1, 1, 3, 1)), plain("f32", 1, 2, 1, 1, 2))
row("transpose.f32.rank5", lambda x: ops.transpose(x, ints(4, 2, 0, 3, 1)), plain("f32", 2, 1, 3, 2, 2))
row("reverse.f32.rank5", lambda x: ops.reverse(x, ints(0, -1, 2, dtype=S)), plain("f32", 2, 1, 3, 2, 2))
row("reshape.f32.scalar", lambda x: ops.reshape(x, np.array([], np.uint32)), plain("f32", 1, 1))
row("broadcast_shapes.i32", lambda x, y: ops.broadcast_shapes(ops.get_shape(x), ops.get_shape(y)), plain("f32", 2, 1), plain("f32", 3))

# Products, convolutions, pools and resizes.
for kind in ("f16", "f32", "bf16", "f64", "i8", "i16", "i32", "u8"):
    row(f"batch_matmul.{kind}", ops.batch_matmul, plain(kind, 2, 3, 4), plain(kind, 2, 4, 5, seed=1))
    row(f"batch_matmul.{kind}.plain", ops.batch_matmul, plain(kind, 1, 7), plain(kind, 7, 1, seed=1))
    row(f"broadcasting_batch_matmul.{kind}", ops.broadcasting_batch_matmul, plain(kind, 2, 1, 3, 4), plain(kind, 3, 4, 2, seed=1))
    x2, x3 = plain(kind, 1, 2, 5, 6), plain(kind, 1, 2, 3, 4, 3)
    row(f"conv2d.{kind}", lambda x, k=kind: ops.conv2d(x, plain(k, 3, 2, 2, 3, seed=1), ints(1, 1), ints(1, 1), np.uint32(1)), x2)
    row(f"conv2d.{kind}.groups", lambda x, k=kind: ops.conv2d(x, plain(k, 4, 1, 3, 2, seed=1), ints(2, 1), ints(1, 2), np.uint32(2)), x2)
    row(f"conv3d.{kind}", lambda x, k=kind: ops.conv3d(x, plain(k, 2, 2, 2, 2, 2, seed=1), ints(1, 2, 1), ints(1, 1, 1), np.uint32(1)), x3)
    row(f"conv_transpose2d.{kind}", lambda x, k=kind: ops.conv_transpose2d(x, plain(k, 2, 3, 3, 2, seed=1), ints(2, 1), ints(1, 0), ints(1, 2), ints(1, 0), np.uint32(1)), x2)
    row(f"conv_transpose3d.{kind}", lambda x, k=kind: ops.conv_transpose3d(x, plain(k, 2, 2, 2, 2, 2, seed=1), ints(1, 2, 1), ints(0, 0, 0), ints(1, 1, 1), ints(0, 0, 0), np.uint32(1)), x3)
    row(f"max_pool_2d.{kind}", lambda x, k=TYPES[kind]: ops.maxpool2d(tensor((1, 2, 2, 3), k), x, ints(2, 2), ints(2, 2), ints(1, 1), np.bool_(False)), x2)
    row(f"max_pool_2d.{kind}.ceil", lambda x, k=TYPES[kind]: ops.maxpool2d(tensor((1, 2, 3, 3), k), x, ints(2, 2), ints(2, 2), ints(1, 1), np.bool_(True)), x2)
    row(f"max_pool_3d.{kind}", lambda x, k=TYPES[kind]: ops.maxpool3d(tensor((1, 2, 1, 2, 2), k), x, ints(2, 2, 2), ints(2, 2, 1), ints(1, 1, 1), np.bool_(False)), x3)
    row(f"sum_pool_2d.{kind}", lambda x: ops.sumpool2d(x, ints(2, 3), ints(2, 1), ops.constant(ints(1, 1))), x2)
    row(f"sum_pool_3d.{kind}", lambda x: ops.sumpool3d(x, ints(2, 2, 1), ints(1, 2, 1), ops.constant(ints(1, 1, 1))), x3)
    for mode in ("nearest_neighbor", "linear"):
        attribute = f"#coreai.interpolation_mode<{mode}>"
        resize = lambda x, out, scale, offset, a=attribute: ops.interpolate(x, ints(*out, dtype=S), np.array(scale, np.float32), np.array(offset, np.float32), interpolation_mode=ir.Attribute.parse(a))
        form = mode.split("_")[0]
        row(f"interpolate.{kind}.{form}", lambda x, r=resize: r(x, (1, 2, 7, 5), (1, 1, 7 / 3, 5 / 4), (0, 0, 0, 0)), plain(kind, 1, 2, 3, 4))
        row(f"interpolate.{kind}.{form}_corners", lambda x, r=resize: r(x, (1, 2, 5, 7), (1, 1, 2, 2), (0, 0, -0.5, -0.5)), plain(kind, 1, 2, 3, 4))
        row(f"interpolate.{kind}.{form}_smaller", lambda x, r=resize: r(x, (3, 2), (0.5, 0.5), (0, 0)), plain(kind, 6, 4))
        places = np.array([[0, 0], [0.5, 1.25], [1.5, 2], [-0.75, 0.5], [2, 2.5], [9, -9]], np.float32)
        row(f"interpolate_coordinates.{kind}.{form}", lambda x, c, a=attribute: ops.interpolate_coordinates(x, c, interpolation_mode=ir.Attribute.parse(a)), plain(kind, 3, 3), places)
for kind in ("f16", "f32"):
    x = special(kind)
    row(f"batch_matmul.{kind}.edges", ops.batch_matmul, x, np.array([[1, 0], [0, 1], [1, -1]], TYPES[kind]))
    row(f"max_pool_2d.{kind}.edges", lambda x, k=TYPES[kind]: ops.maxpool2d(tensor((1, 1, 4, 3), k), x, ints(2, 1), ints(2, 1), ints(1, 1), np.bool_(False)), x[None, None])
    row(f"sum_pool_2d.{kind}.edges", lambda x: ops.sumpool2d(x, ints(1, 3), ints(1, 1), ops.constant(ints(1, 1))), x[None, None])
row("batch_matmul.f32.long", ops.batch_matmul, plain("f32", 1, 257), plain("f32", 257, 2))
row("batch_matmul.f16.long", ops.batch_matmul, plain("f16", 1, 257), plain("f16", 257, 2))
row("batch_matmul.f32.rank5", ops.batch_matmul, plain("f32", 1, 2, 1, 2, 3), plain("f32", 1, 2, 1, 3, 1))

# Quantization and compressed weights. The element type is that of the floating-point side.
for kind in FLOATS:
    t = TYPES[kind]
    scales, zeros = np.array([0.1, 0.2, 0.3]).astype(t), np.zeros(3).astype(t)
    wide = np.array([[-99, 0.05, 0.45], [0.15, -0.1, 99], [0.25, 0.3, -0.75], [np.inf, -np.inf, 0.0]]).astype(t)
    for store in (np.int8, np.uint8):
        name = NAMES[np.dtype(store)]
        q = plain(name, 4, 3)
        row(f"quantize.{kind}.{name}", lambda x, s=store, a=scales, z=zeros: ops.quantize(x, a, np.full(3, 7, s), z, np.int32(1)), wide)
        row(f"quantize.{kind}.{name}_nan", lambda x, s=store, a=scales, z=zeros: ops.quantize(x, a, np.full(3, 7, s), z, np.int32(1)), np.full((1, 3), np.nan).astype(t))
        row(f"dequantize.{kind}.{name}", lambda x, s=store, a=scales, z=zeros: ops.dequantize(x, a, np.array([1, 2, 120], s), z, np.int32(1)), q)
        row(f"dequantize.{kind}.{name}_edges", lambda x, s=store, a=scales, z=zeros: ops.dequantize(x, a, np.array([1, 2, 120], s), z + a, np.int32(1)), np.resize(edges(name), (4, 3)))
        row(f"blockwise_shift_scale.{kind}.{name}", lambda x, s=store, k=kind: ops.blockwise_shift_scale(x, plain(k, 2, 2), np.ones((2, 2), s), np.zeros((2, 2), TYPES[k])), plain(name, 4, 6))
        row(f"lut_to_dense.{kind}.{name}", lambda x, k=kind: ops.lut_to_dense(x, plain(k, 1, 1, 256, 1), np.int16(0)), plain("u8", 2, 4))
    row(f"symmetric_quantization_statistics.{kind}", lambda x: ops.symmetric_quant_stats(x, ints(-128, 127, dtype=S), np.int32(1)), plain(kind, 2, 3))
    row(f"asymmetric_quantization_statistics.{kind}", lambda x: ops.asymmetric_quant_stats(x, ints(-128, 127, dtype=S), np.int32(1)), plain(kind, 2, 3))
    row(f"symmetric_quantization_statistics.{kind}.zero", lambda x: ops.symmetric_quant_stats(x, ints(-128, 127, dtype=S), np.int32(1)), plain(kind, 2, 3) * t(0))
    row(f"asymmetric_quantization_statistics.{kind}.zero", lambda x: ops.asymmetric_quant_stats(x, ints(-128, 127, dtype=S), np.int32(1)), plain(kind, 2, 3) * t(0))


# What only text says. `$x` is the name of an input.
SPELLED = {"f16": "f16", "f32": "f32", "i8": "si8"}


def text(name, body, **inputs):
    named = {shared(v): np.asarray(v) for v in inputs.values()}
    assert name not in ROWS and len(named) == len(inputs), name
    for key, new in zip(inputs, named):
        body = body.replace(f"${key}", new)
    ROWS[name] = Row(None, named, body)


REDUCE = """coreai.graph @main(%x: tensor<4x3xf32> {coreai.name = "$x"}) -> (tensor<4x1xf32> {coreai.name = "y"}) {
  %a = coreai.constant dense<1> : tensor<1xsi32>
  %i = coreai.constant dense<-1.0e+30> : tensor<f32>
  %r = "coreai.reduce"(%x, %a, %i) ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = coreai.add %p, %q : (tensor<f32>, tensor<f32>) -> tensor<f32>
    coreai.yield %s : tensor<f32>
  }) : (tensor<4x3xf32>, tensor<1xsi32>, tensor<f32>) -> tensor<4x1xf32>
  coreai.output %r : tensor<4x1xf32>
}"""
INDEX = """coreai.graph @main(%x: tensor<4x3xf32> {coreai.name = "$x"}) -> (tensor<4x1xui32> {coreai.name = "y"}) {
  %a = coreai.constant dense<1> : tensor<si32>
  %v = coreai.constant dense<-1.0e+30> : tensor<f32>
  %i = coreai.constant dense<0> : tensor<ui32>
  %r = "coreai.reduce_index"(%x, %a, %v, %i) ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = coreai.greater %q, %p : (tensor<f32>, tensor<f32>) -> tensor<i1>
    coreai.yield %s : tensor<i1>
  }) : (tensor<4x3xf32>, tensor<si32>, tensor<f32>, tensor<ui32>) -> tensor<4x1xui32>
  coreai.output %r : tensor<4x1xui32>
}"""
text("reduce.f32", REDUCE, x=plain("f32", 4, 3))
text("reduce_index.f32", INDEX, x=plain("f32", 4, 3))
for kind, values in (("f16", np.array([1.5, -2.0, np.inf], np.float16)), ("f32", np.array([np.nan, -0.0, 3e38], np.float32)), ("i8", np.array([-128, 127, 0], np.int8))):
    t = SPELLED[kind]
    sparse = f"tensor<2x3x{t}, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>>"
    text(f"build_sparse_with_bitmask.{kind}", f"""coreai.graph @main(%v: tensor<3x{t}> {{coreai.name = "$v"}}) -> (tensor<2x3x{t}> {{coreai.name = "y"}}) {{
  %m = coreai.constant dense<[[1, 0, 1], [0, 1, 0]]> : tensor<2x3xui1>
  %s = "coreai.build_sparse_with_bitmask"(%v, %m) : (tensor<3x{t}>, tensor<2x3xui1>) -> {sparse}
  %d = "coreai.sparse_with_bitmask_to_dense"(%s) : ({sparse}) -> tensor<2x3x{t}>
  coreai.output %d : tensor<2x3x{t}>
}}""", v=values)
row("real_part.f32", lambda x, y: ops.real_part(ops.create_complex(x, y)), edges("f32"), edges("f32")[::-1].copy())
row("imaginary_part.f32", lambda x, y: ops.imaginary_part(ops.create_complex(x, y)), edges("f32"), edges("f32")[::-1].copy())


def branch(c, x, y):
    result, (then, other) = ops.if_([x.type], c)
    with then:
        ops.yield_([ops.maximum(x, y)])
    with other:
        ops.yield_([ops.minimum(x, y)])
    return result


for kind in ("f16", "f32", "i32", "u8"):
    row(f"if.{kind}.true", branch, np.array(True), plain(kind, 3), plain(kind, 3, seed=1))
    row(f"if.{kind}.false", branch, np.array(False), plain(kind, 3), plain(kind, 3, seed=1))
    row(f"while.{kind}.never", doubled, np.array(0, S), plain(kind, 3))
    row(f"while.{kind}.often", doubled, np.array(5, S), np.minimum(plain(kind, 3), 3))


def written(rows, path, own=None):
    """A model with a function for each row, called `own` or like the row. Without locations, which name this file."""
    m = Module.create()
    with m, ir.Location.unknown():
        for name, one in rows.items():
            if one.text:
                read = ir.Module.parse("module {\n" + one.text.replace("@main", f'@"{own or name}"') + "\n}")
                for op in list(read.body.operations):
                    ir.InsertionPoint.current.block.append(op)
                continue
            graph(own or name, {k: spec(v) for k, v in one.inputs.items()}, one.body)
    m.verify()
    AIProgram(m).save_asset(path)


async def computed(path, one):
    async with AIModelAsset.load(path).executable() as model:
        out = await model.load_function("main")({k: NDArray(v) for k, v in one.inputs.items()})
        return {k: np.array(v.numpy()) for k, v in out.items()}


def tried(name, one):
    """What the runtime returns, or why it does not; `None` if coreai-core does not accept the program."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "m.aimodel"
        try:
            written({name: one}, path, "main")
        except Exception:  # noqa: BLE001
            return None
        try:
            return asyncio.run(computed(path, one))
        except Exception as e:  # noqa: BLE001
            return f"{type(e).__name__}: {e}"


def in_child(work):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(reader)
        with os.fdopen(writer, "wb") as out:
            pickle.dump(work(), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as results:
        data = results.read()
    status = os.waitpid(child, 0)[1]
    return pickle.loads(data) if data else f"it ends the process with signal {os.WTERMSIG(status)}"


def safetensors(tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        start, data = len(data), data + array.tobytes()
        header[name] = {"dtype": CODES[NAMES[array.dtype]], "shape": list(array.shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def main():
    target, prefixes = Path(sys.argv[1]), tuple(sys.argv[2:])
    rows, outputs, inputs, stopped, unknown = {}, {}, {}, [], []
    for name, one in ROWS.items():
        if prefixes and not name.startswith(prefixes):
            continue
        found = in_child(lambda: tried(name, one))
        if isinstance(found, str):
            reason = re.sub(r"\s+", " ", found)[:160]
            stopped.append(f"{name}: {reason}")
        elif found is None:
            unknown.append(name)
        else:
            rows[name] = one
            outputs |= {f"{name}/{k}": v for k, v in found.items()}
            inputs |= {k.rstrip("_"): v for k, v in one.inputs.items()}
    with tempfile.TemporaryDirectory() as place:
        written(rows, Path(place) / "m.aimodel")
        program = (Path(place) / "m.aimodel" / "main.mlirb").read_bytes()
    target.mkdir(parents=True, exist_ok=True)
    for name, data in {"rows.mlirb": program, "inputs.safetensors": safetensors(inputs), "outputs.safetensors": safetensors(outputs)}.items():
        (target / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    (target / "stopped.txt").write_text("".join(s + "\n" for s in stopped))
    print(f"{len(rows)} rows run, {len(stopped)} do not, {len(unknown)} are no programs; {sum(f.stat().st_size for f in target.iterdir())} bytes")
    for name in unknown:
        print(f"  no program: {name}")


if __name__ == "__main__":
    main()
