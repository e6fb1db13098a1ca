"""Training of transformers, whose kernels run on a device.

    from ferrane import train

    session = train.Session(steps=200, out="runs/mine")      # the embedded corpus of simple stories
    for event in session:
        if event["event"] == "update":
            print(event["record"]["step"], event["record"]["loss"])

The run's folder has checkpoints, metrics and a report, as that of ``ferrane train``; `ferrane.llm.Model` opens it.
"""

from __future__ import annotations

import atexit
import json
import os
import weakref
from typing import Any, Dict, Iterator, List, Sequence, Union

from . import _native

__all__ = ["Session"]

_Path = Union[str, "os.PathLike[str]"]


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _number(value: Any) -> Any:
    """The number of a scalar of numpy."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"an option is text, a number or a list, not {type(value).__name__}")


#: Those whose runs may still be on.
_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for session in list(_SESSIONS):
        session.close()


class Session(Iterator[Dict[str, Any]]):
    """A run of training, as an iterator over its events.

    It trains in a thread while the events are read, at most a few ahead, and ends with the last one. An event is a
    dictionary: its ``event`` says which it is (``prepared``, ``compiled``, ``started``, ``window``, ``update``,
    ``validated``, ``saved``, ``warning``, ``finished`` …), and the other values are those of ``ferrane train --json``.

    A run that is left early is closed with a checkpoint: `close` does it, so does the end of a ``with`` block, and so
    does the end of the process for sessions that are still there.
    """

    def __init__(self, *, data: Union[_Path, Sequence[_Path]] = (), out: _Path = "runs/default", **options: Any) -> None:
        """Begins a run in the folder `out`.

        `data` are files or folders of text; without any, the embedded corpus. The other options have the names that
        the ``state.json`` of a checkpoint has: ``model``, ``init``, ``tokenizer``, ``device``, ``steps``, ``accum``, ``seq``,
        ``lr``, ``warmup``, ``seed``, ``eval_every``, ``save_every``, ``pipeline`` … `FerraneError` names an unknown
        one.
        """
        paths: List[Any] = [data] if isinstance(data, (str, os.PathLike)) else list(data)
        values = {**options, "data": paths, "out": out}
        text = json.dumps({name: _plain(value) for name, value in values.items()}, allow_nan=False, default=_number)
        self._begin(_native.Training.begin(text))

    def _begin(self, native: _native.Training) -> None:
        self._native = native
        _SESSIONS.add(self)

    @classmethod
    def resume(cls, folder: _Path) -> Session:
        """Continues the run of a folder from its latest checkpoint, with the results of an undisturbed run."""
        session = cls.__new__(cls)
        session._begin(_native.Training.resume(folder))
        return session

    def stop(self) -> None:
        """Asks the run to save a checkpoint and to end; the last events say so."""
        self._native.stop()

    def close(self) -> None:
        """Stops the run without reading its last events, and waits until the checkpoint is saved."""
        self._native.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Session:
        return self

    def __next__(self) -> Dict[str, Any]:
        event: Dict[str, Any] = json.loads(next(self._native))
        return event
