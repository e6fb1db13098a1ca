"""Runs a model with a state several times: what it keeps from run to run is in a dictionary."""

from pathlib import Path
from typing import Any, Dict

import numpy as np

import ferrane

CONVERTED = Path(__file__).parents[2] / "suite/fixtures/converted"

model = ferrane.load(CONVERTED / "state.mlpackage")
print(model, model.states)
executable = ferrane.Device().load(model)
states: Dict[str, Any] = {}
for i in range(3):
    inputs = {port.name: np.full(port.shape, i + 1.0) for port in model.inputs}
    executable(inputs, states=states)
    print({name: float(array.mean()) for name, array in states.items()})
