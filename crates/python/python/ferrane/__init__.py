"""Program the Apple Neural Engine: check, run, measure and differentiate models, on any computer.

    import ferrane

    model = ferrane.load("model.mlpackage")     # or .mlmodel, .mil, .onnx, .aimodel, a coremltools object
    outputs = model.run({"x": array})           # on the emulator, a software Neural Engine
    findings = model.check("m4-macos15-inmem")  # what that engine refuses, computes wrongly or runs slowly

The package holds the Rust library; nothing else is needed. Reports (`Finding`, `Placement`, `Cost`, `Audit`) have the
values of the command's ``--json`` and show themselves as tables in notebooks.
"""

from __future__ import annotations

import os
from typing import List

from . import _native
from ._model import Device, Executable, Model, Port, Request, from_torch, load
from ._native import FerraneError, __version__, explain
from ._reports import Audit, Change, Cost, Difference, Distance, Finding, Findings, PlacedOp, Placement

__all__ = [
    "Audit",
    "Change",
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
    "Request",
    "__version__",
    "devices",
    "explain",
    "from_torch",
    "load",
    "machines",
]


if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork: calls in the child raise instead of waiting for them.
    os.register_at_fork(after_in_child=_native.forked)


def devices() -> List[str]:
    """The names of the devices that can be opened here."""
    return _native.devices()


def machines() -> List[str]:
    """The names of all machine profiles, such as ``m4-macos15-inmem``: chip, system, and the way to its engine.

    A chip alone (``m4``) stands for its profile in memory on the system that most is known about.
    """
    return _native.machines()
