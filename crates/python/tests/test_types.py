"""The annotations of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = ["ferrane", "ferrane.hwx", "ferrane.llm", "ferrane.pytest_plugin", "ferrane.testing", "ferrane.train"]

SCRIPT = """
import importlib, inspect, sys, typing

module = importlib.import_module(sys.argv[1])
assert "numpy" not in sys.modules
things = [getattr(module, name) for name in getattr(module, "__all__", vars(module))]
things = [thing for thing in things if getattr(thing, "__module__", "").startswith("ferrane")]
things += [member for thing in things if inspect.isclass(thing) for member in vars(thing).values()]
found = 0
for thing in things:
    # Properties, cached ones, and methods of classes hold their function.
    for attribute in ("fget", "func", "__func__"):
        thing = getattr(thing, attribute, None) or thing
    if inspect.isfunction(thing) or inspect.isclass(thing):
        found += bool(typing.get_type_hints(thing))
print(found)
"""


@pytest.mark.parametrize("module", MODULES)
def test_type_hints_need_no_module_that_was_imported_before(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, module], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
