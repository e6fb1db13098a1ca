"""Training of transformers, whose kernels run on a device.

    from ferrane import train

    session = train.Session(steps=200, out="runs/mine")      # the embedded corpus of simple stories
    for event in session:
        if event["event"] == "update":
            print(event["record"]["step"], event["record"]["loss"])

The run's folder has checkpoints, metrics and a report, as that of ``ferrane train``; `ferrane.llm.Model` opens it.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, List, Sequence, Union

from . import _native

__all__ = ["Session"]

_Path = Union[str, "os.PathLike[str]"]


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


class Session(Iterator[Dict[str, Any]]):
    """A run of training, as an iterator over its events.

    It trains in a thread while the events are read, at most a few ahead, and ends with the last one. An event is a
    dictionary: its ``event`` says which it is (``prepared``, ``compiled``, ``started``, ``window``, ``update``,
    ``validated``, ``saved``, ``warning``, ``finished`` …), and the other values are those of ``ferrane train --json``.
    A session that is not read any more saves a checkpoint and stops.
    """

    def __init__(self, *, data: Union[_Path, Sequence[_Path]] = (), out: _Path = "runs/default", **options: Any) -> None:
        """Begins a run in the folder `out`.

        `data` are files or folders of text; without any, the embedded corpus. The other options have the names that
        the run's ``config.json`` has: ``model``, ``init``, ``tokenizer``, ``device``, ``steps``, ``accum``, ``seq``,
        ``lr``, ``warmup``, ``seed``, ``eval_every``, ``save_every``, ``pipeline`` … `FerraneError` names an unknown
        one.
        """
        paths: List[Any] = [data] if isinstance(data, (str, os.PathLike)) else list(data)
        values = {**options, "data": paths, "out": out}
        self._native = _native.Training.begin(json.dumps({name: _plain(value) for name, value in values.items()}))

    @classmethod
    def resume(cls, folder: _Path) -> Session:
        """Continues the run of a folder from its latest checkpoint, with the results of an undisturbed run."""
        session = cls.__new__(cls)
        session._native = _native.Training.resume(folder)
        return session

    def stop(self) -> None:
        """Asks the run to save a checkpoint and to end; the last events say so."""
        self._native.stop()

    def __iter__(self) -> Session:
        return self

    def __next__(self) -> Dict[str, Any]:
        event: Dict[str, Any] = json.loads(next(self._native))
        return event
