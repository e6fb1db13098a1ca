"""Models and arrays that the tests share: those of the repository, and the test data if it is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[3]
CONVERTED = ROOT / "crates/suite/fixtures/converted"
ONNX = ROOT / "crates/onnx/tests/models"
DATA = Path(os.environ.get("FERRANE_DATA", ROOT.parent / "shared/data"))

SMALL = b"""program(1.3)
{
  func main<ios17>(tensor<fp16, [1, 4, 1, 8]> x) {
    fp16 two = const()[name = string("two"), val = fp16(2)];
    tensor<fp16, [1, 4, 1, 8]> h = mul(x = x, y = two)[name = string("h")];
    tensor<fp16, [1, 4, 1, 8]> y = tanh(x = h)[name = string("y")];
  } -> (y);
}
"""


def recorded(path: Path) -> Dict[str, Dict[str, NDArray[Any]]]:
    """The inputs and outputs of a recorded case."""
    found: Dict[str, Dict[str, NDArray[Any]]] = {"in": {}, "out": {}}
    with np.load(path) as arrays:
        for name in arrays:
            kind, port = name.split(".", 1)
            found.setdefault(kind, {})[port] = arrays[name]
    return found
