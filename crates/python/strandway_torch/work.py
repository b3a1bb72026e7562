"""An operation under way, as torch waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from strandway import _lab
from strandway.errors import WireTimeout

from .compat import Work
from .futures import Line, complete
from .staging import DeferredWork

# Of the works that a C++ caller may hold, those that have ended without being waited for; more of them are given up.
HELD_MAX = 1024
_held: dict[int, StrandwayWork] = {}
_held_lock = threading.Lock()


def hold(work: StrandwayWork) -> None:
    """Keeps a work until somebody has waited for it: before torch 2.7, C++ keeps only its half, whose `wait` never ends."""
    with _held_lock:
        _held[id(work)] = work
        while len(_held) > HELD_MAX:
            oldest = next(iter(_held.values()))
            if not all(inner.is_ended() for inner in oldest._works):
                break
            del _held[id(oldest)]


def _release(work: StrandwayWork) -> None:
    if _held:
        with _held_lock:
            _held.pop(id(work), None)


class StrandwayWork(Work):  # type: ignore[misc]
    """Of one or several collectives, with what remains to be done when they have ended."""

    def __init__(self, works: list[_lab.Work | DeferredWork], result: list[torch.Tensor], finish: list[Callable[[], None]]) -> None:
        """Takes the works, the tensors of the result, and what copies results into tensors that are not contiguous."""
        super().__init__()
        self._works, self._result, self._finish = works, result, finish
        self._line: Line | None = None
        self._lock = threading.Lock()

    def _finished(self) -> None:
        with self._lock:
            finish, self._finish = self._finish, []
            for step in finish:
                step()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the end; an operation that is not over in time goes on, and the caller hears of it."""
        limit = timeout.total_seconds() if timeout else 0.0
        until = time.monotonic() + limit
        try:
            for work in self._works:
                left = max(until - time.monotonic(), 0.0) if limit > 0 else None
                if not work.wait(left):
                    raise WireTimeout(f"wait timed out after {limit:.1f} s: its timeout was over before the operation", "timeout")
        finally:
            _release(self)
        self._finished()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the result, completed by a thread of the package; it fails as `wait` does."""
        # Of an accelerator: waiting for the future is for streams then, as waiting for the work is.
        devices = {work.device.device for work in self._works if isinstance(work, DeferredWork) and work.device is not None}
        end: torch.futures.Future[None] = torch.futures.Future(devices=list(devices))

        def value(_: torch.futures.Future[None]) -> list[torch.Tensor]:
            self.wait()
            return self._result

        # An error that `set_exception` gives to a future is lost in C++; one that a callback raises is the future's.
        future = end.then(value)
        complete(self._works, lambda: end.set_result(None), self._line)
        _release(self)
        return future

    def _source_rank(self) -> int:
        source = self._works[0].source() if self._works else None
        return -1 if source is None else source

    def source_rank(self) -> int:
        """The rank that a receive from anybody was filled by."""
        return self._source_rank()

    def is_completed(self) -> bool:
        """Has it ended? Its results are in their tensors then."""
        if not all(work.is_ended() for work in self._works):
            return False
        if self._finish and not any(work.failed() for work in self._works):
            self._finished()
        return True

    def result(self) -> list[torch.Tensor]:
        """The tensors of the result."""
        return self._result


def together(works: list[Any]) -> StrandwayWork:
    """Several works as one."""
    for work in works:
        _release(work)
    return StrandwayWork(
        [inner for work in works for inner in work._works],
        [tensor for work in works for tensor in work._result],
        [work._finished for work in works],
    )
