"""Runs an ONNX model in fp32 and in fp16, as the engine computes.

usage: run_onnx.py [MODEL NAME=EXTENT …]
"""

import sys
from pathlib import Path

import numpy as np

import ferrane

SMALL = Path(__file__).parents[2] / "onnx/tests/models/mlp.onnx"

path = sys.argv[1] if len(sys.argv) > 1 else SMALL
shapes = dict(item.split("=") for item in sys.argv[2:]) if len(sys.argv) > 1 else {"batch": "2"}
precise, half = ferrane.load(path, shapes=shapes), ferrane.load(path, shapes=shapes, fp16=True)
x = {port.name: np.random.default_rng(1).uniform(-1, 1, port.shape) for port in precise.inputs}
for (name, array), rounded in zip(precise.run(x).items(), half.run(x).values()):
    print(name, array.shape, "fp16 differs by", np.max(np.abs(array - rounded)))
