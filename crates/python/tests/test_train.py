"""Training from Python: events, resuming, stopping, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

import ferrane
from ferrane import llm, train

SMALL: Dict[str, Any] = {"seq": 32, "accum": 1, "eval_every": 0, "eval_windows": 4, "save_every": 0}


def losses(events: List[Dict[str, Any]]) -> List[float]:
    return [event["record"]["loss"] for event in events if event["event"] == "update"]


def test_a_run_continues_where_it_was_stopped(tmp_path: Path) -> None:
    whole = list(train.Session(out=tmp_path / "whole", steps=12, **SMALL))
    kinds = [event["event"] for event in whole]
    assert kinds[-1] == "finished" and "compiled" in kinds and len(losses(whole)) == 12
    assert losses(whole)[-1] < losses(whole)[0]

    session = train.Session(out=tmp_path / "parts", steps=12, **SMALL)
    first = []
    for event in session:
        first.append(event)
        if len(losses(first)) == 5:
            session.stop()
    assert "stopped" in [event["event"] for event in first]
    rest = list(train.Session.resume(tmp_path / "parts"))
    assert losses(first) + losses(rest) == losses(whole)
    assert len(llm.Model(tmp_path / "whole").generate("One day", tokens=8, seed=1)) > 0


LEAVES = {
    "close": "s.close()",
    "with": "s.__exit__(None, None, None)",
    "exit": "pass",
    "exception": "raise RuntimeError",
}


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
def test_a_run_that_is_left_early_saves_a_checkpoint(leave: str, tmp_path: Path) -> None:
    script = (
        "import sys; from ferrane import train\n"
        "s = train.Session(out=sys.argv[1], steps=100000, seq=32, eval_every=0, eval_windows=0, save_every=0)\n"
        "for e in s:\n"
        "    if e['event'] == 'update': break\n"
    )
    subprocess.run([sys.executable, "-c", script + leave, str(tmp_path)], stderr=subprocess.DEVNULL)
    with train.Session.resume(tmp_path) as session:
        assert next(event for event in session if event["event"] == "started")["step"] > 0


def test_an_interrupt_reaches_a_reader_that_waits(tmp_path: Path) -> None:
    script = (
        "import sys; from ferrane import train\n"
        "s = train.Session(out=sys.argv[1], steps=100000, seq=32, eval_every=0, eval_windows=0, save_every=0)\n"
        "try:\n"
        "    for e in s:\n"
        "        if e['event'] == 'update': print('update', flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "update\n"
    os.kill(process.pid, signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert told.endswith("interrupted\n")


def test_wrong_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ferrane.FerraneError, match="`step` is no option.*steps"):
        train.Session(out=tmp_path, step=3)
    with pytest.raises(ferrane.FerraneError, match="`steps`: invalid type"):
        train.Session(out=tmp_path, steps="3")
    with pytest.raises(ferrane.FerraneError, match="nothing.txt"):
        list(train.Session(out=tmp_path, data="nothing.txt", steps=1))
    with pytest.raises(ferrane.FerraneError):
        list(train.Session.resume(tmp_path / "nowhere"))
    with pytest.raises(ferrane.FerraneError, match="emulater"):
        list(train.Session(out=tmp_path, device="emulater", steps=1))


def test_the_reference_trains_and_continues_texts(tmp_path: Path) -> None:
    events = list(train.Session(out=tmp_path, steps=2, device="reference", **SMALL))
    assert events[-1]["event"] == "finished" and len(losses(events)) == 2
    text = llm.Model(tmp_path, device="reference").generate("One day", tokens=4, temperature=0.0)
    assert text == llm.Model(tmp_path).generate("One day", tokens=4, temperature=0.0)
    with pytest.raises(ferrane.FerraneError, match="`reference` has no options"):
        llm.Model(tmp_path, device="reference?numerics=exact")
    with pytest.raises(ferrane.FerraneError, match="did you mean `reference`"):
        list(train.Session(out=tmp_path / "other", device="refrence", steps=1))


def test_a_run_with_data_has_other_defaults(tmp_path: Path) -> None:
    data = tmp_path / "stories.txt"
    data.write_text("Once upon a time there was a cat. The cat liked the sun.\n<|endoftext|>\n" * 200)
    defaults: List[Dict[str, Any]] = []
    choices: List[Any] = [[], [data], data]
    for sets in choices:
        out = tmp_path / f"run{len(defaults)}"
        list(train.Session(out=out, data=sets, **{**SMALL, "steps": 1}))
        (state,) = out.glob("step-*/state.json")
        defaults.append(json.loads(state.read_text())["options"])
    embedded, several, one = defaults
    assert embedded["lr"] != several["lr"] == one["lr"]
    wrong: Any = 3
    with pytest.raises(ferrane.FerraneError, match="`data`: "):
        train.Session(out=tmp_path, data=[data, wrong])
