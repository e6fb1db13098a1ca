"""Reports as data classes: the values of the command's JSON, and tables for notebooks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, Dict, Iterable, List, Optional, Tuple


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """An HTML table."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{cells}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


@dataclass(frozen=True)
class Finding:
    """What a machine does with a part of a program."""

    #: The code of the rule, such as ``E0411``; `ferrane.explain` explains it.
    code: str
    #: ``error``, ``warning`` or ``note``.
    severity: str
    #: The kind of the consequence, such as ``compile-error`` or ``slow``.
    effect: str
    #: The consequence, in words.
    happens: str
    #: One sentence.
    message: str
    #: Name of the function, if the finding is about one.
    function: Optional[str] = None
    #: The op, as MIL spells it.
    op: Optional[str] = None
    #: Name of the value: the op's first result, or a port.
    value: Optional[str] = None
    #: How to write it so that the machine takes it, if there is a general answer.
    rewrite: Optional[str] = None
    #: True if ``ferrane check --fix`` can change the program so.
    fixable: bool = False
    #: The published claims that the finding rests on.
    claims: Tuple[str, ...] = ()
    #: The status of an evaluation that fails.
    status: Optional[int] = None
    #: Why the machine overrules the claims; only a strict check reports such findings.
    overruled: Optional[str] = None

    def __str__(self) -> str:
        place = f" ({self.value})" if self.value else ""
        return f"{self.severity}[{self.code}]: {self.message}{place}"


class Findings(List[Finding]):
    """Findings of a check, in the order of the program."""

    @staticmethod
    def _read(text: str) -> Findings:
        known = {f.name for f in fields(Finding)}

        def one(found: Dict[str, Any]) -> Finding:
            values = {name: value for name, value in found.items() if name in known}
            return Finding(**{**values, "claims": tuple(found["claims"])})

        return Findings(map(one, json.loads(text)))

    @property
    def errors(self) -> Findings:
        """Those for which the program does not run, or computes something else."""
        return Findings(f for f in self if f.severity == "error")

    @property
    def ok(self) -> bool:
        """True if none is an error."""
        return not self.errors

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no findings"

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no findings</p>"
        rows = [(f.severity, f.code, f.value or "", f.message, f.rewrite or "") for f in self]
        return _table(("severity", "code", "value", "message", "instead"), rows)


@dataclass(frozen=True)
class PlacedOp:
    """Where an op probably runs."""

    #: Name of the op's first result.
    name: str
    #: The op, as MIL spells it.
    op: str
    #: ``engine``, ``gpu``, ``cpu``, or None if it is not known.
    runs_on: Optional[str]
    #: Probability that it runs on the engine.
    engine_probability: Optional[float]
    #: Why it is not on the engine, if it is not.
    reason: Optional[str]


@dataclass(frozen=True)
class Placement:
    """Where the ops of a function probably run if a framework decides."""

    #: The machine, ``m4-macos15-coreml`` for example.
    machine: str
    #: The ops that run, in order.
    ops: Tuple[PlacedOp, ...]
    #: The record as JSON, with segments, transfers and the change that would help most.
    json: Dict[str, Any] = field(repr=False)
    _text: str = field(repr=False)

    @staticmethod
    def _read(found: Tuple[str, str, List[Optional[str]]]) -> Placement:
        record, text, reasons = json.loads(found[0]), found[1], found[2]

        def placed(op: Dict[str, Any], reason: Optional[str]) -> PlacedOp:
            return PlacedOp(op["name"], op["op"], op.get("runs_on"), op.get("engine_probability"), reason)

        return Placement(record["machine"], tuple(map(placed, record["ops"], reasons)), record, text)

    @property
    def engine_share(self) -> float:
        """The share of ops that run on the engine, 0 to 1; 1 if nothing runs."""
        return sum(op.runs_on == "engine" for op in self.ops) / len(self.ops) if self.ops else 1.0

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        rows = [(op.name, op.op, op.runs_on or "not known", op.reason or "") for op in self.ops]
        return _table(("value", "op", "runs on", "because"), rows)


class _Printed:
    """A report that shows itself as the command prints it."""

    _text: str

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"


@dataclass(frozen=True, repr=False)
class Cost(_Printed):
    """The predicted time of a program on a chip."""

    #: The report as JSON: times in microseconds, and what bounds each op.
    json: Dict[str, Any]
    _text: str


@dataclass(frozen=True, repr=False)
class Audit(_Printed):
    """Which op of a program loses precision."""

    #: The report as JSON: the errors of each value under each arithmetic.
    json: Dict[str, Any]
    #: The report as a page.
    html: str
    _text: str

    @property
    def summary(self) -> List[str]:
        """A sentence for each arithmetic."""
        return list(self.json["summary"])


@dataclass(frozen=True)
class Distance:
    """How far an output of one program is from that of another."""

    #: Name of the function.
    function: str
    #: Name of the output.
    output: str
    #: The largest difference.
    max: float
    #: The mean difference.
    mean: float
    #: The largest magnitude of the first program's output.
    scale: float
    #: True if the largest difference is within the share of the scale that was allowed.
    same: bool


@dataclass(frozen=True)
class Change:
    """A difference in what two programs say."""

    #: ``added``, ``removed``, ``changed``, ``weight`` or ``signature``.
    kind: str
    #: Name of the function.
    function: str
    #: Name of the value; empty for the function itself.
    name: str
    #: What is different.
    message: str


@dataclass(frozen=True)
class Difference:
    """What differs between two programs."""

    #: Each difference in what they say.
    changes: Tuple[Change, ...]
    #: The distances of the outputs for random inputs; None if the programs were not run.
    outputs: Optional[Tuple[Distance, ...]]

    @property
    def same(self) -> bool:
        """True if the outputs agree, or, without a run, if nothing differs."""
        if self.outputs is not None:
            return all(output.same for output in self.outputs)
        return not self.changes
