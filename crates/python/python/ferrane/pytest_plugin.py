"""The pytest plugin: snapshots of findings.

    def test_findings(findings_snapshot):
        findings_snapshot("encoder.mlpackage", "m4-macos15-inmem")

The first run with ``--ferrane-update`` writes the findings next to the test; later runs compare with them. Several
calls in a test have a file each, in their order.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path
from typing import Any, Callable

import pytest

from .testing import _model

__all__ = ["findings_snapshot", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--ferrane-update``."""
    group = parser.getgroup("ferrane")
    group.addoption("--ferrane-update", action="store_true", help="write the snapshots of `findings_snapshot`")


@pytest.fixture
def findings_snapshot(request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function of a model and a machine, which fails if the findings are others than in the snapshot."""

    calls = itertools.count(1)

    def compare(model: Any, machine: str = "m4-macos15-inmem") -> None:
        # The test within its file; ids that differ only in other characters have another hash.
        test = f"{Path(request.path).stem}-{request.node.nodeid.partition('::')[2]}"
        digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:6]
        name = re.sub(r"[^\w.-]+", "_", f"{test}.{next(calls)}.{machine}.{digest}")
        path = Path(request.path).parent / "findings" / f"{name}.txt"
        found = sorted({f"{f.severity} {f.code} {f.value or '-'}: {f.message}" for f in _model(model).check(machine)})
        text = "".join(f"{line}\n" for line in found)
        if request.config.getoption("--ferrane-update"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path} does not exist; pytest --ferrane-update writes it")
        known = path.read_text(encoding="utf-8")
        if known != text:
            old, new = set(known.splitlines()), set(found)
            lines = [f"+ {line}" for line in sorted(new - old)] + [f"- {line}" for line in sorted(old - new)]
            pytest.fail("the findings have changed:\n" + "\n".join(lines))

    return compare
