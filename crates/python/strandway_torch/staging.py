"""Calls on tensors of accelerators: staged through pinned memory of the host, in pieces, while earlier pieces are on the wire.

    caller     an event on its stream; the call goes into the lane of its group
    lane       a thread: a side stream waits for the event and copies a piece out; once it is there, the wire begins
    futures    when the wire has ended: another side stream copies the piece back; after the last one an event is recorded
    wait()     blocks until that event is recorded, and lets the caller's stream wait for it

Lanes keep the order of calls, so that ranks begin the same ones: also calls on tensors of the CPU go into a lane while it has others. The
first piece of a call has the call's number in its group, and the others have those of a twin of the group: a rank that refuses the call, or
hears that its first piece has failed, needs not know how many pieces there are.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from strandway import _lab
from strandway.errors import WireError, WireTimeout

from .devices import Device
from .futures import complete
from .memory import Call

__all__ = ["Deferred", "Lane", "Order"]

Part = tuple[int, int, int]

# Bytes of a piece at one rank, with what all ranks send or get: eight of them may be under way in a group.
PIECE = 8 << 20
UNDER_WAY = 8 * PIECE
LEAST = 1 << 16
# The wire ends calls at their timeouts. What has not even come there, because a stream stands still, ends this much later.
GRACE = 5.0

# In these all parts have one length at all ranks, who cut them alike.
_CUT = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}

# Begins a call: the group, its buffers, the inputs, the outputs, the timeout and what keeps the buffers alive.
Start = Callable[[_lab.WireGroup, "list[tuple[int, int, bool]]", list[Part], list[Part], float, object], "_lab.Work | None"]


class Deferred:
    """A call in a lane. Whoever waits for it sees what a work of the wire shows."""

    def __init__(self, device: Device | None, deadline: float) -> None:
        """Of tensors on that device, or on the CPU; with the time at which it fails."""
        self.device, self.deadline = device, deadline
        self._over, self._lock = threading.Event(), threading.Lock()
        self.error: BaseException | None = None
        self._event: Any = None
        self._source: int | None = None
        self._listeners: list[tuple[_lab.Endings, int]] = []

    def is_over(self) -> bool:
        """Has it failed, or has its last copy been handed to the device?"""
        return self._over.is_set()

    def end(self, error: BaseException | None = None, event: Any = None, source: int | None = None) -> None:
        """It has failed; or it has its result once the device has come to the event. The first of several ends counts."""
        with self._lock:
            if self._over.is_set():
                return
            self.error, self._event, self._source = error, event, source
            self._over.set()
            listeners, self._listeners = self._listeners, []
        for endings, number in listeners:
            endings.put(number)

    def wait(self, limit: float | None = None) -> bool:
        """Blocks until the last copy is handed to the device, for which the caller's stream waits; false if the time is over."""
        if not self._over.wait(max(self.deadline + GRACE - time.monotonic(), 0.0) if limit is None else limit):
            if limit is not None:
                return False
            raise WireTimeout("the call timed out before it came to the wire: the stream of its tensors has not come to it", "timeout")
        if self.error is not None:
            raise self.error
        if self._event is not None and self.device is not None:
            self.device.follow(self._event)
        return True

    def is_ended(self) -> bool:
        """Has it failed, or is its result there?"""
        return self._over.is_set() and (self._event is None or bool(self._event.query()))

    def failed(self) -> bool:
        """Has it failed?"""
        return self.error is not None

    def source(self) -> int | None:
        """The rank that a receive from anybody was filled by."""
        return self._source

    def notify(self, endings: _lab.Endings, number: int) -> None:
        """Puts the number there once it is over."""
        with self._lock:
            if not self._over.is_set():
                self._listeners.append((endings, number))
                return
        endings.put(number)


@dataclasses.dataclass
class Order:
    """What a lane does for a call: its memory, which parts of it the wire reads and writes, and how it begins."""

    name: str
    start: Start
    work: Deferred
    call: Call
    inputs: list[Part]
    outputs: list[Part]
    # Those that are copied out, and back.
    reads: list[Part] = dataclasses.field(default_factory=list)
    writes: list[Part] = dataclasses.field(default_factory=list)
    # What the caller's stream had been given.
    called: Any = None
    # Pieces that are not back.
    left: int = 0
    # How many calls the group has begun with this one, once it has its number; and what numbers its other pieces.
    number: int | None = None
    apart: _lab.WireGroup | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def cuts(self) -> list[tuple[int, int | None]]:
        """Where the parts are cut, from the begin of each."""
        parts = self.inputs + self.outputs
        lengths = {end - begin for _, begin, end in parts}
        if self.work.device is None or self.name not in _CUT or len(lengths) != 1:
            return [(0, None)]
        length = lengths.pop()
        # Whole numbers, whatever their kind.
        step = max(PIECE // max(len(self.inputs), len(self.outputs)), LEAST) // 64 * 64
        return [(at, min(at + step, length)) for at in range(0, length, step)] or [(0, None)]

    def flat(self, part: Part) -> torch.Tensor:
        """A part of a tensor as bytes. Its version stays: what the wire writes is no operation of autograd."""
        buffer, begin, end = part
        return self.call.keep[buffer].data.view(-1).view(torch.uint8)[begin:end]

    def release(self) -> None:
        """Its memory belongs to others again; threads may hold the call itself for longer."""
        self.call, self.called = Call(), None


class _Piece:
    """A piece of a call, and its pinned memory."""

    def __init__(self, order: Order, begin: int, end: int | None) -> None:
        """Allocates the memory."""
        self.order = order
        self.host, self.bytes, self.copied, self.launched = torch.empty(0), 0, None, False
        if order.work.device is None:
            self.buffers, self.inputs, self.outputs = order.call.buffers, order.inputs, order.outputs
            return
        # Parts of the tensors, and where each is on the host.
        self.places: dict[Part, Part] = {}
        self.at: dict[Part, Part] = {}
        for part in order.inputs + order.outputs:
            buffer, start, stop = part
            place = (buffer, start + begin, stop if end is None else start + end)
            length = place[2] - place[1]
            self.places[part], self.at[part] = place, (0, self.bytes, self.bytes + length)
            self.bytes += (length + 63) // 64 * 64
        if self.bytes:
            self.host = order.work.device.pinned(self.bytes)
        self.buffers = [(self.host.data_ptr(), self.bytes, True)] if self.at else []
        self.inputs, self.outputs = [self.at[part] for part in order.inputs], [self.at[part] for part in order.outputs]

    def pairs(self, parts: Sequence[Part]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The same bytes on the device and on the host."""
        found = []
        for part in parts:
            _, begin, end = self.at[part]
            if begin < end:
                found.append((self.order.flat(self.places[part]), self.host[begin:end]))
        return found


class Lane:
    """The calls of a group that wait for a device, in their order."""

    def __init__(self, group: _lab.WireGroup, numbered: bool = True) -> None:
        """Of this group, whose collectives have numbers, or of its messages. No thread is begun before the first call."""
        self.group, self.numbered = group, numbered
        self.orders: collections.deque[Order] = collections.deque()
        # All that are not over, for `abort`.
        self.open: set[Deferred] = set()
        self.changed = threading.Condition()
        # Calls without a number in the group; bytes that are staged, and pieces on the wire.
        self.waiting = self.staged = self.launched = 0
        self.aborted: WireError | None = None
        self.thread: threading.Thread | None = None
        self.streams: dict[Device, tuple[Any, Any]] = {}

    def is_busy(self) -> bool:
        """Are there calls that have not begun? Later ones come behind them."""
        return self.waiting > 0

    def begun(self) -> int:
        """The calls that have a number in the group, or will have it."""
        with self.changed:
            return self.group.begun() + self.waiting

    def put(self, order: Order) -> Deferred:
        """Takes a call."""
        if order.work.device is not None:
            order.called = order.work.device.now()
        with self.changed:
            if self.aborted is not None:
                raise self.aborted
            self.waiting += 1
            self.orders.append(order)
            self.open.add(order.work)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="strandway-staging", daemon=True)
                self.thread.start()
            self.changed.notify_all()
        return order.work

    def abort(self) -> None:
        """All calls fail, now; the thread ends."""
        with self.changed:
            self.aborted = WireError("the group was aborted", "aborted")
            calls = list(self.open)
            self.changed.notify_all()
        for work in calls:
            work.end(self.aborted)

    def _run(self) -> None:
        while (order := self._next()) is not None:
            try:
                self._do(order)
            except BaseException as error:
                self._fail(order, error)
            with self.changed:
                self._number(order)
            del order

    def _next(self) -> Order | None:
        with self.changed:
            self.changed.wait_for(lambda: self.orders or self.aborted)
            if self.aborted is None:
                return self.orders.popleft()
            self.orders.clear()
            self.waiting = 0
            return None

    def _number(self, order: Order, before: int | None = None) -> None:
        """The call has its number. If the wire gave it none, it takes one now, and the other ranks hear why."""
        if order.number is not None or self.aborted is not None:
            return
        if self.numbered and before in (None, self.group.begun()):
            self.group.refuse(order.name, str(order.work.error))
        order.number = self.group.begun()
        self.waiting -= 1

    def _do(self, order: Order) -> None:
        """Begins a call, piece by piece: while one is on its way to the host, the one before goes to the wire."""
        cuts = order.cuts()
        order.left = len(cuts)
        pieces: collections.deque[_Piece] = collections.deque()
        try:
            for begin, end in cuts:
                pieces.append(self._stage(order, begin, end))
                if len(pieces) > 1:
                    self._launch(pieces[0], more=True)
                    pieces.popleft()
                if order.work.is_over():
                    return
            self._launch(pieces[0], more=False)
            pieces.popleft()
        finally:
            with self.changed:
                self.staged -= sum(piece.bytes for piece in pieces if not piece.launched)

    def _stage(self, order: Order, begin: int, end: int | None) -> _Piece:
        device = order.work.device
        piece = _Piece(order, begin, end)
        if device is None:
            return piece
        if device not in self.streams:
            self.streams[device] = device.stream(), device.stream()
        out, _ = self.streams[device]
        if self.numbered:
            # A message waits for none: the ones before may be those that it answers.
            with self.changed:
                self.changed.wait_for(lambda: self.launched == 0 or self.staged + piece.bytes <= UNDER_WAY or self.aborted)
        with device.on(out):
            device.follow(order.called)
            for tensor, host in piece.pairs(order.reads):
                device.copy(host, tensor)
            piece.copied = device.now(out)
        with self.changed:
            self.staged += piece.bytes
        return piece

    def _launch(self, piece: _Piece, more: bool) -> None:
        """Hands a piece to the wire once it is on the host. After the first of several it waits for its end."""
        order = piece.order
        if piece.copied is not None:
            piece.copied.synchronize()
        first = order.number is None
        with self.changed:
            if self.aborted is not None:
                raise self.aborted
            before = self.group.begun()
            try:
                timeout = max(order.work.deadline - time.monotonic(), 0.001)
                owner = (piece.host, order.call.keep)
                work = order.start(order.apart or self.group, piece.buffers, piece.inputs, piece.outputs, timeout, owner)
                piece.launched = True
                self.launched += 1
            except BaseException as error:
                order.work.end(error)
                raise
            finally:
                self._number(order, before)
        complete([] if work is None else [work], lambda: self._land(piece, work), None)
        if first and more and work is not None and order.number is not None:
            # Its error is the call's, and told there.
            work.wait()
            order.apart = self.group.twin(order.number)

    def _land(self, piece: _Piece, work: _lab.Work | None) -> None:
        """A piece has come from the wire: it goes to the device."""
        order = piece.order
        try:
            if work is not None:
                work.wait()
            source = None if work is None else work.source()
            with order.lock:
                # After an abort the memory is the caller's.
                if not order.work.is_over():
                    self._copy_back(piece, source)
        except BaseException as error:
            self._fail(order, error)
        if order.work.is_over():
            order.release()
        with self.changed:
            self.staged -= piece.bytes
            self.launched -= 1
            if order.work.is_over():
                self.open.discard(order.work)
            self.changed.notify_all()

    def _copy_back(self, piece: _Piece, source: int | None) -> None:
        order, device = piece.order, piece.order.work.device
        order.left -= 1
        event = None
        if device is not None:
            _, back = self.streams[device]
            with device.on(back):
                for tensor, host in piece.pairs(order.writes):
                    device.copy(tensor, host)
                    device.lend(tensor, back)
                event = device.now(back) if order.left == 0 else None
        if order.left == 0:
            order.work.end(event=event, source=source)

    def _fail(self, order: Order, error: BaseException) -> None:
        order.work.end(error)
        order.release()
        if order.apart is not None:
            order.apart.abort()
        with self.changed:
            self.open.discard(order.work)
