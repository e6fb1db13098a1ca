"""Prints the versions of the packages that a comparison used."""
from importlib.metadata import version

NAMES = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "coremltools": "coremltools", "torchvision": "torchvision", "transformers": "Transformers"}
print(", ".join(f"{title} {version(name)}" for name, title in NAMES.items()))
