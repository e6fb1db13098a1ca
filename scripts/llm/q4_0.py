#!/usr/bin/env python3
"""A tensor that the Python package `gguf` quantized to Q4_0, for a test of the int4 weights of generation.

    python scripts/llm/q4_0.py crates/llm/tests/data/q4_0.gguf

Made with gguf 0.19.0 (pip install gguf). The rows have the magnitudes of weights, of biases and of
outliers; one block is zero.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize


def main(path):
    random = np.random.default_rng(4)
    rows = random.standard_normal((8, 128)).astype(np.float32)
    rows *= np.float32([0.02, 0.02, 1e-3, 1e-3, 5.0, 5.0, 300.0, 0.02])[:, None]
    rows[0, 40] = 3.0
    rows[3, 64:96] = 0.0
    writer = GGUFWriter(path, "test")
    writer.add_tensor("weight", quantize(rows, GGMLQuantizationType.Q4_0), raw_dtype=GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(sys.argv[1])
