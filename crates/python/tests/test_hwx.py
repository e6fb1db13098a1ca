"""Compiled programs: read, described, compared, assembled, and their weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ferrane
from cases import DATA, ROOT
from ferrane import hwx

TEXTS = sorted((ROOT / "fuzz/corpus/hwx_text").iterdir())
SAMPLES = sorted(DATA.glob("hwx/**/*.hwx"))
CONV = DATA / "hwx/tinygrad/ops/conv.hwx"


def command(*arguments: object) -> str:
    done = subprocess.run([sys.executable, "-m", "ferrane", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def conv() -> hwx.CompiledProgram:
    """A convolution of 3 channels that a compiler wrote."""
    if not CONV.exists() and os.environ.get("FERRANE_REQUIRE_DATA") != "1":
        pytest.skip("the test data is not here (FERRANE_DATA)")
    return hwx.open(CONV)


@pytest.mark.parametrize("name", ["h13", "h16"])
def test_text_becomes_a_file_and_text_again(name: str, tmp_path: Path) -> None:
    (text,) = (path.read_text() for path in TEXTS if path.name == name)
    made = hwx.assemble(text)
    program = hwx.open(made)
    assert hwx.assemble(program.text()) == made == program.to_bytes()
    assert program.generation == name and name in repr(program)
    path = tmp_path / "net.hwx"
    path.write_bytes(made)
    assert hwx.open(path).to_bytes() == hwx.open(str(path)).to_bytes() == made
    assert program.text() == command("disasm", path, "--text")
    assert str(program) == command("disasm", path)
    assert program.report == json.loads(command("disasm", path, "--json"))
    assert program.svg().startswith("<svg") and "digraph" in program.dot()


def test_every_sample_is_written_as_it_was(conv: hwx.CompiledProgram) -> None:
    assert len(SAMPLES) > 5
    for path in SAMPLES:
        program = hwx.open(path)
        assert program.to_bytes() == path.read_bytes() == hwx.assemble(program.text())
        assert program.procedures and len(program.tasks) == sum(p.tasks for p in program.procedures)


def test_a_program_says_what_it_takes_and_does(conv: hwx.CompiledProgram) -> None:
    assert (conv.generation, conv.chips) == ("h13", "A14, M1")
    assert conv.compiler is not None and conv.compiler.startswith("zin_ane_compiler v4.2.1")
    (procedure,) = conv.procedures
    assert (procedure.name, procedure.tasks) == ("net", 1)
    (x,), (y,) = conv.inputs, conv.outputs
    assert (x.name, x.shape, x.strides, x.bytes) == ("image", (1, 3, 1, 1, 1), (192, 64, 64), 192)
    assert y.name.startswith("probs")
    (task,) = conv.tasks
    assert (task.index, task.engine) == (0, "convolution") and task.summary.startswith("1×1 convolution")
    assert task.registers["Common.Cin"] == 3
    assert "Common.Cin" not in conv.describe() and "Cin" in conv.describe(registers=True)


def test_weights_are_read_and_replaced(conv: hwx.CompiledProgram) -> None:
    assert [(weights.task, weights.shape) for weights in conv.weights] == [(0, (3, 3, 1, 1))]
    before = conv.unpack(0)
    assert before.dtype == np.float16 and before.shape == (3, 3, 1, 1)
    assert conv.pack({0: before}).to_bytes() == conv.to_bytes()
    changed = conv.pack({0: 2 * before.astype(np.float32) + 1})
    np.testing.assert_array_equal(changed.unpack(0), 2 * before + 1)
    np.testing.assert_array_equal(conv.unpack(0), before)
    differences = conv.diff(changed)
    assert differences and not conv.diff(conv)
    assert all(isinstance(str(difference), str) for difference in differences)
    with pytest.raises(ferrane.FerraneError, match="shape"):
        conv.pack({0: before[0]})
    with pytest.raises(ferrane.FerraneError, match="task 7 reads no weights"):
        conv.unpack(7)


def test_differences_are_those_of_the_registers() -> None:
    (text,) = (path.read_text() for path in TEXTS if path.name == "h13")
    first = hwx.open(hwx.assemble(text))
    (found,) = first.diff(hwx.open(hwx.assemble(text.replace("d = 1\n", "d = 2\n", 1))))
    assert {found.left, found.right} and found.left != found.right, found


def test_what_is_no_compiled_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ferrane.FerraneError) as caught:
        hwx.open(b"no program")
    assert caught.value.code == "E0701" and caught.value.remedy
    with pytest.raises(FileNotFoundError):
        hwx.open(tmp_path / "nothing.hwx")
    with pytest.raises(ferrane.FerraneError) as caught:
        hwx.assemble("hwx 1\n  nonsense = here\n")
    assert caught.value.code is not None and caught.value.diagnostics[0]["message"]
