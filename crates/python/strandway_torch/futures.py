"""Completes futures once their works have ended, and runs their callbacks in an order that all ranks share.

A callback may start collectives and wait for them, as PowerSGD's hook does for each bucket of gradients. Ranks then start them in the same
order, since the callbacks of a group run one after the other, in the order in which their futures were asked for. Calls of callbacks have
numbers of their own (`in_callback`), for nothing orders them with the calls of the program's own threads.

A callback that takes longer than `PATIENCE`, and waits for no collective that it has started, holds up the others no longer.
"""

from __future__ import annotations

import collections
import itertools
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from strandway import _lab

from .compat import mark_callbacks

__all__ = ["Line", "complete", "in_callback", "note"]

PATIENCE = 1.0
# Threads that are kept for the next callbacks.
IDLE_MAX = 4

_here = threading.local()


class Ending(Protocol):
    """A work of the wire, or one that waits for a device."""

    def is_ended(self) -> bool:
        """Has it ended?"""

    def notify(self, endings: _lab.Endings, number: int) -> None:
        """Puts a number there once it has."""


class Line:
    """Futures whose callbacks run one after the other."""

    def __init__(self) -> None:
        """An empty one."""
        self.entries: collections.deque[_Entry] = collections.deque()
        self.runner: _Callback | None = None


class _Entry:
    """A future that is not complete."""

    def __init__(self, works: int, call: Callable[[], None], line: Line | None) -> None:
        self.left, self.call, self.line = works, call, line
        self.ready: float | None = None


class _Callback:
    """The work of a thread: the callbacks of one future."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.works: list[Ending] = []
        # Of the futures that it asks for.
        self.line = Line()

    def is_stuck(self) -> bool:
        """Does it run for long, without waiting for what it has started?"""
        late = time.monotonic() - self.since > PATIENCE and all(work.is_ended() for work in self.works)
        return late and (self.line.runner is None or self.line.runner.is_stuck())


def in_callback() -> bool:
    """Does the callback of a future call this?"""
    return getattr(_here, "callback", None) is not None or getattr(_here, "given", 0) > 0


def note(work: Ending) -> None:
    """A collective has begun; a callback may wait for it."""
    callback: _Callback | None = getattr(_here, "callback", None)
    if callback is not None:
        callback.works.append(work)


class _Completer:
    """Threads, of which one listens to the ends of works. Before it runs a callback it makes sure that another one listens."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.endings = _lab.Endings()
        self.numbers = itertools.count(1)
        self.waiting: dict[int, _Entry] = {}
        # Those with futures that could be complete, but for earlier ones.
        self.blocked: set[Line] = set()
        self.turn = threading.Lock()
        self.guard = threading.RLock()
        self.idle = 0
        self.begin()

    def begin(self) -> None:
        self.idle += 1
        threading.Thread(target=self.run, name="strandway-futures", daemon=True).start()

    def add(self, works: Sequence[Ending], call: Callable[[], None], line: Line | None) -> None:
        with self.guard:
            waits = line is not None and bool(line.runner or line.entries)
            if not works or (not waits and all(work.is_ended() for work in works)):
                entry = None
            else:
                entry = _Entry(len(works), call, line)
                numbers = [next(self.numbers) for _ in works]
                self.waiting.update(dict.fromkeys(numbers, entry))
                if line is not None:
                    line.entries.append(entry)
        if entry is None:
            return call()
        for number, work in zip(numbers, works, strict=True):
            work.notify(self.endings, number)

    def run(self) -> None:
        while True:
            with self.turn:
                number = self.endings.next(PATIENCE / 4 if self.blocked else 3600.0)
                with self.guard:
                    entry = self.next_late() if number is None else self.ended(number)
            if entry is None:
                continue
            with self.guard:
                self.idle -= 1
                if self.idle == 0:
                    self.begin()
            self.call(*entry)
            with self.guard:
                if self.idle >= IDLE_MAX:
                    return
                self.idle += 1

    def ended(self, number: int) -> tuple[_Entry, _Callback] | None:
        """The future that is complete by the end of a work, if its turn has come."""
        entry = self.waiting.pop(number)
        entry.left -= 1
        if entry.left:
            return None
        entry.ready, line = time.monotonic(), entry.line
        if line is None:
            return entry, _Callback()
        if line.runner is not None or line.entries[0] is not entry:
            self.blocked.add(line)
            return None
        return self.take(line)

    def next_late(self) -> tuple[_Entry, _Callback] | None:
        """A future that has waited too long for earlier ones."""
        for line in list(self.blocked):
            if line.runner is not None and not line.runner.is_stuck():
                continue
            ready = [entry for entry in line.entries if entry.ready is not None]
            if not ready:
                self.blocked.discard(line)
            elif line.runner is not None or time.monotonic() - (ready[0].ready or 0.0) > PATIENCE:
                line.entries.remove(ready[0])
                line.entries.appendleft(ready[0])
                return self.take(line)
        return None

    def take(self, line: Line) -> tuple[_Entry, _Callback] | None:
        """The first future of a line, for a thread that runs its callbacks."""
        if not line.entries or line.entries[0].ready is None:
            line.runner = None
            if not any(entry.ready is not None for entry in line.entries):
                self.blocked.discard(line)
            return None
        line.runner = _Callback()
        return line.entries.popleft(), line.runner

    def call(self, entry: _Entry, callback: _Callback) -> None:
        """Runs callbacks, and those that come after them in their line."""
        now: tuple[_Entry, _Callback] | None = (entry, callback)
        while now is not None:
            entry, callback = now
            _here.callback = callback
            try:
                entry.call()
            except Exception:
                # A callback's error is its future's; this one is nobody's.
                traceback.print_exc()
            finally:
                _here.callback = None
            with self.guard:
                mine = entry.line is not None and entry.line.runner is callback
                now = self.take(entry.line) if entry.line is not None and mine else None


_completer: _Completer | None = None
_completer_lock = threading.Lock()


def complete(works: Sequence[Ending], call: Callable[[], None], line: Line | None) -> None:
    """Calls `call`, which completes a future, once the works have ended, and after the earlier ones of the line."""
    global _completer
    with _completer_lock:
        # A child of a fork has none of its parent's threads.
        if _completer is None or _completer.pid != os.getpid():
            if _completer is None:
                mark_callbacks(_here)
            _completer = _Completer()
    callback: _Callback | None = getattr(_here, "callback", None)
    _completer.add(works, call, callback.line if callback is not None and line is not None else line)
