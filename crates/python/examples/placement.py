"""Predicts which ops Core ML runs on the engine, and why the others are elsewhere."""

from pathlib import Path

import ferrane

CONVERTED = Path(__file__).parents[2] / "suite/fixtures/converted"

placement = ferrane.load(CONVERTED / "attention.mlpackage").place("m4")
print(placement)
print(f"{placement.engine_share:.0%} of the ops are on the engine")
for op in placement.ops:
    if op.runs_on != "engine":
        print(f"{op.name} ({op.op}): {op.reason}")
