"""Calls that run in threads of the package."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Callable, Optional, TypeVar

from . import _native

T = TypeVar("T")
_threads: Optional[ThreadPoolExecutor] = None
_lock = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    global _threads
    with _lock:
        if _threads is None:
            # A call uses all processors by itself where it can.
            _threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="ferrane-call")
        return _threads


def submit(read: Callable[[], _native.Arguments], run: Callable[[_native.Arguments], T]) -> Future[T]:
    """Reads the arguments now, and runs a function on them in a thread. The future has any error of either."""
    try:
        arguments = read()
    except Exception as error:
        failed: Future[T] = Future()
        failed.set_exception(error)
        return failed
    return _pool().submit(run, arguments)


async def result(future: Future[T]) -> T:
    """The result of a future, which a task of asyncio waits for."""
    import asyncio

    return await asyncio.wrap_future(future)
