"""PyTorch: modules as models, gradients through a model, and a backend of ``torch.compile``.

    model = ferrane.from_torch(module, [x])           # with coremltools
    layer = ferrane.pytorch.function(model)             # called with tensors; gradients flow through it
    fast = torch.compile(module, backend="ferrane")   # inference on the emulator, or on another device

The backend converts each graph with coremltools. What MIL cannot say runs in PyTorch as before, after a warning with the
reason; so do graphs that draw random numbers, change tensors in place, or return views of their inputs. Weights are constants of the converted graph, so a module is compiled again after its weights change. Options
are ``{"device": "emulator", "fp16": False}``.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ._model import Device, Model, from_torch

__all__ = ["compile_graph", "function"]


def function(model: Model, device: str = "emulator") -> Callable[..., Any]:
    """A function of tensors, in the order of the model's inputs, that PyTorch differentiates.

    It returns a tensor, or a tuple if the model has several outputs. Gradients come from the model's backward program,
    which is made and loaded when a gradient is first needed; integer inputs get none, and gradients of gradients are an
    error.
    """
    inputs = [port.name for port in model.inputs]
    outputs = [port.name for port in model.outputs]
    opened = Device(device)
    forward = opened.load(model)
    backward: List[Tuple[Any, Model]] = []

    class Call(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, *tensors: torch.Tensor) -> Any:
            context.save_for_backward(*tensors)
            found = forward({name: t.detach() for name, t in zip(inputs, tensors)})
            results = [torch.from_numpy(found[name]) for name in outputs]
            return tuple(results) if len(results) > 1 else results[0]

        @staticmethod
        def backward(context: Any, *cotangents: torch.Tensor) -> Any:
            # With `create_graph`; its result would be treated as a constant.
            if torch.is_grad_enabled():
                raise RuntimeError("a model gives no gradients of gradients (create_graph=True)")
            if not backward:
                made = model.grad()
                backward.append((opened.load(made), made))
            executable, made = backward[0]
            wanted = {port.name for port in made.inputs}
            values: Dict[str, Any] = {name: t.detach() for name, t in zip(inputs, context.saved_tensors)}
            values.update({f"d_{name}": t.detach() for name, t in zip(outputs, cotangents)})
            found = executable({name: value for name, value in values.items() if name in wanted})

            def adjoint(name: str, like: torch.Tensor) -> Optional[torch.Tensor]:
                array = found.get(f"d_{name}")
                return None if array is None else torch.from_numpy(array).to(like.dtype)

            return tuple(map(adjoint, inputs, context.saved_tensors))

    def call(*tensors: torch.Tensor) -> Any:
        if len(tensors) != len(inputs):
            raise TypeError(f"the model takes {len(inputs)} inputs ({', '.join(inputs)}), not {len(tensors)}")
        return Call.apply(*tensors)

    return call


def _is_weight(node: torch.fx.Node, example: Any) -> bool:
    """True for a parameter or a buffer of a module; Dynamo notes where an input of a graph comes from."""
    source = getattr(node, "_dynamo_source", None)
    while source is not None:
        if type(source).__name__ == "UnspecializedParamBufferSource":
            return True
        source = getattr(source, "base", None)
    return isinstance(example, torch.nn.Parameter)


class _Graph(torch.nn.Module):
    """A graph as a module of its true inputs: parameters and buffers are its own."""

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any]) -> None:
        super().__init__()
        self.graph = graph
        self.constants: Dict[int, torch.Tensor] = {}
        self.places: List[int] = []
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        for place, (node, example) in enumerate(zip(nodes, examples)):
            if _is_weight(node, example):
                self.constants[place] = example.detach()
            else:
                self.places.append(place)

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = dict(zip(self.places, inputs))
        count = len(self.places) + len(self.constants)
        return self.graph(*(given[i] if i in given else self.constants[i] for i in range(count)))


#: What a program takes and returns as it is.
_TYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.bool)


class _Refusal(Exception):
    """Why a graph is not converted."""


def _check_inputs(examples: Sequence[Any]) -> None:
    for example in examples:
        if not isinstance(example, torch.Tensor):
            raise _Refusal("extents vary (use dynamic=False)")
        if example.device.type != "cpu":
            raise _Refusal(f"a tensor is on {example.device}")
        if example.dtype not in _TYPES:
            raise _Refusal(f"a tensor is of {example.dtype}")
        if torch.is_grad_enabled() and example.requires_grad:
            raise _Refusal("gradients are needed (use torch.no_grad, or ferrane.pytorch.function)")


def _results(graph: torch.fx.GraphModule, examples: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], bool]:
    """What the graph computes, if that is all that it does: the same each time, and nothing in place.

    True if it returns a tensor and not a sequence.
    """

    def once(seed: int) -> Tuple[Any, List[torch.Tensor]]:
        copies = [example.detach().clone() for example in examples]
        versions = [copy._version for copy in copies]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            results = graph(*copies)
        if [copy._version for copy in copies] != versions:
            raise _Refusal("it changes a tensor in place")
        return results, copies

    (results, inputs), (repeated, _) = once(1), once(2)
    is_single = not isinstance(results, (list, tuple))
    first, second = ([results], [repeated]) if is_single else (list(results), list(repeated))
    for result, again in zip(first, second):
        if not isinstance(result, torch.Tensor) or result.dtype not in _TYPES:
            raise _Refusal(f"a result is of {getattr(result, 'dtype', type(result).__name__)}")
        if not torch.equal(torch.nan_to_num(result), torch.nan_to_num(again)):
            raise _Refusal("it draws random numbers")
        storage = result.untyped_storage().data_ptr()
        if any(storage == example.untyped_storage().data_ptr() for example in inputs):
            raise _Refusal("a result is a view of an input")
    return first, is_single


def compile_graph(
    graph: torch.fx.GraphModule, examples: List[Any], *, options: Optional[Dict[str, Any]] = None
) -> Callable[..., Any]:
    """The backend ``ferrane`` of ``torch.compile``."""
    settings: Dict[str, Any] = {"device": "emulator", "fp16": False, **(options or {})}
    unknown = set(settings) - {"device", "fp16"}
    if unknown:
        raise ValueError(f"options {sorted(unknown)} are unknown; there are `device` and `fp16`")
    try:
        _check_inputs(examples)
        return _converted(graph, examples, *_results(graph, examples), settings)
    except Exception as error:  # The converter raises what it likes.
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    ops = sum(node.op.startswith("call") for node in graph.graph.nodes)
    warnings.warn(f"ferrane: a graph of {ops} ops runs in PyTorch: {reason}", stacklevel=2)
    fallback: Callable[..., Any] = graph.forward
    return fallback


def _converted(
    graph: torch.fx.GraphModule,
    examples: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    is_single: bool,
    settings: Dict[str, Any],
) -> Callable[..., Any]:
    module = _Graph(graph, examples)
    inputs = [examples[place] for place in module.places]
    types = [result.dtype for result in expected]
    model = from_torch(module, inputs, fp16=settings["fp16"])
    executable = Device(settings["device"]).load(model)
    given, wanted = [p.name for p in model.inputs], [p.name for p in model.outputs]
    if len(given) != len(inputs) or len(wanted) != len(types):
        raise _Refusal("inputs or results of the graph are the same tensor, or are not used")

    def run(*tensors: torch.Tensor) -> Any:
        found = executable({name: tensors[i].detach() for name, i in zip(given, module.places)})
        results = tuple(torch.from_numpy(found[name]).to(dtype) for name, dtype in zip(wanted, types))
        return results[0] if is_single else results

    # What a converter gets wrong shows here, not in the results of its user.
    found = run(*examples)
    for result, want in zip([found] if is_single else found, expected):
        scale = float(want.float().abs().max()) if want.numel() else 0.0
        limit = (5e-2 if settings["fp16"] else 1e-3) * max(scale, 1e-6)
        if result.shape != want.shape or not torch.allclose(result.float(), want.float(), 0, limit, equal_nan=True):
            raise _Refusal("the converted program computes something else")
    return run
