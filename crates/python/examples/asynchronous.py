"""Serves requests of an asyncio program: calls that do not block it, and one that is prepared once."""

import asyncio
from pathlib import Path

import numpy as np

import ferrane

SMALL = Path(__file__).parents[2] / "onnx/tests/models/mlp.onnx"

executable = ferrane.Device("emulator").load(ferrane.load(SMALL, shapes={"batch": 2}))


async def main() -> None:
    draws = np.random.default_rng(1)
    inputs = [draws.uniform(-1, 1, (2, 8)) for _ in range(16)]
    results = await asyncio.gather(*(executable.run_async(x=x) for x in inputs))
    print(len(results), "results, the first", results[0]["y"][0])


asyncio.run(main())

request = executable.prepare()
x, y = request.inputs["x"], request.outputs["y"]
for step in range(3):
    x[...] = step
    request.run()
    print("all inputs", step, "give", y[0])
