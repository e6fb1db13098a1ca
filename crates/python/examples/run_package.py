"""Runs a Core ML package with random numbers, and again with inputs of another shape that it allows.

usage: run_package.py [PACKAGE]
"""

import sys
from pathlib import Path

import numpy as np

import ferrane

CONVERTED = Path(__file__).parents[2] / "suite/fixtures/converted"

model = ferrane.load(sys.argv[1] if len(sys.argv) > 1 else CONVERTED / "conv_range.mlpackage")
print(model)
draws = np.random.default_rng(1)
inputs = {port.name: draws.uniform(-1, 1, port.shape).astype(np.float32) for port in model.inputs}
for name, array in model.run(inputs).items():
    print(name, array.dtype, array.shape, array.ravel()[:4])

if len(sys.argv) == 1:
    # The package takes images of a range of sizes; the model is compiled for each size once.
    smaller = {name: array[:, :, :8, :8] for name, array in inputs.items()}
    print({name: array.shape for name, array in model.run(smaller).items()})
