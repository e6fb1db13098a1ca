"""Calls one executable from several threads; the interpreter's lock is free while it runs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import ferrane

SMALL = Path(__file__).parents[2] / "onnx/tests/models/mlp.onnx"

executable = ferrane.Device("emulator").load(ferrane.load(SMALL, shapes={"batch": 2}))
inputs = [np.random.default_rng(i).uniform(-1, 1, (2, 8)) for i in range(64)]
with ThreadPoolExecutor(4) as pool:
    results = list(pool.map(lambda x: executable(x=x)["y"], inputs))
print(len(results), "results, the first", results[0][0])
