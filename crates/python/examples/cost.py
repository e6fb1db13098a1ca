"""Predicts the time of a network on two chips, and what bounds it."""

from pathlib import Path

import ferrane

CONVERTED = Path(__file__).parents[2] / "suite/fixtures/converted"

model = ferrane.load(CONVERTED / "conv_range.mlpackage")
for chip in ("m1", "m4"):
    print(chip)
    print(model.cost(chip))
