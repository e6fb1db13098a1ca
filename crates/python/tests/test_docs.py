"""The Python code of the documents runs as it stands there, a document after the other in one name space."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from cases import CONVERTED, ROOT, SMALL

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "crates/python/README.md"]
DOCUMENTS = [path for path in PAGES if "```python" in path.read_text()]
# All of their code runs; that of other pages may need PyTorch, a Mac or a server.
WHOLE = [ROOT / "docs/python.md", ROOT / "crates/python/README.md"]
BLOCK = re.compile(r"(<!-- python: skip[^\n]*-->\n)?```python\n(.*?)```", re.DOTALL)


def blocks(path: Path) -> List[Tuple[int, str]]:
    """The blocks that run, with their lines."""
    text = path.read_text()
    found = [match for match in BLOCK.finditer(text) if match.group(1) is None]
    return [(text[: match.start(2)].count("\n"), match.group(2)) for match in found]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_code_of_a_document_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CONVERTED / "conv_range.mlpackage", tmp_path / "model.mlpackage")
    if path.name == "recordings.md":
        (tmp_path / "small.mil").write_bytes(SMALL)
        command = [sys.executable, "-m", "ferrane", "recording", "make", "small.mil", "--out", "model.anetrace"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    names: Dict[str, Any] = {}
    found = blocks(path)
    assert found or path not in WHOLE
    for line, code in found:
        exec(compile("\n" * line + code, str(path), "exec"), names)
