"""PyTorch: modules as models, gradients through a model, and a backend of ``torch.compile``.

    model = ferrane.from_torch(module, [x])           # with coremltools
    layer = ferrane.pytorch.function(model)             # called with tensors; gradients flow through it
    fast = torch.compile(module, backend="ferrane")   # inference on the emulator, or on another device

The backend converts each graph with coremltools. What MIL cannot say runs in PyTorch as before, after a warning with the
reason. Weights are constants of the converted graph, so a module is compiled again after its weights change. Options
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
    which is made and loaded when a gradient is first needed; integer inputs get none.
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


class _Graph(torch.nn.Module):
    """A graph as a module of its true inputs: parameters and buffers are its own."""

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any]) -> None:
        super().__init__()
        self.graph = graph
        self.constants: Dict[int, torch.Tensor] = {}
        self.places: List[int] = []
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        for place, (name, example) in enumerate(zip(names, examples)):
            # Dynamo names them after the attributes that they come from.
            if isinstance(example, torch.nn.Parameter) or "_parameters_" in name or "_buffers_" in name:
                self.constants[place] = example.detach()
            else:
                self.places.append(place)

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = dict(zip(self.places, inputs))
        count = len(self.places) + len(self.constants)
        return self.graph(*(given[i] if i in given else self.constants[i] for i in range(count)))


def _refusal(examples: Sequence[Any]) -> Optional[str]:
    """Why a graph with such inputs is not converted, if it is not."""
    for example in examples:
        if not isinstance(example, torch.Tensor):
            return "extents vary (use dynamic=False)"
        if example.device.type != "cpu":
            return f"a tensor is on {example.device}"
        if torch.is_grad_enabled() and example.requires_grad:
            return "gradients are needed (use torch.no_grad, or ferrane.pytorch.function)"
    return None


def compile_graph(
    graph: torch.fx.GraphModule, examples: List[Any], *, options: Optional[Dict[str, Any]] = None
) -> Callable[..., Any]:
    """The backend ``ferrane`` of ``torch.compile``."""
    settings: Dict[str, Any] = {"device": "emulator", "fp16": False, **(options or {})}
    unknown = set(settings) - {"device", "fp16"}
    if unknown:
        raise ValueError(f"options {sorted(unknown)} are unknown; there are `device` and `fp16`")
    reason = _refusal(examples)
    if reason is None:
        try:
            return _converted(graph, examples, settings)
        except Exception as error:  # The converter raises what it likes.
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    ops = sum(node.op.startswith("call") for node in graph.graph.nodes)
    warnings.warn(f"ferrane: a graph of {ops} ops runs in PyTorch: {reason}", stacklevel=2)
    fallback: Callable[..., Any] = graph.forward
    return fallback


def _converted(
    graph: torch.fx.GraphModule, examples: Sequence[torch.Tensor], settings: Dict[str, Any]
) -> Callable[..., Any]:
    module = _Graph(graph, examples)
    inputs = [examples[place] for place in module.places]
    with torch.no_grad():
        results = module(*inputs)
    is_single = isinstance(results, torch.Tensor)
    types = [result.dtype for result in ([results] if is_single else results)]
    model = from_torch(module, inputs, fp16=settings["fp16"])
    executable = Device(settings["device"]).load(model)
    given, wanted = [p.name for p in model.inputs], [p.name for p in model.outputs]
    if len(given) != len(inputs) or len(wanted) != len(types):
        raise ValueError("inputs or outputs of the graph are the same tensor, or are not used")

    def run(*tensors: torch.Tensor) -> Any:
        found = executable({name: tensors[i].detach() for name, i in zip(given, module.places)})
        results = tuple(torch.from_numpy(found[name]).to(dtype) for name, dtype in zip(wanted, types))
        return results[0] if is_single else results

    return run
