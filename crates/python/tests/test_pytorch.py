"""PyTorch and coremltools, which the gate does not install: run it where they are."""

from __future__ import annotations

import warnings
from typing import Any, Callable, List, Tuple

import pytest

import ferrane
from cases import SMALL

torch = pytest.importorskip("torch")
coremltools = pytest.importorskip("coremltools")


@pytest.fixture
def perceptron() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)).eval()


@pytest.mark.parametrize(("fp16", "device", "limit"), [(False, "emulator?numerics=exact", 1e-4), (True, "emulator", 1e-2)])
def test_gradients_are_those_of_autograd(perceptron: Any, fp16: bool, device: str, limit: float) -> None:
    from ferrane import pytorch

    x = torch.randn(4, 16, requires_grad=True)
    layer = pytorch.function(ferrane.from_torch(perceptron, [x], fp16=fp16), device)
    cotangent = torch.randn(4, 8)
    want_y = perceptron(x)
    (want,) = torch.autograd.grad(want_y, x, cotangent)
    y = layer(x)
    (found,) = torch.autograd.grad(y, x, cotangent)
    assert (y - want_y).abs().max() <= limit * want_y.abs().max()
    assert (found - want).abs().max() <= limit * want.abs().max()
    with pytest.raises(TypeError, match="1 inputs"):
        layer(x, x)


def test_compiled_modules_compute_the_same(perceptron: Any) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
    for module, x in ((perceptron, torch.randn(4, 16)), (net.eval(), torch.randn(1, 3, 9, 9))):
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="ferrane", dynamic=False)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", message="ferrane:")
            assert (compiled(x) - module(x)).abs().max() < 1e-5


def test_what_mil_cannot_say_runs_in_pytorch(perceptron: Any) -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.svd(x)[1]

    torch._dynamo.reset()
    x = torch.rand(4, 4)
    with torch.no_grad(), pytest.warns(UserWarning, match="runs in PyTorch: .*linalg_svd"):
        assert torch.equal(torch.compile(Odd(), backend="ferrane")(x), torch.linalg.svd(x)[1])
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="gradients are needed"):
        torch.compile(perceptron, backend="ferrane")(torch.randn(4, 16)).sum().backward()


def test_graphs_that_do_more_than_compute_run_in_pytorch() -> None:
    counter = torch.zeros(1)

    def counts(x: Any) -> Any:
        counter.add_(1)
        return x + counter

    def first_row(x: Any) -> Any:
        y = x[:2]
        y.add_(5)
        return x * 1

    cases: List[Tuple[Callable[[Any], Any], str]] = [
        (lambda x: x.add_(1) * 2, "in place"),
        (counts, "in place"),
        (first_row, "in place"),
        (lambda x: x + torch.rand(4, 4), "random"),
        (lambda x: (x * 2, x.reshape(16)), "view"),
        (lambda x: x.double() * 2, "float64"),
        (lambda x: x.bfloat16() * 2, "bfloat16"),
    ]
    for function, reason in cases:
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="ferrane", dynamic=False)
        with torch.no_grad(), pytest.warns(UserWarning, match=reason):
            x, y = torch.ones(4, 4), torch.ones(4, 4)
            counter.zero_()
            torch.manual_seed(1)
            want = function(x)
            counter.zero_()
            torch.manual_seed(1)
            found = compiled(y)
            assert torch.equal(x, y)
            for a, b in zip(want if isinstance(want, tuple) else [want], found if isinstance(found, tuple) else [found]):
                assert torch.equal(a, b)


def test_an_argument_is_never_a_constant() -> None:
    def add(x: Any, self_buffers_in: Any) -> Any:
        return x + self_buffers_in

    torch._dynamo.reset()
    compiled = torch.compile(add, backend="ferrane", dynamic=False)
    with torch.no_grad():
        for value in (1.0, 2.0):
            assert compiled(torch.zeros(2, 2), torch.full((2, 2), value))[0, 0] == value


def test_gradients_of_gradients_are_an_error(perceptron: Any) -> None:
    from ferrane import pytorch

    x = torch.randn(4, 16, requires_grad=True)
    perceptron.train()
    layer = pytorch.function(ferrane.from_torch(perceptron, [x], fp16=False))
    assert perceptron.training
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    with pytest.raises(ferrane.FerraneError, match="shape"):
        layer(torch.randn(16, 4))


def test_objects_of_coremltools_go_in_and_come_back(perceptron: Any) -> None:
    x = torch.randn(4, 16)
    traced = torch.jit.trace(perceptron, x)
    inputs = [coremltools.TensorType(shape=(4, 16), name="x")]
    mlmodel = coremltools.convert(traced, inputs=inputs, convert_to="mlprogram", skip_model_load=True)
    model = ferrane.load(mlmodel)
    back = ferrane.load(model.to_coremltools())
    assert model.diff(back).same and model.diff(back, seed=1).same
    found = model.run(x=x)[model.outputs[0].name]
    assert (torch.from_numpy(found).float() - perceptron(x)).abs().max() < 1e-2


def test_tensors_are_taken_and_results_shared() -> None:
    x = torch.linspace(-1, 1, 32).reshape(1, 4, 1, 8)
    y = ferrane.load(SMALL).run(x=x)["y"]
    shared = torch.from_dlpack(y)
    assert shared.data_ptr() == y.ctypes.data
    assert (shared.float() - torch.tanh(2 * x)).abs().max() < 1e-3
