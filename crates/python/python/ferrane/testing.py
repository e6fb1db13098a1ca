"""Assertions for tests of models, with any test framework.

    from ferrane import testing

    def test_the_encoder_stays_on_the_engine():
        testing.assert_placed("encoder.mlpackage", "m4", share=1.0, allow=["softmax"])

The pytest plugin adds the fixture ``findings_snapshot``.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, List, Mapping, Union

from ._model import Model, load

__all__ = ["assert_close_on", "assert_placed"]


def _model(model: Any) -> Model:
    return model if isinstance(model, Model) else load(model)


def assert_placed(
    model: Any, machine: str = "m4", *, share: float = 1.0, allow: Iterable[str] = (), units: str = "cpu-and-ne"
) -> None:
    """Fails unless Core ML probably runs the ops of a model on the engine.

    Ops whose kind is in `allow` may run anywhere. Of the others, at least the given `share` must be on the engine. The
    message lists those that are not, with the reasons.
    """
    allowed = set(allow)
    ops = [op for op in _model(model).place(machine, units=units).ops if op.op not in allowed]
    away = [op for op in ops if op.runs_on != "engine"]
    found = (len(ops) - len(away)) / len(ops) if ops else 1.0
    if found < share:
        lines = "\n".join(f"  {op.name} ({op.op}) on {op.runs_on}: {op.reason}" for op in away)
        raise AssertionError(f"{found:.0%} of {len(ops)} ops run on the engine of {machine}, not {share:.0%}:\n{lines}")


def _named(reference: Any, model: Model, inputs: Mapping[str, Any]) -> List[Any]:
    """The expected outputs in the model's order."""
    if callable(reference):
        reference = reference(*(inputs[port.name] for port in model.inputs))
    if hasattr(reference, "detach"):
        reference = reference.detach().numpy()
    if isinstance(reference, Mapping):
        return [reference[port.name] for port in model.outputs]
    return list(reference) if isinstance(reference, (list, tuple)) else [reference]


def assert_close_on(
    model: Any,
    inputs: Mapping[str, Any],
    machine: str = "m4-macos15-inmem",
    *,
    reference: Union[Mapping[str, Any], Callable[..., Any], Any],
    psnr: float = 50.0,
) -> None:
    """Fails if a machine's arithmetic gives results that are far from a reference.

    `reference` is what the outputs should be: arrays by name, one array, several in order, or a function (a PyTorch
    module, for example) of the inputs in the model's order. `psnr` is the least ratio, in decibels, of the reference's
    largest magnitude to the root mean square error.
    """
    import numpy as np

    model = _model(model)
    found = model.run(inputs, device=f"emulator?machine={machine}&numerics=hardware&limits=off")
    expected = _named(reference, model, inputs)
    if len(expected) != len(model.outputs):
        raise AssertionError(f"the reference has {len(expected)} outputs, the model {len(model.outputs)}")
    for port, want in zip(model.outputs, expected):
        if hasattr(want, "detach"):
            want = want.detach().numpy()
        want, have = np.asarray(want, dtype=np.float64), found[port.name].astype(np.float64)
        if want.shape != have.shape:
            raise AssertionError(f"`{port.name}` has shape {have.shape}, the reference {want.shape}")
        error, peak = float(np.sqrt(np.mean((want - have) ** 2))), float(np.max(np.abs(want)))
        ratio = math.inf if error == 0 else 20 * math.log10(peak / error) if peak > 0 else -math.inf
        # A ratio that is no number is not close either.
        if not ratio >= psnr:
            raise AssertionError(f"`{port.name}` on {machine}: {ratio:.1f} dB from the reference, not {psnr:.1f}")
