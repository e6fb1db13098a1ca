"""What Python computes is what the command computes, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ferrane
from cases import CONVERTED, DATA, ONNX
from ferrane import llm

# Images are inputs of the command by their files only.
PACKAGES = [
    path
    for path in [*sorted(CONVERTED.glob("*.mlpackage")), *sorted(DATA.rglob("*.mlpackage"))]
    if not path.name.startswith("image_")
]
MODELS = sorted(ONNX.glob("*.onnx"))
# Numbers for the extents that a model leaves open.
EXTENTS = {"attention.onnx": {"batch": 2, "seq": 5}, "convnet.onnx": {"n": 1}, "mlp.onnx": {"batch": 2}}


@pytest.mark.parametrize("path", [*PACKAGES, *MODELS], ids=lambda path: path.name)
def test_python_and_the_command_agree(path: Path, tmp_path: Path) -> None:
    shapes = EXTENTS.get(path.name)
    model = ferrane.load(path, shapes=shapes)
    draws = np.random.default_rng(1)
    inputs = {}
    for port in model.inputs:
        if port.dtype.startswith("fp"):
            inputs[port.name] = draws.uniform(-1, 1, port.shape).astype(np.float32)
        else:
            inputs[port.name] = draws.integers(0, 2, port.shape).astype(np.int32)
    arguments = [sys.executable, "-m", "ferrane", "run", str(path), "--output", str(tmp_path / "out")]
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        arguments += ["--input", f"{name}={tmp_path}/{name}.npy"]
    if shapes:
        arguments += ["--shape", ",".join(f"{name}={extent}" for name, extent in shapes.items())]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = model.run(inputs)
    assert found
    for name, array in found.items():
        want = np.load(tmp_path / "out" / f"{name}.npy")
        assert want.dtype == array.dtype
        np.testing.assert_array_equal(array, want)


def test_a_language_model_tells_its_known_story() -> None:
    folder = DATA / "checkpoints/stories260K"
    if not folder.exists() and os.environ.get("FERRANE_REQUIRE_DATA") != "1":
        pytest.skip("the test data is not here (FERRANE_DATA)")
    expected = json.loads((folder / "expected.json").read_text())
    model = llm.Model(folder / "stories260K.bin", tokenizer=DATA / "tokenizers/tok512.bin")
    pieces = list(model.stream("Once upon a time", tokens=100, temperature=0.0))
    assert len(pieces) > 50
    text = "Once upon a time" + "".join(pieces)
    assert expected["expected_text"].startswith(text) and len(text) > 200
    assert model.generate("One day", tokens=20, seed=1) == model.generate("One day", tokens=20, seed=1)
    # A reader that stops early stops the generation.
    stream = model.stream("Once upon a time", tokens=400)
    next(stream)
    del stream
    with pytest.raises(ferrane.FerraneError):
        llm.Model(folder / "expected.json")
    with pytest.raises(ferrane.FerraneError, match="temperature"):
        model.generate("x", temperature=-1.0)
