"""One rank's side of a group: how it meets the others, ends, and says what failed.

One node serves all groups of a process. Nothing is started before the first group is made, so that programs may fork until then.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from strandway import _lab
from strandway.errors import WireError
from strandway.wire import _close

from .compat import ErrorType, accelerator_type
from .futures import Line, in_callback
from .staging import StagingQueue

# How long ranks wait at least for each other when a group is made; longer if its timeout is longer.
PATIENCE = 30.0

# C++ keeps only its half of a group; ours must outlive it.
ALIVE: set[Any] = set()


class _Store:
    """A store of torch, as the package asks for one."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def set(self, key: str, value: bytes) -> None:
        self.store.set("strandway/" + key, value)

    def get(self, key: str, seconds: float) -> bytes:
        name = "strandway/" + key
        if seconds < 0.1 and not self.store.check([name]):
            raise TimeoutError(f"no value for {key}")
        self.store.wait([name], timedelta(seconds=seconds))
        return bytes(self.store.get(name))

    def remove(self, key: str) -> None:
        # Some stores cannot; what is left there is ignored.
        with contextlib.suppress(Exception):
            self.store.delete_key("strandway/" + key)


def _end() -> None:
    for side in list(ALIVE):
        side._drain()
    _close()


_closing: int | None = None


def _close_at_exit() -> None:
    # The last words of a process arrive before it ends; children of multiprocessing do not run atexit.
    global _closing
    if _closing != os.getpid():
        _closing = os.getpid()
        # The package itself has registered what closes the wire; children of multiprocessing do not run that.
        multiprocessing.util.Finalize(None, _end, exitpriority=1)


class Side:
    """The life of groups beside operations. The class of torch that a face has beside it gives `rank` and `size`."""

    rank: Any
    size: Any
    # Makes another group of the same class.
    _another: Any
    # With `group_name`, `global_ranks_in_group` and `_timeout`, as torch's own options have them.
    _options: Any
    # Tells the groups of this package from others.
    is_strandway = True

    def _meet(self, store: Any, rank: int, size: int, timeout: timedelta, apart: bool = False, group: _lab.WireGroup | None = None) -> None:
        """Meets the other ranks at the store, with a node of its own if `apart`; or takes a `group` that has met."""
        seconds = timeout.total_seconds()
        if group is None:
            towards = os.environ.get("MASTER_ADDR") or None
            group = _lab.WireGroup.meet(_Store(store), rank, size, towards, seconds, max(seconds, PATIENCE), apart)
        self._group = group
        self._twin: _lab.WireGroup | None = None
        self._twin_lock = threading.Lock()
        self._aborted = False
        self._line = Line()
        # Calls on accelerators: of the group, of its twin, and messages, which no collective holds up.
        self._queues: dict[tuple[_lab.WireGroup, bool], StagingQueue] = {}
        self._barriers = 0
        _close_at_exit()
        ALIVE.add(self)

    def getBackendName(self) -> str:
        """`strandway`."""
        return "strandway"

    @property
    def options(self) -> Any:
        """The name, the timeout and the ranks of the group."""
        return self._options

    def abort(self) -> None:
        """Ends all operations of the group here, now; they fail."""
        with self._twin_lock:
            self._aborted = True
            queues = list(self._queues.values())
            if self._twin is not None:
                self._twin.abort()
        self._group.abort()
        for queue in queues:
            queue.abort()

    def shutdown(self) -> None:
        """Leaves the group."""
        ALIVE.discard(self)
        self.abort()

    def set_timeout(self, timeout: timedelta) -> None:
        """How long operations may take from now on."""
        self._options._timeout = timeout
        self._group.set_timeout(timeout.total_seconds())
        if self._twin is not None:
            self._twin.set_timeout(timeout.total_seconds())

    def _failure(self) -> tuple[bool, str] | None:
        return self._group.failure() or (self._twin.failure() if self._twin is not None else None)

    def get_error(self) -> Any:
        """Has an operation of the group failed, and by its timeout?"""
        failure = self._failure()
        if failure is None:
            return ErrorType.SUCCESS
        return ErrorType.TIMEOUT if failure[0] else ErrorType.COMM_ERROR

    def errored(self) -> Exception | None:
        """The first failure of an operation, which names rank, host and plane."""
        failure = self._failure()
        return None if failure is None else WireError(failure[1])

    def split(self, store: Any, ranks: Sequence[int], options: Any) -> Any:
        """A group of some of these ranks, in that order; all of those call it."""
        ranks = list(ranks)
        if self.rank() not in ranks:
            return None
        parents = list(self._options.global_ranks_in_group) or list(range(self.size()))
        timeout = getattr(options, "_timeout", None) or self._options._timeout
        name = getattr(options, "group_name", "") or self._options.group_name
        return self._another(store, ranks.index(self.rank()), len(ranks), timeout, name, [parents[rank] for rank in ranks])

    def shrink(self, excluded: Sequence[int], flags: int = 0, options: Any = None) -> Any:
        """The group without some ranks; those that are left call it, with the same ranks. Nothing is sent.

        Flag 1 (`SHRINK_ABORT`) aborts this group first.
        """
        if flags & 1:
            self.abort()
        group = self._group.shrink(list(excluded))
        parents = list(self._options.global_ranks_in_group) or list(range(self.size()))
        left = [parent for rank, parent in enumerate(parents) if rank not in set(excluded)]
        timeout = getattr(options, "_timeout", None) or self._options._timeout
        name = self._options.group_name
        return self._another(None, group.rank(), group.ranks(), timeout, name, left, group=group)

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Any memory is as good as any other."""
        # C++ gives the number of a device, and cannot hand over options of a tensor afterwards: it allocates by itself.
        return not isinstance(device, int) and torch.device(device).type in ("cpu", accelerator_type())

    def allocate_tensor(self, size: Any, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
        """Memory for communication."""
        return torch.empty(size, dtype=dtype, device=device)

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin with the group."""

    def _get_sequence_number_for_group(self) -> int:
        return self._begun()

    def _queue(self, needed: bool, messages: bool = False) -> StagingQueue | None:
        """The queue that a call joins, which is made here and now: one on an accelerator, or if earlier calls wait there."""
        group = self._group if messages else self._numbers()
        queue = self._queues.get((group, messages))
        if not needed:
            return queue if queue is not None and queue.is_busy() else None
        with self._twin_lock:
            if self._aborted:
                raise WireError("the group was aborted", "aborted")
            return self._queues.setdefault((group, messages), StagingQueue(group, not messages))

    def _drain(self) -> None:
        """Waits until calls on accelerators have come to the wire, which waits for their ends."""
        with self._twin_lock:
            queues = list(self._queues.values())
        for queue in queues:
            queue.drain()

    def _begun(self) -> int:
        """How many collectives have been called; those of callbacks, in a callback."""
        group = self._numbers()
        queue = self._queues.get((group, False))
        return group.begun() if queue is None else queue.begun()

    def _numbers(self) -> _lab.WireGroup:
        """The group that numbers a collective which is called here and now."""
        if not in_callback():
            return self._group
        with self._twin_lock:
            if self._twin is None:
                self._twin = self._group.twin(0)
                self._twin.set_timeout(self._options._timeout.total_seconds())
                if self._aborted:
                    self._twin.abort()
            return self._twin
