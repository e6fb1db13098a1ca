"""Writes an ONNX model as a Core ML package, as text, and as a Core AI model, and compares the copies."""

import tempfile
from pathlib import Path

import ferrane

SMALL = Path(__file__).parents[2] / "onnx/tests/models/mlp.onnx"

model = ferrane.load(SMALL, shapes={"batch": 1}, fp16=True)
with tempfile.TemporaryDirectory() as folder:
    for name in ("model.mlpackage", "model.mil", "model.aimodel"):
        path = Path(folder, name)
        model.save(path)
        outputs = model.diff(ferrane.load(path), seed=1, within=1e-3).outputs or ()
        print(name, "computes the same" if all(output.same for output in outputs) else "differs")
print(model.text().splitlines()[0])
