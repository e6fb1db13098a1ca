"""The node tests of the ONNX project, written as models with as much of protobuf's encoding as they need."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

#: The numbers of `TensorProto.DataType`, and the names in numpy of types that hold such numbers.
ELEMENTS = {
    "FLOAT": (1, "float32"),
    "UINT8": (2, "uint8"),
    "INT8": (3, "int8"),
    "UINT16": (4, "uint16"),
    "INT16": (5, "int16"),
    "INT32": (6, "int32"),
    "INT64": (7, "int64"),
    "BOOL": (9, "bool"),
    "FLOAT16": (10, "float16"),
    "DOUBLE": (11, "float64"),
    "UINT32": (12, "uint32"),
    "UINT64": (13, "uint64"),
    "BFLOAT16": (16, "float32"),
    "INT4": (22, "int8"),
}
#: The numbers of numpy's types.
NUMBERS = {name: number for number, name in ELEMENTS.values() if number < 16}

Field = Union[int, float, str, bytes]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def message(*fields: Tuple[int, Field]) -> bytes:
    """A message of numbered fields: integers, floats of 32 bits, and what has a length."""
    found = b""
    for number, value in fields:
        if isinstance(value, int):
            found += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            found += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            content = value.encode() if isinstance(value, str) else value
            found += varint(number << 3 | 2) + varint(len(content)) + content
    return found


def repeated(number: int, values: Iterable[Field]) -> List[Tuple[int, Field]]:
    return [(number, value) for value in values]


def tensor(array: NDArray[Any], name: str = "") -> bytes:
    little = array.astype(array.dtype.newbyteorder("<"))
    fields = [*repeated(1, array.shape), (2, NUMBERS[array.dtype.name]), (8, name), (9, little.tobytes())]
    return message(*fields)


def attribute(name: str, value: Any) -> bytes:
    """A number, a string, a list of either, or a tensor as nested lists."""
    kind: int
    fields: List[Tuple[int, Field]]
    if isinstance(value, str):
        kind, fields = 3, [(4, value)]
    elif isinstance(value, int):
        kind, fields = 2, [(3, value)]
    elif isinstance(value, float):
        kind, fields = 1, [(2, value)]
    elif isinstance(value, dict):
        kind, fields = 4, [(5, tensor(np.array(value["tensor"], value["dtype"])))]
    elif all(isinstance(item, int) for item in value):
        kind, fields = 7, repeated(8, value)
    elif all(isinstance(item, (int, float)) for item in value):
        kind, fields = 6, repeated(7, map(float, value))
    else:
        kind, fields = 8, repeated(9, value)
    return message((1, name), *fields, (20, kind))


def node(node: Dict[str, Any]) -> bytes:
    attributes = [attribute(name, value) for name, value in node["attributes"].items()]
    ports = [*repeated(1, node["inputs"]), *repeated(2, node["outputs"])]
    return message(*ports, (4, node["op"]), *repeated(5, attributes), (7, node["domain"]))


@dataclass
class Value:
    """The tensor of a port."""

    array: NDArray[Any]
    #: The number of its type.
    element: int

    def port(self, name: str) -> bytes:
        shape = message(*repeated(1, (message((1, extent)) for extent in self.array.shape)))
        return message((1, name), (2, message((1, message((1, self.element), (2, shape))))))


@dataclass
class Case:
    """A model with inputs and expected outputs."""

    nodes: List[bytes]
    opset: Sequence[Tuple[str, int]]
    inputs: Dict[str, Value]
    outputs: Dict[str, Value]
    #: The error of ONNX's own evaluator: expected values that were written by hand have few digits.
    spread: float

    def model(self, known: Sequence[str] = ()) -> bytes:
        """The bytes of the model; inputs that have to be known are initializers."""
        constants = [tensor(self.inputs[name].array, name) for name in known]
        inputs = [value.port(name) for name, value in self.inputs.items() if name not in known]
        outputs = [value.port(name) for name, value in self.outputs.items()]
        graph = message(
            *repeated(1, self.nodes), (2, "case"), *repeated(5, constants), *repeated(11, inputs), *repeated(12, outputs)
        )
        imports = [message((1, domain), (2, version)) for domain, version in self.opset]
        return message((1, 10), (7, graph), *repeated(8, imports))


def safetensors(path: Path) -> Dict[str, NDArray[Any]]:
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    names = {"F": "float", "I": "int", "U": "uint"}
    found = {}
    for name, entry in json.loads(content[8:begin]).items():
        if name == "__metadata__":
            continue
        kind, (first, end) = entry["dtype"], entry["data_offsets"]
        elements = content[begin + first : begin + end]
        if kind == "BF16":
            # The upper halves of fp32.
            array = (np.frombuffer(elements, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(elements, "bool" if kind == "BOOL" else names[kind[0]] + kind[1:])
        found[name] = array.reshape(entry["shape"])
    return found


def cases(folder: Path) -> Dict[str, Case]:
    """Every case of a folder."""
    arrays = safetensors(folder / "cases.safetensors")

    def ports(entries: List[Dict[str, Any]]) -> Dict[str, Value]:
        def value(entry: Dict[str, Any]) -> Value:
            number, dtype = ELEMENTS[entry["onnx_dtype"]]
            return Value(arrays[entry["key"]].astype(dtype), number)

        return {entry["name"]: value(entry) for entry in entries}

    def one(case: Dict[str, Any]) -> Case:
        spread = case["reference_evaluator"].get("max_abs_diff") or 0.0
        nodes = [node(n) for n in case["nodes"]]
        return Case(nodes, case["opset"], ports(case["inputs"]), ports(case["outputs"]), float(spread))

    return {name: one(case) for name, case in json.loads((folder / "cases.json").read_text()).items()}
