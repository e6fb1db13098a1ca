"""Copies samples with the outputs of Apple's runtime to the tests of ferrane-coreai.

    python scripts/coreai/fixtures.py FOLDER crates/coreai/tests/models NAME…

FOLDER is what samples.py or networks.py made. Of each sample the program becomes NAME.mlirb, and its recorded tensors NAME.safetensors.
Paths of the machine in the locations of a program are replaced by underlines.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

KINDS = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint32": "U32", "int16": "I16", "uint16": "U16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def inputs(text):
    """The names of the inputs of `main` that are tensors; models of PyTorch have names of their own."""
    signature = re.search(r"coreai\.graph @main\((.*?)\) -> ", text).group(1)
    return re.findall(r': tensor<[^{]*?\{coreai\.name = "([^"]*)"', signature)


def main():
    folder, out, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        program = (folder / f"{name}.aimodel" / "main.mlirb").read_bytes()
        # Of the same length, because the file states the lengths of its texts.
        for place in (np.__file__.rsplit("/", 2)[0], str(Path(__file__).resolve().parents[2])):
            program = program.replace(place.encode(), b"/" + b"_" * (len(place.encode()) - 1))
        (out / f"{name}.mlirb").write_bytes(program)
        header, data = {}, b""
        record = np.load(folder / f"{name}.npz")
        names_of = inputs((folder / f"{name}.coreai.mlir").read_text())
        given = [key for key in record.files if key.startswith("in.")]
        renamed = {key: key if key[3:] in names_of else f"in.{new}" for key, new in zip(given, names_of)}
        for key in record.files:
            array = record[key]
            start, data = len(data), data + array.tobytes()
            header[renamed.get(key, key)] = {"dtype": KINDS[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, len(data)]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        (out / f"{name}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


if __name__ == "__main__":
    main()
