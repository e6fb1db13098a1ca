"""Calls that do not block: futures, asyncio, and requests that are prepared once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
from numpy.typing import NDArray

import ferrane
from cases import CONVERTED, SMALL

SHAPE = (1, 4, 1, 8)
#: Evaluations take this long.
SLOW = "emulator?faults=evaluate:from 1=delay 100ms"


@pytest.fixture
def executable(small: ferrane.Model) -> ferrane.Executable:
    return ferrane.Device().load(small)


@pytest.fixture
def slow(small: ferrane.Model) -> ferrane.Executable:
    return ferrane.Device(SLOW).load(small)


def x(value: float) -> NDArray[Any]:
    return np.full(SHAPE, value, np.float16)


def test_several_calls_are_in_flight(slow: ferrane.Executable, executable: ferrane.Executable) -> None:
    futures = [slow.submit(x=x(value)) for value in (0.1, 0.2, 0.3)]
    assert not all(future.done() for future in futures)
    for value, future in zip((0.1, 0.2, 0.3), futures):
        np.testing.assert_array_equal(future.result()["y"], executable(x=x(value))["y"])


def test_arrays_are_read_when_a_call_is_submitted(slow: ferrane.Executable, executable: ferrane.Executable) -> None:
    array = x(0.5)
    future = slow.submit({"x": array})
    array[...] = 0
    np.testing.assert_array_equal(future.result()["y"], executable(x=x(0.5))["y"])


def test_errors_are_in_the_future(executable: ferrane.Executable) -> None:
    for future, words in (
        (executable.submit(x=x(0)[0]), "shape"),
        (executable.submit(z=x(0)), "no input `z`"),
        (executable.submit(x=np.ma.masked_less(x(0), 1)), "masked"),
    ):
        with pytest.raises(ferrane.FerraneError, match=words):
            future.result()
    failing = ferrane.Device("emulator?faults=evaluate:1=fail").load(ferrane.load(SMALL))
    with pytest.raises(ferrane.FerraneError) as caught:
        failing.submit(x=x(0)).result()
    assert caught.value.code == "E0605"


def test_a_call_that_waits_for_its_turn_can_be_cancelled(slow: ferrane.Executable) -> None:
    futures: List[Future[Dict[str, NDArray[Any]]]] = [slow.submit(x=x(0)) for _ in range(4 * (os.cpu_count() or 1))]
    while not futures[0].running():
        assert not futures[0].done()
    assert futures[-1].cancel() and not futures[0].cancel()
    with pytest.raises(CancelledError):
        futures[-1].result()
    assert all(future.result() for future in futures[:-1])


def test_the_event_loop_runs_while_a_call_does(slow: ferrane.Executable, small: ferrane.Model) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        results = await asyncio.gather(*(slow.run_async({"x": x(value)}) for value in (0.1, 0.2)))
        ticking.cancel()
        assert ticks >= 3
        for value, result in zip((0.1, 0.2), results):
            np.testing.assert_array_equal(result["y"], small.run(x=x(value))["y"])
            np.testing.assert_array_equal((await small.run_async(x=x(value)))["y"], result["y"])
        with pytest.raises(ferrane.FerraneError, match="shape"):
            await slow.run_async(x=x(0)[0])
        with pytest.raises(ferrane.FerraneError, match="numerics"):
            await small.run_async(x=x(0), device="emulator?numerics=wrong")

    asyncio.run(main())


def test_a_cancelled_task_does_not_begin_its_call(slow: ferrane.Executable) -> None:
    async def main() -> None:
        tasks = [asyncio.ensure_future(slow.run_async(x=x(0))) for _ in range(4 * (os.cpu_count() or 1))]
        await asyncio.sleep(0.01)
        tasks[-1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[-1]
        assert len(await asyncio.gather(*tasks[:-1])) == len(tasks) - 1

    asyncio.run(main())


def test_states_are_replaced_by_those_after_the_call() -> None:
    model = ferrane.load(CONVERTED / "state.mlpackage")
    executable = ferrane.Device().load(model)
    inputs = {port.name: np.ones(port.shape, np.float16) for port in model.inputs}
    direct: Dict[str, Any] = {port.name: np.ones(port.shape, np.float16) for port in model.states}
    states = dict(direct)
    want = executable(inputs, states=direct)
    found = asyncio.run(executable.run_async(inputs, states=states))
    for name in want:
        np.testing.assert_array_equal(found[name], want[name])
    for name in direct:
        np.testing.assert_array_equal(states[name], direct[name])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_call_after_a_fork_is_an_error() -> None:
    script = (
        "import os, sys, ferrane\n"
        "from cases import SMALL\n"
        "executable = ferrane.Device().load(ferrane.load(SMALL))\n"
        "x = [[[[0.0] * 8]] * 4]\n"
        "executable.submit(x=x).result()\n"
        "if (child := os.fork()) == 0:\n"
        "    try:\n"
        "        executable.submit(x=x).result()\n"
        "    except ferrane.FerraneError as error:\n"
        "        os._exit(7 if 'spawn' in str(error) else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, timeout=60)
    assert done.returncode == 7


def test_a_request_keeps_its_arrays(executable: ferrane.Executable) -> None:
    request = executable.prepare(x=x(0.5))
    array, result = request.inputs["x"], request.outputs["y"]
    assert array.shape == result.shape == SHAPE and array.dtype == result.dtype == np.dtype(np.float16)
    assert array.flags.writeable and array.flags.aligned
    for value in (0.5, -0.25, 1.0):
        array[...] = value
        assert request.run() is request.outputs
        assert request.outputs["y"] is result
        np.testing.assert_array_equal(result, executable(x=x(value))["y"])
    # Arrays stay after the request.
    del request
    assert array.sum() == 32 and np.isfinite(result).all()


def test_the_arrays_of_a_request_have_every_type(mlp: ferrane.Model) -> None:
    draws = np.random.default_rng(1)
    models = [mlp, *(ferrane.load(path) for path in sorted(CONVERTED.glob("*.mlpackage")))]
    prepared = 0
    for model in models:
        if model.states:
            continue
        inputs: Dict[str, NDArray[Any]] = {}
        for port in model.inputs:
            array = draws.uniform(-1, 1, port.shape)
            inputs[port.name] = array if port.dtype.startswith("fp") else array > 0
        executable = ferrane.Device().load(model)
        try:
            want = executable(inputs)
            request = executable.prepare(inputs)
        except ferrane.FerraneError as error:
            assert error.code == "E0606" or "no surface" in str(error), error
            continue
        prepared += 1
        for name, found in request.run().items():
            assert found.dtype == want[name].dtype and found.shape == want[name].shape
            np.testing.assert_array_equal(found, want[name])
    assert prepared > 10


def test_states_stay_from_run_to_run() -> None:
    model = ferrane.load(CONVERTED / "state.mlpackage")
    executable = ferrane.Device().load(model)
    inputs = {port.name: np.ones(port.shape, np.float16) for port in model.inputs}
    states: Dict[str, Any] = {port.name: np.ones(port.shape, np.float16) for port in model.states}
    request = executable.prepare(inputs, states=states)
    for _ in range(3):
        want = executable(inputs, states=states)
        for name, array in request.run().items():
            np.testing.assert_array_equal(array, want[name])
        for name, array in request.states.items():
            np.testing.assert_array_equal(array, states[name])


def test_a_request_runs_in_one_thread_at_a_time(slow: ferrane.Executable) -> None:
    request = slow.prepare()
    codes: List[object] = []

    def run() -> None:
        try:
            request.run()
            codes.append(None)
        except ferrane.FerraneError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, codes)) == ["E0608", "None"]
    request.run()


def test_what_a_request_does_not_take_is_an_error(executable: ferrane.Executable) -> None:
    with pytest.raises(ferrane.FerraneError, match="shape"):
        executable.prepare(x=x(0)[0])
    with pytest.raises(ferrane.FerraneError, match="no input `z`"):
        executable.prepare(z=x(0))
    request: Any = executable.prepare()
    with pytest.raises(TypeError):
        request.inputs["x"] = x(1)
    assert not request.run()["y"].any()
