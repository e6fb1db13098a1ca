"""Writes a page with the network as a graph, its findings and its placement.

usage: report.py [MODEL] [PAGE]
"""

import sys
import tempfile
from pathlib import Path

import ferrane

CONVERTED = Path(__file__).parents[2] / "suite/fixtures/converted"

model = ferrane.load(sys.argv[1] if len(sys.argv) > 1 else CONVERTED / "lstm.mlpackage")
page = Path(sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.gettempdir(), "ferrane-report.html"))
page.write_text(model.page("m4-macos15-inmem"), encoding="utf-8")
print(page, page.stat().st_size, "bytes")
if len(sys.argv) <= 2:
    page.unlink()
