"""Program the Apple Neural Engine: check, run, measure and differentiate models, on any computer.

    import ferrane

    model = ferrane.load("model.mlpackage")     # or .mlmodel, .mil, .onnx, .aimodel, a coremltools object
    outputs = model.run({"x": array})           # on the emulator, a software Neural Engine
    findings = model.check("m4-macos15-inmem")  # what that engine refuses, computes wrongly or runs slowly

The package holds the Rust library; nothing else is needed. Reports (`Finding`, `Placement`, `Cost`, `Audit`) have the
values of the command's ``--json`` and show themselves as tables in notebooks.
"""

from __future__ import annotations

from typing import List

from . import _native
from ._model import Device, Executable, Model, Port, from_torch, load
from ._native import FerraneError, __version__, explain
from ._reports import Audit, Cost, Difference, Distance, Finding, Findings, PlacedOp, Placement

__all__ = [
    "Audit",
    "Cost",
    "Device",
    "Difference",
    "Distance",
    "Executable",
    "FerraneError",
    "Finding",
    "Findings",
    "Model",
    "PlacedOp",
    "Placement",
    "Port",
    "__version__",
    "devices",
    "explain",
    "from_torch",
    "load",
    "machines",
]


def devices() -> List[str]:
    """The names of the devices that can be opened here."""
    return _native.devices()


def machines() -> List[str]:
    """The names of all machine profiles, such as ``m4-macos15-inmem``."""
    return _native.machines()
