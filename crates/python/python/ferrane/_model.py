"""Models, devices and executables."""

from __future__ import annotations

import json
import operator
import os
import shutil
import tempfile
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, SupportsIndex, Tuple, Union

from . import _calls, _native
from ._reports import Audit, Change, Cost, Difference, Distance, Findings, Placement
from ._types import NDArray

#: A path of a model, its bytes (ONNX or MIL text), or a model object of coremltools or onnx.
Source = Union[str, "os.PathLike[str]", bytes, Any]

#: Extents by the names that an ONNX model gives them, or shapes by the names of inputs.
Shapes = Mapping[str, Union[SupportsIndex, Sequence[SupportsIndex], str]]


@dataclass(frozen=True)
class Port:
    """An input, a state or an output of a function."""

    name: str
    #: The element type as MIL spells it: ``fp16``, ``fp32``, ``int32`` …
    dtype: str
    shape: Tuple[int, ...]


def _ports(ports: Iterable[Tuple[str, str, List[int]]]) -> List[Port]:
    return [Port(name, dtype, tuple(shape)) for name, dtype, shape in ports]


def _arrays(inputs: Optional[Mapping[str, Any]], named: Mapping[str, Any]) -> Dict[str, Any]:
    both = sorted(set(inputs or ()) & set(named))
    if both:
        raise TypeError(f"input `{both[0]}` is given twice")
    return {**(inputs or {}), **named}


def _device_name(device: Union[str, Device]) -> str:
    return device if isinstance(device, str) else device.name


class Device:
    """A device, opened by its name: ``emulator``, ``emulator?numerics=exact``, ``ane`` on a Mac.

    `ferrane.devices` lists the names; ``ferrane devices`` of the command lists the options, too.
    """

    def __init__(self, name: str = "emulator") -> None:
        self._native = _native.Device(name)

    @property
    def name(self) -> str:
        """The device's name, with its options."""
        return self._native.name

    def load(self, model: Model) -> Executable:
        """Compiles a model's function and keeps it loaded."""
        return Executable(model._native.load(self._native), model)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"


class Executable:
    """A function that is loaded on a device. Several threads may call it at once."""

    def __init__(self, native: _native.Executable, model: Model) -> None:
        self._native = native
        #: The inputs, states and outputs of the function.
        self.inputs, self.states, self.outputs = model.inputs, model.states, model.outputs

    def __call__(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        /,
        *,
        states: Optional[Dict[str, Any]] = None,
        **named: Any,
    ) -> Dict[str, NDArray[Any]]:
        """Runs the function: an array for each output.

        Inputs are arrays of numpy, or what numpy or DLPack takes for one (tensors of PyTorch on the CPU, for example);
        their numbers are converted to the declared types, and their shapes must be the declared ones. An input whose
        name is that of a keyword, such as ``states``, goes into the dictionary. `states` are the states before the run,
        zeros if they are missing, and are replaced by those after it.
        """
        return self._native.run(_arrays(inputs, named), states)

    def submit(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        /,
        *,
        states: Optional[Dict[str, Any]] = None,
        **named: Any,
    ) -> Future[Dict[str, NDArray[Any]]]:
        """Runs the function in a thread of the package, and returns at once; see `Executable.__call__`.

        The arrays are read before this returns, so they may be changed then. The future has the outputs or the error.
        As many calls run at the same time as the computer has processors; those that wait for their turn can be
        cancelled.
        """
        values = _arrays(inputs, named)
        return _calls.submit(lambda: self._native.read(values, states), self._native.run_read)

    async def run_async(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        /,
        *,
        states: Optional[Dict[str, Any]] = None,
        **named: Any,
    ) -> Dict[str, NDArray[Any]]:
        """Runs the function while other tasks of asyncio run; see `Executable.submit`.

        A task that is cancelled before the call begins cancels it; later, its result is dropped.
        """
        return await _calls.result(self.submit(inputs, states=states, **named))

    def prepare(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        /,
        *,
        states: Optional[Mapping[str, Any]] = None,
        **named: Any,
    ) -> Request:
        """Binds the function to memory that stays, for calls that follow each other closely.

        Inputs and states that are not given begin as zeros.
        """
        return Request(self._native.prepare(_arrays(inputs, named), None if states is None else dict(states)))


class Request:
    """An executable with an array for each input and output. `Executable.prepare` makes one.

    The arrays have the declared types and shapes and stay the same: write into those of `inputs`, `run`, and read those
    of `outputs`, which the next run writes again. A run copies them to the surfaces of the device and back, and
    converts nothing. States stay on the device from run to run.
    """

    def __init__(self, native: _native.Request) -> None:
        self._native = native
        #: The array of each input, which a run reads.
        self.inputs: Mapping[str, NDArray[Any]] = MappingProxyType(native.inputs)
        #: The array of each output, which a run writes.
        self.outputs: Mapping[str, NDArray[Any]] = MappingProxyType(native.outputs)

    @property
    def states(self) -> Dict[str, NDArray[Any]]:
        """A copy of each state, as the last run left it."""
        return self._native.states()

    def run(self) -> Mapping[str, NDArray[Any]]:
        """Runs the function on what the arrays of the inputs hold, and returns `outputs`.

        One thread runs a request at a time; a second one gets an error.
        """
        self._native.run()
        return self.outputs


class Model:
    """A model that is open. `load` and `from_torch` make one."""

    def __init__(self, native: _native.Model) -> None:
        self._native = native

    @property
    def inputs(self) -> List[Port]:
        """The inputs of the function."""
        return _ports(self._native.inputs)

    @property
    def states(self) -> List[Port]:
        """The states of the function."""
        return _ports(self._native.states)

    @property
    def outputs(self) -> List[Port]:
        """The outputs of the function."""
        return _ports(self._native.outputs)

    def text(self) -> str:
        """The program as MIL text; large weights are named by their place in a weight file."""
        return self._native.text()

    def run(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        /,
        *,
        device: Union[str, Device] = "emulator",
        states: Optional[Dict[str, Any]] = None,
        **named: Any,
    ) -> Dict[str, NDArray[Any]]:
        """Runs the function on a device; see `Executable.__call__`.

        The model keeps what it has compiled for the last devices and shapes. Inputs may have any shape that a package
        allows.
        """
        return self._native.run(_arrays(inputs, named), _device_name(device), states)

    async def run_async(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        /,
        *,
        device: Union[str, Device] = "emulator",
        states: Optional[Dict[str, Any]] = None,
        **named: Any,
    ) -> Dict[str, NDArray[Any]]:
        """Runs the function while other tasks of asyncio run; see `run` and `Executable.run_async`."""
        values, on = _arrays(inputs, named), _device_name(device)
        future = _calls.submit(lambda: self._native.read(values, states), lambda read: self._native.run_read(read, on))
        return await _calls.result(future)

    def check(self, machine: str = "m4-macos15-inmem", *, strict: bool = False) -> Findings:
        """What a machine refuses, computes wrongly or runs slowly, in all functions of the file.

        `strict` takes every published claim into account, also those that are overruled for this machine.
        """
        return Findings._read(self._native.check(machine, strict))

    def cost(self, machine: str = "m4") -> Cost:
        """The predicted time of each op of the function on a chip, and what bounds it."""
        data, text = self._native.cost(machine)
        return Cost(json.loads(data), text)

    def place(self, machine: str = "m4", *, framework: str = "coreml", units: str = "cpu-and-ne") -> Placement:
        """On which processor a framework probably runs each op, and why not on the engine."""
        return Placement._read(self._native.place(machine, framework, units))

    def page(self, machine: str = "m4-macos15-inmem") -> str:
        """A page in one HTML file: the network as a graph, with findings and placement."""
        return self._native.page(machine)

    def audit(
        self, inputs: Optional[Mapping[str, Any]] = None, /, *, machine: Optional[str] = None, **named: Any
    ) -> Audit:
        """Which op loses precision for these inputs, and why."""
        data, text, page = self._native.audit(_arrays(inputs, named), machine)
        return Audit(json.loads(data), page, text)

    def grad(
        self,
        *,
        outputs: Sequence[str] = (),
        inputs: Optional[Sequence[str]] = None,
        lift: Sequence[str] = (),
        keep_outputs: bool = False,
    ) -> Model:
        """The backward program: it takes the inputs and a cotangent for each output, and gives an adjoint for each input.

        Without names, all outputs and inputs of fp16 and fp32 take part. Constants in `lift` become inputs first and get
        an adjoint, too; with no `inputs` (`[]`) they alone do. `keep_outputs` returns the outputs as well.
        """
        wanted = [] if inputs is None else list(inputs) or list(lift)
        if inputs is not None and not wanted:
            raise ValueError("there is nothing to differentiate by: name inputs, or constants in `lift`")
        return Model(self._native.grad(list(outputs), wanted, list(lift), keep_outputs))

    def diff(self, other: Model, *, seed: Optional[int] = None, within: float = 0.0) -> Difference:
        """What differs between all functions of two models; with a `seed`, also what they compute for random inputs.

        Outputs count as the same if they differ by at most the share `within` of the largest magnitude.
        """
        changes, outputs = self._native.diff(other._native, seed, within)
        distances = None if outputs is None else tuple(Distance(*output) for output in outputs)
        return Difference(tuple(Change(*change) for change in changes), distances)

    def save(self, path: Union[str, os.PathLike[str]], *, overwrite: bool = False) -> None:
        """Writes the model as the extension says: ``.mlpackage``, ``.mil`` or ``.aimodel``."""
        self._native.save(path, overwrite)

    def to_coremltools(self) -> Any:
        """The model as coremltools' ``MLModel``, without loading it into Core ML."""
        import coremltools

        # The object reads its weights from the package for as long as it lives.
        folder = tempfile.mkdtemp()
        try:
            path = Path(folder, "model.mlpackage")
            self.save(path)
            model = coremltools.models.MLModel(str(path), skip_model_load=True)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
        return model

    def __repr__(self) -> str:
        def named(ports: List[Port]) -> str:
            return ", ".join(f"{port.name}: {port.dtype}{list(port.shape)}" for port in ports)

        return f"<Model {self._native.name}: ({named(self.inputs)}) -> ({named(self.outputs)})>"


def _shape_items(shapes: Optional[Shapes]) -> List[str]:
    """The items as the command's ``--shape`` has them."""

    def extents(value: Union[SupportsIndex, Sequence[SupportsIndex], str]) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, SupportsIndex):
            return str(operator.index(value))
        return "x".join(str(operator.index(extent)) for extent in value)

    items = []
    for name, value in (shapes or {}).items():
        if "=" in name or "," in name:
            raise ValueError(f"`shapes` {name!r}: a name has neither `=` nor `,`")
        items.append(f"{name}={extents(value)}")
    return items


def load(
    source: Source, *, function: Optional[str] = None, shapes: Optional[Shapes] = None, fp16: bool = False
) -> Model:
    """Opens a model.

    `source` is a path (``.mlpackage``, ``.mlmodel``, ``.mlmodelc``, ``.mil``, ``.onnx``, ``.aimodel``), the bytes of an
    ONNX model or of MIL text, an ``MLModel`` of coremltools, or a ``ModelProto`` of onnx. `function` is ``main``, or the
    first one, by default. `shapes` gives named extents their numbers (``{"batch": 1}``), and inputs of
    other files their shapes (``{"x": (1, 3, 224, 224)}``). `fp16` computes an ONNX model in fp16, as the engine does.

    Raises `FerraneError`; its ``diagnostics`` list what is wrong with a program.
    """

    def opened(path: Union[str, os.PathLike[str]], name: Optional[str] = None) -> Model:
        return Model(_native.Model.open(path, function, _shape_items(shapes), fp16, name))

    if isinstance(source, (str, os.PathLike)):
        return opened(source)
    model: Any = source
    with tempfile.TemporaryDirectory() as folder:
        if hasattr(model, "save") and hasattr(model, "get_spec"):
            path = Path(folder, "model.mlpackage")
            model.save(str(path))
            return opened(path, type(source).__name__)
        if hasattr(model, "SerializeToString"):
            model = model.SerializeToString()
        if not isinstance(model, bytes):
            raise TypeError(f"`source` is a path, bytes, or a model of coremltools or onnx, not {type(source).__name__}")
        path = Path(folder, "model.mil" if model.lstrip().startswith(b"program") else "model.onnx")
        path.write_bytes(model)
        return opened(path, type(source).__name__)


def from_torch(module: Any, inputs: Sequence[Any], *, fp16: bool = True) -> Model:
    """Converts a PyTorch module with coremltools, which must be installed.

    `inputs` are example tensors, whose shapes the model keeps; coremltools chooses the names of inputs and outputs. The
    module is converted as it computes in evaluation mode.
    """
    import coremltools
    import numpy as np
    import torch

    # PyTorch's fused attention is an op that no converter knows.
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    trained = [part for part in module.modules() if part.training]
    try:
        with torch.no_grad():
            traced = torch.jit.trace(module.eval(), tuple(inputs), check_trace=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for part in trained:
            part.training = True
    precision = coremltools.precision.FLOAT16 if fp16 else coremltools.precision.FLOAT32

    def described(tensor: Any) -> Any:
        dtype = "float32" if tensor.dtype.is_floating_point else "int32"
        return coremltools.TensorType(shape=tuple(tensor.shape), dtype=np.dtype(dtype).type)

    converted = coremltools.convert(
        traced,
        inputs=list(map(described, inputs)),
        convert_to="mlprogram",
        compute_precision=precision,
        minimum_deployment_target=coremltools.target.iOS17,
        skip_model_load=True,
    )
    return load(converted)
