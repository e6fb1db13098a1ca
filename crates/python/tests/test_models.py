"""Models: opened from all kinds of sources, run, examined, differentiated, compared, written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ferrane
from cases import CONVERTED, ONNX, SMALL, recorded

CASES = sorted(path for path in CONVERTED.glob("*.npz") if path.name.count(".") == 2)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_converted_networks_give_the_recorded_results(case: Path) -> None:
    """Among them packages whose inputs have several shapes, which follow from the arrays."""
    model = ferrane.load(CONVERTED / f"{case.name.split('.')[0]}.mlpackage")
    values = recorded(case)
    found = model.run({name: array for name, array in values["in"].items()}, device="emulator?numerics=exact")
    for name, want in values["out"].items():
        if name not in found:
            continue
        assert found[name].shape == want.shape
        scale = max(float(np.max(np.abs(want))), 1e-6) if want.size else 1.0
        # fp16 values inside of the networks, in another order of sums.
        np.testing.assert_allclose(found[name].astype(np.float64), want, atol=4e-3 * scale)


def test_a_model_is_opened_from_a_path_bytes_and_an_object(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 32, dtype=np.float16).reshape(1, 4, 1, 8)
    path = tmp_path / "small.mil"
    path.write_bytes(SMALL)

    class Package:
        """What coremltools' MLModel looks like."""

        def get_spec(self) -> None: ...

        def save(self, path: str) -> None:
            ferrane.load(SMALL).save(path)

    class Proto:
        """What onnx' ModelProto looks like."""

        def SerializeToString(self) -> bytes:
            return (ONNX / "mlp.onnx").read_bytes()

    wanted = np.tanh(2 * x.astype(np.float32))
    for source in (path, str(path), SMALL, Package()):
        found = ferrane.load(source).run(x=x)["y"]
        assert found.dtype == np.float16
        np.testing.assert_allclose(found.astype(np.float32), wanted, atol=1e-3)
    proto = ferrane.load(Proto(), shapes={"batch": 3})
    assert proto.inputs == [ferrane.Port("x", "fp32", (3, 8))]
    with pytest.raises(TypeError, match="`source`.*int"):
        ferrane.load(3)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", "u1", "?"])
def test_numbers_are_converted_to_the_declared_type(small: ferrane.Model, dtype: str) -> None:
    x = (np.arange(32).reshape(1, 4, 1, 8) % 2).astype(dtype)
    np.testing.assert_allclose(small.run(x=x)["y"].astype(np.float32), np.tanh(2.0 * x), atol=1e-3)


def test_arrays_of_any_order_and_dlpack_are_taken(small: ferrane.Model) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (8, 1, 4, 1)).astype(np.float16).T
    assert not x.flags.c_contiguous
    want = small.run(x=np.ascontiguousarray(x))["y"]

    class Foreign:
        """An array of another library."""

        def __init__(self, array: NDArray[Any]) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> object:
            return self.array.__dlpack_device__()

    for value in (x, Foreign(x), x.tolist()):
        np.testing.assert_array_equal(small.run(x=value)["y"], want)
    swapped = x.astype(">f4")
    np.testing.assert_array_equal(small.run(x=swapped)["y"], small.run(x=x.astype(np.float32))["y"])
    crooked = np.frombuffer(b"\0" + x.astype(np.float32).tobytes(), np.float32, offset=1).reshape(x.shape)
    assert not crooked.flags.aligned
    np.testing.assert_array_equal(small.run(x=crooked)["y"], small.run(x=x.astype(np.float32))["y"])
    with pytest.raises(ferrane.FerraneError, match="`x`: arrays of dtype complex64"):
        small.run(x=x.astype(np.complex64))
    with pytest.raises(ferrane.FerraneError, match="`x`: .*masked"):
        small.run(x=np.ma.masked_less(x, 0))


def test_outputs_go_to_other_libraries_without_a_copy(small: ferrane.Model) -> None:
    y = small.run(x=np.zeros((1, 4, 1, 8)))["y"]
    assert np.from_dlpack(y).ctypes.data == y.ctypes.data


def test_states_are_read_and_written() -> None:
    model = ferrane.load(CONVERTED / "state.mlpackage")
    assert model.states
    states = {port.name: np.ones(port.shape, np.float16) for port in model.states}
    before = {name: array.copy() for name, array in states.items()}
    inputs = {port.name: np.ones(port.shape, np.float16) for port in model.inputs}
    model.run(inputs, states=states)
    assert any(not np.array_equal(before[name], states[name]) for name in states)


def test_arrays_of_other_shapes_are_refused(small: ferrane.Model) -> None:
    x = np.zeros((1, 4, 1, 8))
    executable = ferrane.Device().load(small)
    for wrong in (x[0], x.ravel(), x.transpose(0, 1, 3, 2), x.reshape(2, 2, 1, 8), x[:, :, :, :4], x[:0], 0.0):
        for call in (executable, small.run, small.audit):
            with pytest.raises(ferrane.FerraneError, match="`x`.* shape"):
                call(x=wrong)
    with pytest.raises(TypeError, match="twice"):
        executable({"x": x}, x=x)
    shaped = ferrane.load(CONVERTED / "conv_range.mlpackage", shapes={"x": (1, 3, 8, np.int64(8))})
    assert shaped.inputs[0].shape == (1, 3, 8, 8)
    for size in (8, 16):
        image = np.ones((1, 3, size, size))
        first, second = (list(shaped.run(x=x).values())[0] for x in (image, image.tolist()))
        np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="neither"):
        ferrane.load(CONVERTED / "conv_range.mlpackage", shapes={"x=1,y": 2})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_gets_an_error_and_does_not_hang() -> None:
    script = (
        "import os, sys, ferrane\n"
        "from cases import SMALL\n"
        "model = ferrane.load(SMALL)\n"
        "model.run(x=[[[[0.0] * 8]] * 4])\n"
        "if (child := os.fork()) == 0:\n"
        "    try:\n"
        "        model.run(x=[[[[0.0] * 8]] * 4])\n"
        "    except ferrane.FerraneError as error:\n"
        "        os._exit(7 if 'spawn' in str(error) else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, timeout=60)
    assert done.returncode == 7


def test_a_chosen_function_is_what_is_predicted() -> None:
    body = SMALL[SMALL.index(b"  func") : SMALL.rindex(b"}")]
    both = SMALL.replace(body, body + body.replace(b"main", b"other").replace(b"tanh", b"exp"))
    model = ferrane.load(both, function="other")
    assert "exp" in str(model.cost()) and "tanh" not in str(model.cost())
    assert [op.op for op in model.place().ops] == ["mul", "exp"]


def test_the_doctor_runs_its_probes_in_processes() -> None:
    arguments = [sys.executable, "-m", "ferrane", "doctor", "--device", "emulator", "--probes", "dialect", "--json", "-"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0 and "can't open file" not in done.stdout + done.stderr, done.stderr


def test_errors_have_a_code_a_remedy_and_diagnostics(small: ferrane.Model) -> None:
    with pytest.raises(ferrane.FerraneError, match="no input `z`") as caught:
        small.run(z=np.zeros(1))
    assert caught.value.code == "E0606" and caught.value.remedy and caught.value.diagnostics == []
    with pytest.raises(ferrane.FerraneError, match="E0202") as caught:
        ferrane.load(SMALL.replace(b"y = two", b"y = tow"))
    assert caught.value.code == "E0202"
    assert caught.value.diagnostics[0]["suggestion"]["replacement"] == "two"
    with pytest.raises(ferrane.FerraneError, match="no such file"):
        ferrane.load("nothing.mlpackage")
    with pytest.raises(ferrane.FerraneError, match="numerics"):
        ferrane.Device("emulator?numerics=wrong")
    with pytest.raises(ferrane.FerraneError, match="int|hold"):
        ferrane.load(SMALL.replace(b"fp16", b"int32").replace(b"tanh(x = h)", b"abs(x = h)")).run(
            x=np.full((1, 4, 1, 8), np.nan)
        )


def test_findings_say_what_a_machine_refuses() -> None:
    findings = ferrane.load(CONVERTED / "lstm.mlpackage").check("m4-macos15-inmem")
    refused = findings.errors
    assert not findings.ok and {f.op for f in refused} == {"lstm"} and refused[0].claims
    assert "E0411" in str(findings) and "<td>E0411</td>" in findings._repr_html_()
    assert "op that the compiler refuses" in ferrane.explain(refused[0].code)
    with pytest.raises(ferrane.FerraneError, match="E9999"):
        ferrane.explain("E9999")
    assert ferrane.load(SMALL).check().ok
    with pytest.raises(ferrane.FerraneError, match="m4"):
        ferrane.load(SMALL).check("m44")
    assert "m4-macos15-inmem" in ferrane.machines() and "emulator" in ferrane.devices()


def test_placement_and_cost_are_those_of_the_command(small: ferrane.Model, tmp_path: Path) -> None:
    placement = small.place("m4")
    assert [op.op for op in placement.ops] == ["mul", "tanh"] and 0 <= placement.engine_share <= 1
    path = tmp_path / "small.mil"
    small.save(path)
    for name, report in (("place", str(placement)), ("cost", str(small.cost("m4")))):
        arguments = [sys.executable, "-m", "ferrane", name, "--machine", "m4", str(path)]
        told = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        assert told.strip() == report.strip()
    assert "<!doctype html>" in small.page().lower()


def test_the_reasons_of_a_placement_are_those_of_the_page() -> None:
    found = set()
    for name in ("conv_range", "lstm", "state"):
        model = ferrane.load(CONVERTED / f"{name}.mlpackage")
        page = model.page("m4")
        for op in model.place("m4").ops:
            assert (op.reason is None) == (op.runs_on == "engine"), op
            if op.reason is not None:
                found.add(op.reason)
                assert json.dumps(op.reason)[1:-1] in page, op
    assert len(found) >= 2, found


def test_the_reference_is_no_device(small: ferrane.Model) -> None:
    for open_it in (ferrane.Device, lambda name: small.run(x=np.zeros((1, 4, 1, 8)), device=name)):
        with pytest.raises(ferrane.FerraneError, match="`reference` is no device.* training and language models") as caught:
            open_it("reference")
        assert caught.value.code == "E0612"


def test_outputs_whose_shapes_depend_on_values_are_computed() -> None:
    """No surface holds them."""
    text = SMALL.replace(b"tanh(x = h)", b"non_zero(x = h)").replace(b"tensor<fp16, [1, 4, 1, 8]> y", b"tensor<int32, [?, 4]> y")
    x = np.zeros((1, 4, 1, 8), np.float16)
    x[0, 2, 0, 5] = 1
    model = ferrane.load(text)
    np.testing.assert_array_equal(model.run(x=x)["y"], [[0, 2, 0, 5]])
    executable = ferrane.Device().load(model)
    assert executable(x=0 * x)["y"].shape == (0, 4)
    assert executable.submit(x=x).result()["y"].shape == (1, 4)
    with pytest.raises(ferrane.FerraneError, match="no surface"):
        executable.prepare(x=x)


def test_the_audit_names_the_op_that_loses_precision() -> None:
    text = SMALL.replace(b"fp16(2)", b"fp16(30000)").replace(b"tanh(x = h)", b"sub(x = h, y = h)")
    audit = ferrane.load(text).audit(x=np.full((1, 4, 1, 8), 100.0))
    assert audit.json["values"] and len(audit.summary) == 2 and "html" in audit.html.lower()
    assert any("mul" in line for line in audit.summary), audit.summary


def test_the_backward_program_gives_the_derivative(mlp: ferrane.Model) -> None:
    backward = mlp.grad()
    assert [port.name for port in backward.inputs] == ["x", "d_y"]
    draws = np.random.default_rng(3)
    x, dy = draws.uniform(-1, 1, (2, 8)), draws.uniform(-1, 1, (2, 4))
    exact = "emulator?numerics=exact"
    dx = backward.run(x=x, d_y=dy, device=exact)["d_x"]

    def loss(x: NDArray[Any]) -> float:
        return float(np.sum(mlp.run(x=x, device=exact)["y"].astype(np.float64) * dy))

    step = 1e-2
    for index in np.ndindex(x.shape):
        low, high = x.copy(), x.copy()
        low[index] -= step
        high[index] += step
        # The step is wide because outputs are fp32; no ReLU of this network changes within it.
        assert abs((loss(high) - loss(low)) / (2 * step) - dx[index]) < 2e-3


def test_differences_are_found(small: ferrane.Model) -> None:
    other = ferrane.load(SMALL.replace(b"tanh", b"sigmoid"))
    assert small.diff(small).same and small.diff(small, seed=1).same
    found = small.diff(other, seed=1, within=0.01)
    assert not found.same and found.changes and found.outputs is not None and found.outputs[0].max > 0.1


def test_a_copy_computes_the_same(mlp: ferrane.Model, tmp_path: Path) -> None:
    # Core AI adds the bias within the product: another rounding.
    for name, within in (("copy.mlpackage", 0.0), ("copy.mil", 0.0), ("copy.aimodel", 1e-6)):
        mlp.save(tmp_path / name)
        copy = ferrane.load(tmp_path / name)
        found = mlp.diff(copy, seed=2, within=within)
        assert found.outputs is not None and found.same, name
        with pytest.raises(ferrane.FerraneError):
            mlp.save(tmp_path / name)
        mlp.save(tmp_path / name, overwrite=True)


def test_threads_share_an_executable(mlp: ferrane.Model) -> None:
    executable = ferrane.Device().load(mlp)
    inputs = [np.random.default_rng(i).uniform(-1, 1, (2, 8)).astype(np.float32) for i in range(8)]
    wanted = [executable(x=x)["y"] for x in inputs]
    wrong = []

    def work(i: int) -> None:
        for _ in range(200):
            if not np.array_equal(executable(x=inputs[i])["y"], wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_calls_do_not_leak(small: ferrane.Model) -> None:
    executable = ferrane.Device().load(small)
    x = np.zeros((1, 4, 1, 8), np.float16)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc")
    for _ in range(10_000):
        executable(x=x)
    before = resident()
    for _ in range(100_000):
        executable(x=x)
    # A byte kept for each call would be 100 kB, an array 10 MB.
    assert resident() - before < 2 << 20


def test_the_command_is_part_of_the_package() -> None:
    told = subprocess.run([sys.executable, "-m", "ferrane", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"ferrane {ferrane.__version__}"
    wrong = subprocess.run([sys.executable, "-m", "ferrane", "check", "nothing.mil"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "no such file" in wrong.stderr
    usage = subprocess.run([sys.executable, "-m", "ferrane", "--wrong"], capture_output=True, text=True)
    assert usage.returncode == 2


def test_a_backward_program_gives_what_was_asked_for() -> None:
    text = b"""program(1.3) { func main<ios17>(tensor<fp16, [1, 4]> x) {
        tensor<fp16, [1, 4]> w = const()[name = string("w"), val = tensor<fp16, [1, 4]>([[1, 2, 3, 4]])];
        tensor<fp16, [1, 4]> y = mul(x = x, y = w)[name = string("y")];
    } -> (y); }"""
    model = ferrane.load(text)
    adjoints = {(): ["d_x"], ("w",): ["d_x", "d_w"]}
    for lift, names in adjoints.items():
        assert sorted(port.name for port in model.grad(lift=lift).outputs) == sorted(names)
    assert [port.name for port in model.grad(inputs=[], lift=["w"]).outputs] == ["d_w"]
    with pytest.raises(ValueError, match="nothing to differentiate"):
        model.grad(inputs=[])
