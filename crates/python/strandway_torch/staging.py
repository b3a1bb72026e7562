"""Calls on tensors of an accelerator: staged through pinned memory of the host, in pieces, while earlier pieces are on the wire.

    caller           records an event on its stream, and puts the call into the queue of its group
    queue's thread   lets a side stream wait for the event and copy a piece to the host; waits for the copy; gives the piece to the wire
    futures          when the wire has ended, another side stream copies the piece back; after the last piece an event is recorded
    wait()           blocks until that event is recorded, and lets the caller's stream wait for it

A queue keeps the order of calls, so that all ranks begin the same ones. Calls on tensors of the CPU join it while calls wait in it.

The first piece of a call has the call's number in its group. A twin of the group numbers the other pieces, which begin after the first one
has succeeded. So a rank that refuses the call need not know how many pieces the call has at the other ranks.
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

__all__ = ["DeferredWork", "Part", "StagedCall", "StagingQueue"]

# The number of a buffer, and the begin and end of the part in it.
Part = tuple[int, int, int]

# Bytes of a piece in pinned memory: the parts of all ranks together.
PIECE_BYTES = 8 << 20
# Parts of a piece are not cut shorter than this, however many ranks there are.
PART_MIN = 1 << 16
# Bytes that the collectives of a group may have in pinned memory, unless a single piece needs more.
STAGED_MAX = 8 * PIECE_BYTES
# The wire ends a call at its timeout. A call that does not reach the wire, because a stream stands still, ends this much later (seconds).
GRACE = 5.0

# All parts of these calls have the same length at all ranks, so all ranks cut them at the same places.
_CUT = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}

# Begins a call: its group, buffers, inputs, outputs, timeout, and the object that keeps the buffers alive.
Begin = Callable[[_lab.WireGroup, "list[tuple[int, int, bool]]", list[Part], list[Part], float, object], "_lab.Work | None"]


class DeferredWork:
    """A call in a queue; it has the methods of a work of the wire."""

    def __init__(self, device: Device | None, deadline: float) -> None:
        """Takes the device of the tensors, None for the CPU, and the time at which the call fails."""
        self.device, self.deadline = device, deadline
        self.error: BaseException | None = None
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._event: Any = None
        self._source: int | None = None
        self._listeners: list[tuple[_lab.Endings, int]] = []

    def is_over(self) -> bool:
        """Has it failed, or is its last copy in a stream?"""
        return self._ended.is_set()

    def end(self, error: BaseException | None = None, event: Any = None, source: int | None = None) -> None:
        """Ends it with an error, or with the event after its last copy. Later calls of `end` have no effect."""
        with self._lock:
            if self._ended.is_set():
                return
            self.error, self._event, self._source = error, event, source
            self._ended.set()
            listeners, self._listeners = self._listeners, []
        for endings, number in listeners:
            endings.put(number)

    def wait(self, limit: float | None = None) -> bool:
        """Blocks until the last copy is in a stream, and lets the caller's stream wait for it; false if the limit is over before."""
        if not self._ended.wait(max(self.deadline + GRACE - time.monotonic(), 0.0) if limit is None else limit):
            if limit is not None:
                return False
            raise WireTimeout("the call timed out before it came to the wire: the stream of its tensors has not come to it", "timeout")
        if self.error is not None:
            raise self.error
        if self._event is not None and self.device is not None:
            self.device.wait(self._event)
        return True

    def is_ended(self) -> bool:
        """Has it failed, or are its results in their tensors?"""
        return self._ended.is_set() and (self._event is None or bool(self._event.query()))

    def failed(self) -> bool:
        """Has it failed?"""
        return self.error is not None

    def source(self) -> int | None:
        """The rank that sent what a receive from any rank received."""
        return self._source

    def notify(self, endings: _lab.Endings, number: int) -> None:
        """Puts the number into `endings` once it is over."""
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append((endings, number))
                return
        endings.put(number)


@dataclasses.dataclass
class StagedCall:
    """A call in a queue: its memory, the parts of it that the wire reads and writes, and how it begins."""

    name: str
    begin: Begin
    work: DeferredWork
    memory: Call
    inputs: list[Part]
    outputs: list[Part]
    # Parts that are copied to the host, and back.
    reads: list[Part] = dataclasses.field(default_factory=list)
    writes: list[Part] = dataclasses.field(default_factory=list)
    # After what the caller's stream was given before the call.
    ready: Any = None
    # Pieces that have not been copied back.
    left: int = 0
    # The number of calls of the group up to this one, once it has its number; and the group of its other pieces.
    number: int | None = None
    twin: _lab.WireGroup | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def cuts(self) -> list[tuple[int, int | None]]:
        """The pieces: begin and end in each part, or None for the part's own end."""
        lengths = {end - begin for _, begin, end in self.inputs + self.outputs}
        if self.work.device is None or self.name not in _CUT or len(lengths) != 1:
            return [(0, None)]
        length = lengths.pop()
        # A multiple of the size of every element.
        step = max(PIECE_BYTES // max(len(self.inputs), len(self.outputs)), PART_MIN) // 64 * 64
        return [(begin, min(begin + step, length)) for begin in range(0, length, step)] or [(0, None)]

    def bytes_of(self, part: Part) -> torch.Tensor:
        """The bytes of a part on the device. Writing them does not change the tensor's version for autograd."""
        buffer, begin, end = part
        return self.memory.keep[buffer].data.view(-1).view(torch.uint8)[begin:end]

    def release(self) -> None:
        """Lets go of the tensors: a thread may keep the call itself until its next one."""
        self.memory, self.ready = Call(), None


class _Piece:
    """A piece of a call, and its memory on the host."""

    def __init__(self, call: StagedCall, begin: int, end: int | None) -> None:
        """Allocates the memory."""
        self.call = call
        self.host, self.bytes, self.begun = torch.empty(0), 0, False
        # After the copy to the host.
        self.copied: Any = None
        self.buffers, self.inputs, self.outputs = call.memory.buffers, call.inputs, call.outputs
        if call.work.device is None:
            return
        # For each part of the call: the part of the piece on the device, and on the host.
        self.places: dict[Part, tuple[Part, Part]] = {}
        for part in call.inputs + call.outputs:
            buffer, start, stop = part
            there = (buffer, start + begin, stop if end is None else start + end)
            length = there[2] - there[1]
            self.places[part] = there, (0, self.bytes, self.bytes + length)
            self.bytes += (length + 63) // 64 * 64
        if self.bytes:
            self.host = call.work.device.pinned(self.bytes)
        self.buffers = [(self.host.data_ptr(), self.bytes, True)] if self.places else []
        self.inputs, self.outputs = ([self.places[part][1] for part in parts] for parts in (call.inputs, call.outputs))

    def pairs(self, parts: Sequence[Part]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The bytes of parts on the device, and where they are on the host."""
        places = [self.places[part] for part in parts]
        return [(self.call.bytes_of(there), self.host[begin:end]) for there, (_, begin, end) in places if begin < end]


class StagingQueue:
    """The calls of a group on tensors of accelerators, in the order in which they were made."""

    def __init__(self, group: _lab.WireGroup, collectives: bool = True) -> None:
        """For the collectives of a group, or for its messages. The thread begins with the first call."""
        self.group, self.collectives = group, collectives
        self.calls: collections.deque[StagedCall] = collections.deque()
        # Works that are not over, for `abort`.
        self.open: set[DeferredWork] = set()
        self.changed = threading.Condition()
        # Calls without a number in the group; bytes in pinned memory; pieces on the wire.
        self.waiting = self.staged = self.on_wire = 0
        self.aborted: WireError | None = None
        self.thread: threading.Thread | None = None
        # For copies to the host, and back.
        self.streams: dict[Device, tuple[Any, Any]] = {}

    def is_busy(self) -> bool:
        """Do calls wait here? Later calls must come behind them."""
        return self.waiting > 0

    def begun(self) -> int:
        """The calls of the group, those that wait here included."""
        with self.changed:
            return self.group.begun() + self.waiting

    def put(self, call: StagedCall) -> DeferredWork:
        """Adds a call."""
        if call.work.device is not None:
            call.ready = call.work.device.record()
        with self.changed:
            if self.aborted is not None:
                raise self.aborted
            self.waiting += 1
            self.calls.append(call)
            self.open.add(call.work)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="strandway-staging", daemon=True)
                self.thread.start()
            self.changed.notify_all()
        return call.work

    def drain(self) -> None:
        """Waits until all calls have begun on the wire; not for a stream that stands still."""
        with self.changed:
            self.changed.wait_for(lambda: not self.waiting or self.aborted, GRACE)

    def abort(self) -> None:
        """All calls fail now, and the thread ends."""
        with self.changed:
            self.aborted = WireError("the group was aborted", "aborted")
            works = list(self.open)
            self.changed.notify_all()
        for work in works:
            work.end(self.aborted)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                self._begin(call)
            except BaseException as error:
                self._fail(call, error)
            with self.changed:
                self._number(call)
            del call

    def _next(self) -> StagedCall | None:
        with self.changed:
            self.changed.wait_for(lambda: self.calls or self.aborted)
            if self.aborted is None:
                return self.calls.popleft()
            self.calls.clear()
            self.waiting = 0
            return None

    def _number(self, call: StagedCall, before: int | None = None) -> None:
        """Notes that the call has its number. If the wire gave it none, it is refused: it takes a number, and the other ranks hear why."""
        if call.number is not None or self.aborted is not None:
            return
        if self.collectives and before in (None, self.group.begun()):
            self.group.refuse(call.name, str(call.work.error))
        call.number = self.group.begun()
        self.waiting -= 1
        self.changed.notify_all()

    def _begin(self, call: StagedCall) -> None:
        """Begins a call, piece by piece: while one piece is copied to the host, the one before goes to the wire."""
        cuts = call.cuts()
        call.left = len(cuts)
        pieces: collections.deque[_Piece] = collections.deque()
        try:
            for begin, end in cuts:
                pieces.append(self._stage(call, begin, end))
                if len(pieces) > 1:
                    self._begin_piece(pieces[0], more=True)
                    pieces.popleft()
                if call.work.is_over():
                    return
            self._begin_piece(pieces[0], more=False)
            pieces.popleft()
        finally:
            with self.changed:
                self.staged -= sum(piece.bytes for piece in pieces if not piece.begun)

    def _stage(self, call: StagedCall, begin: int, end: int | None) -> _Piece:
        """Lets a side stream copy a piece to the host."""
        device = call.work.device
        piece = _Piece(call, begin, end)
        if device is None:
            return piece
        if device not in self.streams:
            self.streams[device] = device.stream(), device.stream()
        out, _ = self.streams[device]
        if self.collectives:
            # Messages do not wait here: the other rank may need this one to send or receive an earlier one.
            with self.changed:
                self.changed.wait_for(lambda: self.on_wire == 0 or self.staged + piece.bytes <= STAGED_MAX or self.aborted)
        with device.use(out):
            device.wait(call.ready)
            for there, here in piece.pairs(call.reads):
                device.copy(here, there)
            piece.copied = device.record()
        with self.changed:
            self.staged += piece.bytes
        return piece

    def _begin_piece(self, piece: _Piece, more: bool) -> None:
        """Gives a piece to the wire once it is on the host. If it is the first and there are more, waits for its end."""
        call = piece.call
        if piece.copied is not None:
            piece.copied.synchronize()
        first = call.number is None
        with self.changed:
            if self.aborted is not None:
                raise self.aborted
            before = self.group.begun()
            try:
                timeout = max(call.work.deadline - time.monotonic(), 0.001)
                owner = (piece.host, call.memory.keep)
                work = call.begin(call.twin or self.group, piece.buffers, piece.inputs, piece.outputs, timeout, owner)
                piece.begun = True
                self.on_wire += 1
            except BaseException as error:
                call.work.end(error)
                raise
            finally:
                self._number(call, before)
        complete([] if work is None else [work], lambda: self._finish_piece(piece, work), None)
        if first and more and work is not None and call.number is not None:
            # Raises what `_finish_piece` hears, too.
            work.wait()
            call.twin = self.group.twin(call.number)

    def _finish_piece(self, piece: _Piece, work: _lab.Work | None) -> None:
        """Lets a side stream copy a piece back, which has ended on the wire."""
        call = piece.call
        try:
            if work is not None:
                work.wait()
            source = None if work is None else work.source()
            with call.lock:
                # After an abort the memory belongs to the caller.
                if not call.work.is_over():
                    self._copy_back(piece, source)
        except BaseException as error:
            self._fail(call, error)
        if call.work.is_over():
            call.release()
        with self.changed:
            self.staged -= piece.bytes
            self.on_wire -= 1
            if call.work.is_over():
                self.open.discard(call.work)
            self.changed.notify_all()

    def _copy_back(self, piece: _Piece, source: int | None) -> None:
        call, device = piece.call, piece.call.work.device
        call.left -= 1
        event = None
        if device is not None:
            _, back = self.streams[device]
            with device.use(back):
                for there, here in piece.pairs(call.writes):
                    device.copy(there, here)
                    device.record_stream(there, back)
                event = device.record() if call.left == 0 else None
        if call.left == 0:
            call.work.end(event=event, source=source)

    def _fail(self, call: StagedCall, error: BaseException) -> None:
        call.work.end(error)
        call.release()
        if call.twin is not None:
            call.twin.abort()
        with self.changed:
            self.open.discard(call.work)
