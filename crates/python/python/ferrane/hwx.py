"""Compiled programs, the files (``.hwx``) that Apple's compiler writes for the engine.

    from ferrane import hwx

    program = hwx.open("conv.hwx")
    print(program)                              # what each task does, in words
    for port in program.inputs:
        print(port.name, port.shape)
    text = program.text()                       # every bit of the file
    assert hwx.assemble(text) == program.to_bytes()

Nothing here has met an engine: docs/hwx.md says what is known about these files, and from where.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from . import _native
from ._types import NDArray

__all__ = ["CompiledProgram", "Difference", "Port", "Procedure", "Task", "Weights", "assemble", "open"]


@dataclass(frozen=True)
class Port:
    """A tensor of a procedure, in memory of the engine."""

    name: str
    #: The symbol, which has a suffix for outputs.
    symbol: str
    #: ``[N, C, H, W, D]``.
    shape: Tuple[int, ...]
    #: Bytes from one to the next: batch, plane (channel), row.
    strides: Tuple[int, int, int]
    #: The size of the buffer in bytes.
    bytes: int


@dataclass(frozen=True)
class Procedure:
    """A program of the file, with its inputs and outputs."""

    name: str
    #: The number of its tasks.
    tasks: int
    inputs: Tuple[Port, ...]
    outputs: Tuple[Port, ...]


@dataclass(frozen=True)
class Task:
    """What the engine does with one descriptor."""

    #: The index of the task, counted over the whole file.
    index: int
    #: The engine: ``convolution``, ``planar`` or ``unknown``.
    engine: str
    #: The operation, in one line.
    summary: str
    #: What is done to the result, in order.
    post: Tuple[str, ...]
    #: Every register that the descriptor sets.
    registers: Dict[str, int]


@dataclass(frozen=True)
class Weights:
    """The weights that a task reads."""

    #: The index of the task.
    task: int
    #: ``[Cout, Cin, Kh, Kw]``, or None if their order is not known.
    shape: Optional[Tuple[int, ...]]
    #: Why the order is not known, if it is not.
    reason: Optional[str]


@dataclass(frozen=True)
class Difference:
    """A difference between two files."""

    #: What differs, as a path: ``task 0, Common.ConvCfg.Kw``.
    place: str
    #: The value in the first file, or None if it has none.
    left: Optional[str]
    #: The value in the second file, or None if it has none.
    right: Optional[str]

    def __str__(self) -> str:
        return f"{self.place}: {self.left or 'nothing'} → {self.right or 'nothing'}"


def _port(port: Dict[str, Any]) -> Port:
    tensor = port["tensor"]
    strides = (tensor["batch_stride"], tensor["plane_stride"], tensor["row_stride"])
    return Port(tensor["name"], tensor["symbol"], tuple(tensor["nchwd"]), strides, tensor["bytes"])


def _procedure(program: Dict[str, Any]) -> Procedure:
    def ports(direction: str) -> Tuple[Port, ...]:
        found = program["bindings"]["ports"]
        return tuple(_port(port) for port in found if port["direction"] == direction and port["tensor"])

    return Procedure(program["name"], program["tasks"], ports("input"), ports("output"))


class CompiledProgram:
    """A compiled program. `open` reads one."""

    def __init__(self, native: _native.CompiledProgram) -> None:
        self._native = native

    @cached_property
    def report(self) -> Dict[str, Any]:
        """All that is known about the file: the values of ``ferrane disasm --json``."""
        report: Dict[str, Any] = json.loads(self._native.json())
        return report

    @property
    def generation(self) -> Optional[str]:
        """The generation of the engine, ``h13`` for example, or None if it is not known."""
        generation: Optional[str] = self.report["generation"]
        return generation

    @property
    def chips(self) -> str:
        """The chips of the generation; empty if they are not known."""
        return str(self.report["chips"])

    @property
    def compiler(self) -> Optional[str]:
        """The compiler's name, version and target, if the file has them."""
        compiler: Optional[str] = self.report["compiler"]
        return compiler

    @property
    def procedures(self) -> List[Procedure]:
        """The programs of the file, in its order."""
        return [_procedure(program) for program in self.report["programs"]]

    @property
    def inputs(self) -> List[Port]:
        """The inputs of all procedures."""
        return [port for procedure in self.procedures for port in procedure.inputs]

    @property
    def outputs(self) -> List[Port]:
        """The outputs of all procedures."""
        return [port for procedure in self.procedures for port in procedure.outputs]

    @property
    def tasks(self) -> List[Task]:
        """The tasks of the file, in order; `FerraneError` if a section of descriptors is damaged."""
        found: List[Task] = []
        for text in self.report["texts"]:
            if text["error"]:
                raise _native.FerraneError(f"{text['section']}: {text['error']}")
            for task in text["tasks"]:
                post = tuple(task["post"])
                found.append(Task(len(found), task["engine"], task["summary"], post, task["registers"]))
        return found

    @property
    def weights(self) -> List[Weights]:
        """The tasks that read weights, with their shapes."""
        found = self._native.filters()
        return [Weights(task, None if shape is None else tuple(shape), reason) for task, shape, reason in found]

    def unpack(self, task: int) -> NDArray[Any]:
        """The weights of a task in fp16, ``[Cout, Cin, Kh, Kw]``."""
        return self._native.weights(task)

    def pack(self, weights: Mapping[int, Any]) -> CompiledProgram:
        """The program with other weights, arrays by the index of their task."""
        return CompiledProgram(self._native.with_weights(dict(weights)))

    def diff(self, other: CompiledProgram) -> List[Difference]:
        """What differs, by meaning: header, tensors, buffers, registers, contents."""
        return [Difference(**found) for found in json.loads(self._native.diff(other._native))]

    def describe(self, *, registers: bool = False) -> str:
        """What the program does, in words; with every register that a task sets if `registers`."""
        return self._native.prose(registers)

    def text(self) -> str:
        """The text of the file, of which `assemble` makes the same bytes."""
        return self._native.text()

    def svg(self) -> str:
        """Tasks and buffers as a picture."""
        return self._native.svg()

    def dot(self) -> str:
        """Tasks and buffers as a graph of Graphviz."""
        return self._native.dot()

    def to_bytes(self) -> bytes:
        """The bytes of the ``.hwx`` file."""
        return self._native.write()

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        names = ", ".join(procedure.name for procedure in self.procedures)
        return f"<CompiledProgram {names} for {self.generation or 'an unknown generation'}>"

    def _repr_svg_(self) -> str:
        return self.svg()


def open(source: Union[str, os.PathLike[str], bytes]) -> CompiledProgram:
    """Reads a compiled program: a path or the bytes of a ``.hwx`` file, or of one for the Linux driver (``.anec``).

    Raises `FerraneError` for what is no such file, or is damaged.
    """
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    return CompiledProgram(_native.CompiledProgram(content))


def assemble(text: str) -> bytes:
    """The bytes of the file that a text describes; see `CompiledProgram.text`.

    Raises `FerraneError`, whose ``diagnostics`` list what is wrong in the text.
    """
    return _native.assemble(text)
