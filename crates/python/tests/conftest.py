"""Fixtures of all tests."""

from __future__ import annotations

import pytest

import ferrane
from cases import ONNX, SMALL

pytest_plugins = ["pytester"]


@pytest.fixture
def small() -> ferrane.Model:
    """y = tanh(2 x)."""
    return ferrane.load(SMALL)


@pytest.fixture
def mlp() -> ferrane.Model:
    """A perceptron from ONNX, in fp32."""
    return ferrane.load(ONNX / "mlp.onnx", shapes={"batch": 2})
