"""The node tests of the ONNX project: written as models, opened from bytes, run, and compared with the command."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, List, Tuple

import numpy as np
import pytest
from numpy.typing import NDArray

import ferrane
from cases import DATA, ROOT
from ferrane import _native
from onnx_cases import Case, Value, cases, message, node, repeated

FOLDER = DATA / "onnx_node"
CASES = cases(FOLDER) if FOLDER.exists() or os.environ.get("FERRANE_REQUIRE_DATA") == "1" else {}
DEVICE = "emulator?numerics=exact"

# As in the tests of Rust: relative to the largest element, because sums cancel. The references are
# fp32, too, and add in another order.
FP32 = 1e-5
# Two units in the last place of fp16: one for the port, one because the reference rounds every
# intermediate result.
FP16 = 2e-3


def opened(case: Case) -> Tuple[ferrane.Model, bytes]:
    """The model, where the inputs that the conversion has to know are constants."""
    known: List[str] = []
    while True:
        content = case.model(known)
        try:
            return ferrane.load(content), content
        except ferrane.FerraneError as error:
            messages = " ".join(found["message"] for found in error.diagnostics)
            needed = re.findall(r"depends on the input `([^`]*)`", messages)
            if not set(needed) - set(known):
                raise
            known += [name for name in needed if name not in known]


def assert_close(found: NDArray[Any], expected: Value, spread: float) -> None:
    want = expected.array
    assert found.shape == want.shape
    if want.dtype.kind in "iu":
        # Integers wrap at the width of their type, which the ports of a program widen to 32 bits.
        modulus = 2 ** max(32, 8 * want.dtype.itemsize)
        assert all((int(a) - int(b)) % modulus == 0 for a, b in zip(found.flat, want.flat))
        return
    have, want = found.astype(np.float64), want.astype(np.float64)
    finite = np.abs(want[np.isfinite(want)])
    scale = float(finite.max()) if finite.size else 0.0
    bound = 1e-6 + 2 * spread + scale * (FP16 if expected.array.dtype == np.float16 else FP32)
    with np.errstate(invalid="ignore"):
        close = (have == want) | (np.isnan(have) & np.isnan(want)) | (np.abs(have - want) <= bound)
    assert close.all(), (have[~close], want[~close])


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_values_of_onnx_and_of_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    model, content = opened(case)
    inputs = {port.name: case.inputs[port.name].array for port in model.inputs}
    found = model.run(inputs, device=DEVICE)
    assert list(found) == list(case.outputs)
    for output, value in case.outputs.items():
        assert_close(found[output], value, case.spread)

    monkeypatch.chdir(tmp_path)
    Path("case.onnx").write_bytes(content)
    arguments = ["ferrane", "run", "case.onnx", "--numerics", "exact", "--output", "out"]
    for number, (port, array) in enumerate(inputs.items()):
        np.save(f"{number}.npy", array)
        arguments += ["--input", f"{port}={number}.npy"]
    # In this process: a hundred processes would take longer than all that they compute.
    assert _native.command(arguments) == 0, capfd.readouterr().err
    for output, array in found.items():
        written = np.load(Path("out", f"{output}.npy"))
        assert written.dtype == array.dtype and written.shape == array.shape
        assert written.tobytes() == array.tobytes()


#: The operators without a counterpart in MIL, with the reason, from the table that is made of the library's own.
REFUSED = re.findall(r"^\| `(\w+)` \| no: (.*) \|$", (ROOT / "docs/onnx.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("op", "reason"), [*REFUSED, ("NoSuchOperator", "NoSuchOperator")])
def test_what_mil_cannot_express_is_refused_with_the_reason(op: str, reason: str) -> None:
    x = Value(np.zeros((1, 4, 8, 8), np.float32), 1)
    made = node({"op": op, "domain": "", "inputs": ["x"], "outputs": ["y"], "attributes": {}})
    with pytest.raises(ferrane.FerraneError) as caught:
        ferrane.load(Case([made], [("", 26)], {"x": x}, {"y": x}, 0.0).model())
    assert caught.value.code is not None and caught.value.code.startswith("E08")
    assert any(reason in found["message"] for found in caught.value.diagnostics), caught.value.diagnostics


def test_there_are_refused_operators_and_cases() -> None:
    assert len(REFUSED) >= 10
    assert not CASES or len(CASES) == 178


def test_a_damaged_model_is_an_error() -> None:
    assert message((1, 300), (2, 1.0), *repeated(3, ["ab"])) == b"\x08\xac\x02\x15\x00\x00\x80\x3f\x1a\x02ab"
    content = next(iter(CASES.values())).model() if CASES else message((1, 10))
    for damaged in (content[:-3], b"\xff" * 40):
        with pytest.raises(ferrane.FerraneError):
            ferrane.load(damaged)
