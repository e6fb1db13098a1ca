#!/usr/bin/env python3
"""Blocks of every quantized type of GGUF with their values, for the tests of ferrane-gguf.

    python scripts/gguf_blocks.py crates/gguf/tests/data/blocks.gguf

Writes one GGUF file with the package `gguf` (made with 0.19.0; pip install gguf). For each type
it has a tensor `TYPE` of blocks with random bits and a tensor `TYPE.values` with the fp32 values
that gguf.dequantize gives for them. The scales of the first blocks are chosen: zero, negative,
subnormal, the largest. The metadata have a key of each type of value.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFEndian, GGUFWriter, dequantize
from gguf.constants import GGML_QUANT_SIZES

# Bits of fp16 numbers: 0, -0, smallest and largest subnormal, a negative subnormal, largest, 1,
# -0.3.
SCALES = [0x0000, 0x8000, 0x0001, 0x03FF, 0x83FF, 0x7BFF, 0x3C00, 0xB4CD]

# The places of the fp16 scales in a block, and the number of blocks.
QUANTIZED = {
    T.Q4_0: ([0], 12), T.Q4_1: ([0, 2], 12), T.Q5_0: ([0], 12), T.Q5_1: ([0, 2], 12), T.Q8_0: ([0], 12),
    T.IQ4_NL: ([0], 12), T.Q2_K: ([80, 82], 8), T.Q3_K: ([108], 8), T.Q4_K: ([0, 2], 8), T.Q5_K: ([0, 2], 8),
    T.Q6_K: ([208], 8), T.IQ4_XS: ([0], 8),
}


def finite(bits):
    """Replaces the exponent of infinities and NaN: their arithmetic differs between processors."""
    return np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits)


def main(path):
    random = np.random.default_rng(22)
    writer = GGUFWriter(path, "test", endianess=GGUFEndian.LITTLE)
    writer.add_uint8("value.u8", 200)
    writer.add_int8("value.i8", -100)
    writer.add_uint16("value.u16", 60000)
    writer.add_int16("value.i16", -30000)
    writer.add_uint32("value.u32", 4000000000)
    writer.add_int32("value.i32", -2000000000)
    writer.add_uint64("value.u64", 1 << 63)
    writer.add_int64("value.i64", -(1 << 62))
    writer.add_float32("value.f32", 0.1)
    writer.add_float64("value.f64", 0.1)
    writer.add_bool("value.bool", True)
    writer.add_string("value.string", "Grüße, 世界")
    writer.add_array("array.i32", [1, -2, 3])
    writer.add_array("array.f32", [0.5, -1.5])
    writer.add_array("array.bool", [True, False])
    writer.add_array("array.string", ["a", "", "▁b"])
    writer.add_array("array.nested", [[1, 2], [3]])

    def add(ty, blocks):
        blocks = np.ascontiguousarray(blocks)
        values = dequantize(blocks, ty).astype(np.float32)
        writer.add_tensor(ty.name, blocks, raw_dtype=ty)
        writer.add_tensor(ty.name + ".values", values.reshape(-1))

    add(T.F16, finite(random.integers(0, 1 << 16, 64, dtype=np.uint16)).astype("<u2").view(np.float16))
    add(T.BF16, np.append(random.integers(0, 0x7F80, 63), 0x8001).astype("<u2").view(np.uint8))
    for ty, (places, count) in QUANTIZED.items():
        size = GGML_QUANT_SIZES[ty][1]
        blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
        for index in range(count):
            for number, place in enumerate(places):
                # The second scale runs through the list from another place.
                chosen = (index + 3 * number) if index < len(SCALES) else None
                word = blocks[index, place : place + 2].view("<u2")
                word[:] = finite(word) if chosen is None else SCALES[chosen % len(SCALES)]
        # One tensor of one row for each block.
        add(ty, blocks)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(sys.argv[1])
