"""The assertions, and the pytest plugin in a repository of its own."""

from __future__ import annotations

import numpy as np
import pytest

import ferrane
from cases import SMALL
from ferrane import testing


def test_close_results_pass_and_distant_ones_fail(small: ferrane.Model) -> None:
    x = np.linspace(-2, 2, 32).reshape(1, 4, 1, 8)
    testing.assert_close_on(small, {"x": x}, reference=lambda x: np.tanh(2 * x), psnr=50)
    testing.assert_close_on(small, {"x": x}, reference={"y": np.tanh(2 * x)}, psnr=50)
    with pytest.raises(AssertionError, match=r"`y` on m4-macos15-inmem: .* dB"):
        testing.assert_close_on(small, {"x": x}, reference=np.tanh(2.1 * x), psnr=50)
    with pytest.raises(AssertionError, match="shape"):
        testing.assert_close_on(small, {"x": x}, reference=np.tanh(2 * x)[0])
    with pytest.raises(AssertionError, match="2 outputs"):
        testing.assert_close_on(small, {"x": x}, reference=[x, x])
    with pytest.raises(AssertionError, match="-inf|nan"):
        testing.assert_close_on(small, {"x": x}, reference=np.zeros((1, 4, 1, 8)))


REPOSITORY = '''
from pathlib import Path
from ferrane import testing

MODEL = Path(__file__).parent / "block.mil"

def test_the_block_stays_on_the_engine():
    testing.assert_placed(MODEL, "m4", share=1.0)

def test_findings(findings_snapshot):
    findings_snapshot(MODEL)
'''

# An attention block in fp16, as Core ML gives it to the engine.
BLOCK = """program(1.3)
{
  func main<ios17>(tensor<fp16, [1, 8, 2048, 64]> q, tensor<fp16, [1, 8, 2048, 64]> k, tensor<fp16, [1, 8, 2048, 64]> v) {
    bool no = const()[name = string("no"), val = bool(false)];
    bool yes = const()[name = string("yes"), val = bool(true)];
    int32 axis = const()[name = string("axis"), val = int32(-1)];
    tensor<fp16, [1, 8, 2048, 2048]> scores = matmul(x = q, y = k, transpose_x = no, transpose_y = yes)[name = string("scores")];
    tensor<fp16, [1, 8, 2048, 2048]> weights = softmax(x = scores, axis = axis)[name = string("weights")];
    tensor<fp16, [1, 8, 2048, 64]> y = matmul(x = weights, y = v, transpose_x = no, transpose_y = no)[name = string("y")];
  } -> (y);
}
"""


def test_the_plugin_catches_a_block_that_leaves_the_engine(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_block=REPOSITORY)
    block = pytester.path / "block.mil"
    block.write_text(BLOCK)
    pytester.runpytest_subprocess().assert_outcomes(passed=1, failed=1)
    pytester.runpytest_subprocess("--ferrane-update").assert_outcomes(passed=2)
    assert list((pytester.path / "findings").iterdir())
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
    # Someone computes the scores in fp32.
    changed = BLOCK.replace("fp16", "fp32")
    assert changed != BLOCK
    block.write_text(changed)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*weights (softmax) on *", "*the findings have changed*"])


def test_allowed_ops_may_run_anywhere() -> None:
    cpu = SMALL.replace(b"fp16", b"fp32")
    with pytest.raises(AssertionError, match="0% of 2 ops"):
        testing.assert_placed(cpu)
    testing.assert_placed(cpu, allow=["mul", "tanh"])
    testing.assert_placed(cpu, share=0.0)
