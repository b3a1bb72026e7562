"""The transport `strandway` of `torch.distributed._transport` (torch 2.15): one-sided reads and writes of tensors between two processes.

>>> import torch
>>> from torch.distributed._transport import new_transport
>>> with new_transport("strandway", "cpu") as trainer, new_transport("strandway", "cpu") as replica:
...     replica_url = replica.bind()
...     trainer.connect(replica_url)
...     target = replica.register_memory(torch.zeros(4))
...     source = trainer.register_memory(torch.arange(4.0))
...     trainer.write(source.to_view(), target.to_remote_buffer())
0
0

Packets use all planes of the host, are encrypted, and go on when a plane fails.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import json
import math
import operator
import os
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, cast

import torch
from strandway import _lab
from strandway.errors import WireError, WireTimeout

from .compat import Work, sentence
from .futures import complete
from .settings import VARIABLES, given_key, given_variables
from .transport_node import Connection, SharedNode, acquire, node_key

try:
    from torch.distributed._transport import Transport
except ImportError as error:
    raise ImportError(sentence("it has no torch.distributed._transport, which torch 2.15 brought")) from error

__all__ = ["StrandwayMemory", "StrandwayRemoteBuffer", "StrandwayTransport", "StrandwayTransportWork"]


def _seconds(timeout: float | None, default: float) -> float:
    if timeout is None:
        return default
    if not math.isfinite(timeout) or timeout < 0:
        raise ValueError("timeout must be finite and nonnegative")
    return timeout


def _encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps({"backend": "strandway", "version": 1, **fields}, separators=(",", ":")).encode("ascii")


def _is_of(value: Any, kind: type) -> bool:
    """Is it exactly of this type (a boolean is no number), and not negative? Bytes are text."""
    if kind is int:
        return type(value) is int and 0 <= value < 1 << 63
    return type(value) is (str if kind is bytes else kind)


def _decoded(data: bytes, what: str, fields: dict[str, type]) -> dict[str, Any]:
    """The fields of what `_encoded` gave, of exactly these types; numbers are not negative, and bytes are in base 64."""
    wrong = ValueError(f"{what} is none of the transport strandway, or of another version of it")
    if type(data) is not bytes:
        raise TypeError(f"{what} must be bytes")
    try:
        found = json.loads(data.decode("ascii"))
    except (UnicodeError, ValueError, RecursionError):
        raise wrong from None
    if type(found) is not dict or found.pop("backend", None) != "strandway" or found.pop("version", None) != 1:
        raise wrong
    if set(found) != set(fields):
        raise wrong
    for name, kind in fields.items():
        if not _is_of(found[name], kind):
            raise wrong
        if kind is bytes:
            try:
                found[name] = base64.b64decode(found[name], validate=True)
            except binascii.Error:
                raise wrong from None
    return found


@dataclasses.dataclass(frozen=True)
class StrandwayRemoteBuffer:
    """A peer's registered memory, or a part of it. Its bytes and the peer's key together open that memory to reads and writes."""

    node: str
    key: bytes = dataclasses.field(repr=False)
    offset: int
    length: int

    def part(self, offset: int, length: int) -> StrandwayRemoteBuffer:
        """A range of it, in bytes."""
        if not (0 <= offset and 0 <= length and offset + length <= self.length):
            raise ValueError(f"bytes {offset} to {offset + length} of a remote buffer of {self.length}")
        return dataclasses.replace(self, offset=self.offset + offset, length=length)

    def serialize(self) -> bytes:
        """Bytes for the program's control plane."""
        key = base64.b64encode(self.key).decode("ascii")
        return _encoded({"node": self.node, "key": key, "offset": self.offset, "length": self.length})

    @classmethod
    def deserialize(cls, data: bytes) -> StrandwayRemoteBuffer:
        """What `serialize` gave; a ValueError for anything else."""
        found = _decoded(data, "the remote buffer", {"node": str, "key": bytes, "offset": int, "length": int})
        if len(found["key"]) != 16:
            raise ValueError("the remote buffer has no key of 16 bytes")
        return cls(**found)


class _Registration:
    """A tensor's memory, in the nodes that need it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.storage = tensor, tensor.untyped_storage()
        self.address, self.length = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        self.is_active = True
        self.memories: dict[SharedNode, int] = {}
        self.key: bytes | None = None

    def check(self) -> None:
        """Raises an error unless the tensor's memory is still the one that was registered."""
        if not self.is_active:
            raise RuntimeError("the memory was unregistered")
        if self.tensor.data_ptr() != self.address or self.tensor.numel() * self.tensor.element_size() != self.length:
            raise RuntimeError("the registered tensor was resized, or has another storage")

    def memory(self, node: SharedNode) -> int:
        """The number of the memory in a node."""
        if node not in self.memories:
            self.memories[node] = node.wire.register(self.address, self.length, (self.tensor, self.storage))
        return self.memories[node]


class _View:
    """A range of registered memory, to be read."""

    def __init__(self, memory: StrandwayMemory, offset: int, length: int) -> None:
        self._memory, self._offset, self._length = memory, offset, length

    def size(self) -> int:
        """Bytes."""
        return self._length


class _MutableView(_View):
    """A range of registered memory, to be written."""

    writable: Literal[True] = True


class StrandwayMemory:
    """A tensor that a transport has registered."""

    def __init__(self, transport: StrandwayTransport, registration: _Registration) -> None:
        """See `register_memory` of the transport."""
        self._transport, self._registration = transport, registration

    def _range(self, offset: int | None, length: int | None) -> tuple[int, int]:
        self._registration.check()
        whole = self._registration.length
        offset = 0 if offset is None else operator.index(offset)
        length = whole - offset if length is None else operator.index(length)
        if not (0 <= offset <= whole and 0 <= length <= whole - offset):
            raise ValueError(f"bytes {offset} to {offset + length} of memory of {whole}")
        return offset, length

    def to_view(self, offset: int | None = None, length: int | None = None) -> _View:
        """A range, in bytes, as the source of a write."""
        return _View(self, *self._range(offset, length))

    def to_mutable_view(self, offset: int | None = None, length: int | None = None) -> _MutableView:
        """A range, in bytes, as the destination of a read."""
        return _MutableView(self, *self._range(offset, length))

    def to_remote_buffer(self, *, timeout: float | None = None) -> StrandwayRemoteBuffer:
        """Lets peers read and write the whole memory, and gives what they need for it."""
        return self._transport._remote_buffer(self._registration)


class StrandwayTransportWork(Work):  # type: ignore[misc]
    """A read or a write under way. `wait` raises its error."""

    def __init__(self, registration: _Registration, all_works: set[StrandwayTransportWork], timeout: float) -> None:
        """Keeps the local memory, and stays among the works of its transport, until the end."""
        super().__init__()
        self._registration, self._all, self._timeout = registration, all_works, timeout
        all_works.add(self)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listeners: list[tuple[_lab.Endings, int]] = []

    def finish(self, error: BaseException | None) -> None:
        """It has ended, with or without an error; called once, by the node."""
        with self._lock:
            self._error = error
            self._all.discard(self)
            self._ended.set()
            listeners, self._listeners = self._listeners, []
        for endings, number in listeners:
            endings.put(number)

    def notify(self, endings: _lab.Endings, number: int) -> None:
        """Puts the number into `endings` once it has ended."""
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append((endings, number))
                return
        endings.put(number)

    def is_ended(self) -> bool:
        """Has it ended?"""
        return self._ended.is_set()

    def is_completed(self) -> bool:
        """Has it ended, well or with an error?"""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Has it ended well?"""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Its error, if it has ended with one."""
        return self._error

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the end, for this time or that of the call; an operation that is not over in time goes on."""
        limit = timeout.total_seconds() or self._timeout
        if not self._ended.wait(limit):
            raise WireTimeout(f"the transfer has not ended within {limit:g} s; it goes on", "timeout")
        if self._error is not None:
            raise self._error
        return True

    def result(self) -> list[Any]:
        """Nothing: bytes are in the memory."""
        return []

    def get_future(self) -> torch.futures.Future[list[Any]]:
        """A future with an empty list, completed by a thread of the package; it fails as `wait` does."""
        end: torch.futures.Future[None] = torch.futures.Future()

        def value(_: torch.futures.Future[None]) -> list[Any]:
            self.wait()
            return []

        # An error that `set_exception` gives to a future is lost in C++; one that a callback raises is the future's.
        future = end.then(value)
        complete([self], lambda: end.set_result(None), None)
        return future


class StrandwayTransport(Transport):  # type: ignore[misc]
    """One-sided transfers of CPU tensors to and from one peer."""

    def __init__(
        self,
        device: torch.device | str | None = None,
        *,
        planes: str | Sequence[str] | None = None,
        ifname: str | None = None,
        key: bytes | None = None,
        profile: str | None = None,
        protection: str | None = None,
        payload: int | None = None,
        rate: float | None = None,
        base_rtt_us: float | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Takes the settings, of which each stands before its variable of the environment, such as `STRANDWAY_PLANES`.

        `planes`: this host's addresses, one per plane, or `ifname`: its interfaces, with commas between; by default all that lead to
        other hosts. `key`: at least 16 bytes that all have; by default each process has one of its own, which travels in `bind`'s bytes.
        `protection`: encrypted (default), authenticated or none. `rate`: Gb/s of all planes. `timeout`: seconds, of calls without one.
        """
        super().__init__(device)
        if self.device is not None and self.device.type != "cpu":
            raise ValueError(f"the transport strandway moves CPU tensors, not those of {self.device}: copy to pinned memory first")
        self._default_timeout = self._timeout = _seconds(timeout, 30.0)
        given = {
            "planes": ",".join([planes] if isinstance(planes, str) else planes or []),
            "ifname": ifname,
            "profile": profile,
            "protection": protection,
            "payload": payload,
            "rate": rate,
            "base_rtt_us": base_rtt_us,
        }
        self._settings = tuple(sorted(given_variables(given).items()))
        self._key = given_key(key)
        # Keeps the calls of several threads apart; no call waits for the network with it, but for `connect`.
        self._lock = threading.RLock()
        self._own: SharedNode | None = None
        self._outgoing: SharedNode | None = None
        self._connection: Connection | None = None
        self._peer: str | None = None
        self._registrations: dict[tuple[int, int], _Registration] = {}
        self._works: set[StrandwayTransportWork] = set()
        self._closing = self._closed = False
        self._pid = os.getpid()

    @staticmethod
    def supported() -> bool:
        """Can it be used in this process? It needs Linux's sockets."""
        try:
            return callable(_lab.WireMover)
        except NotImplementedError:
            return False

    def _open(self) -> None:
        if self._pid != os.getpid():
            raise WireError("a child of a fork cannot use its parent's transports: make new ones in the child", "closed")
        if self._closing:
            raise RuntimeError("the transport was closed")

    def _own_node(self) -> SharedNode:
        if self._own is None:
            self._own = acquire(self._key or node_key(self._settings), self._settings)
        return self._own

    def bind(self, *, timeout: float | None = None) -> bytes:
        """Opens this side's sockets: the bytes that the peer needs to connect. They are secret, as they have the key."""
        _seconds(timeout, self._timeout)
        with self._lock:
            self._open()
            node = self._own_node()
        return _encoded(
            {
                "node": node.name,
                "key": base64.b64encode(node.key).decode("ascii"),
                "addresses": node.addresses,
                "payload": node.wire.payload(),
                "profile": self._setting("profile", "uec"),
                "protection": self._setting("protection", "encrypted"),
            }
        )

    def _setting(self, name: str, default: str) -> str:
        return dict(self._settings).get(VARIABLES[name], default)

    def connect(self, peer_url: bytes, *, timeout: float | None = None) -> int:
        """Connects to the peer whose `bind` gave these bytes."""
        limit = _seconds(timeout, self._timeout)
        kinds = {"node": str, "key": bytes, "addresses": list, "payload": int, "profile": str, "protection": str}
        peer = _decoded(peer_url, "the peer's address", kinds)
        if not all(type(address) is str for address in peer["addresses"]):
            raise ValueError("the peer's address has none of the transport strandway")
        for name, default in (("profile", "uec"), ("protection", "encrypted")):
            if (ours := self._setting(name, default)) != peer[name]:
                raise ValueError(f"the peer has {name} {peer[name]!r}, this side {ours!r}: give both the same, or {VARIABLES[name]}")
        with self._lock:
            self._open()
            if self._connection is not None:
                raise RuntimeError("the transport is connected already: it has one peer")
            # The packet size is the peer's: its planes may have another MTU.
            settings = tuple(sorted((dict(self._settings) | {"STRANDWAY_PAYLOAD": str(peer["payload"])}).items()))
            own = self._own
            if own is not None and own.key == peer["key"] and own.wire.payload() == peer["payload"]:
                settings = own.settings
            node = acquire(peer["key"], settings)
            try:
                self._connection = node.connect(peer["addresses"], limit)
            except BaseException:
                node.release()
                raise
            self._outgoing, self._peer = node, peer["node"]
        return 0

    def connected(self) -> bool:
        """Is there a peer, whose connection has not ended?"""
        return self._connection is not None and self._connection.ended is None and not self._closing

    def register_memory(self, tensor: torch.Tensor, *, timeout: float | None = None) -> StrandwayMemory:
        """Registers a contiguous tensor; the same tensor again gives the same memory."""
        _seconds(timeout, self._timeout)
        if not isinstance(tensor, torch.Tensor):
            raise TypeError("register_memory takes a tensor")
        if tensor.device.type != "cpu":
            raise ValueError(f"the transport strandway moves CPU tensors, not those of {tensor.device}: copy to pinned memory first")
        if not tensor.is_contiguous():
            raise ValueError("the tensor is not contiguous: register tensor.contiguous()")
        if tensor.numel() == 0:
            raise ValueError("the tensor is empty")
        with self._lock:
            self._open()
            registration = _Registration(tensor)
            key = registration.address, registration.length
            return StrandwayMemory(self, self._registrations.setdefault(key, registration))

    def unregister_memory(self, memory: Any, *, timeout: float | None = None) -> None:
        """Takes memory back; its views and remote buffers are void. Waits for reads of the peer that are under way."""
        until = time.monotonic() + _seconds(timeout, self._timeout)
        with self._lock:
            self._open()
            if not isinstance(memory, StrandwayMemory) or memory._transport is not self:
                raise TypeError("the memory is none of this transport")
            registration = memory._registration
            if not registration.is_active:
                return
            if any(work._registration is registration for work in list(self._works)):
                raise RuntimeError("the memory has transfers under way: wait for them first")
            self._release(registration, until)
            del self._registrations[registration.address, registration.length]

    def _release(self, registration: _Registration, until: float) -> None:
        registration.is_active = False
        for node in list(registration.memories):
            while True:
                try:
                    node.wire.release(registration.memories[node])
                    break
                except WireError as error:
                    if error.kind == "closed":
                        break  # The node has gone with its memory.
                    if error.kind != "in use" or time.monotonic() >= until:
                        raise
                time.sleep(0.001)
            del registration.memories[node]

    def _remote_buffer(self, registration: _Registration) -> StrandwayRemoteBuffer:
        with self._lock:
            self._open()
            registration.check()
            node = self._own_node()
            if registration.key is None:
                registration.key = node.wire.expose(registration.memory(node), registration.length)
            return StrandwayRemoteBuffer(node.name, registration.key, 0, registration.length)

    def _check_transfer(self, local_buffer: Any, remote_buffer: Any, *, mutable: bool) -> None:
        if not isinstance(local_buffer, _MutableView if mutable else _View) or local_buffer._memory._transport is not self:
            raise TypeError("the local buffer is no view of this transport's memory" + (" to write to" if mutable else ""))
        if not isinstance(remote_buffer, StrandwayRemoteBuffer):
            raise TypeError("the remote buffer is none of the transport strandway")
        if self._connection is None:
            raise RuntimeError("the transport is not connected")
        if remote_buffer.node != self._peer:
            raise ValueError("the remote buffer does not belong to the connected peer")
        if local_buffer.size() > remote_buffer.length:
            raise ValueError(f"a local view of {local_buffer.size()} bytes does not fit the remote buffer of {remote_buffer.length}")
        local_buffer._memory._registration.check()

    def _begin(self, local: Any, remote: Any, reads: bool, async_op: bool, timeout: float | None) -> Any:
        limit = _seconds(timeout, self._timeout)
        with self._lock:
            self._open()
            self._check_transfer(local, remote, mutable=reads)
            registration = cast(_View, local)._memory._registration
            node, connection = cast(SharedNode, self._outgoing), cast(Connection, self._connection)
            request = (reads, registration.memory(node), local._offset, local.size(), remote.key, remote.offset)
            work = StrandwayTransportWork(registration, self._works, limit)
            if local.size() == 0:
                work.finish(None)
            else:
                try:
                    node.begin(connection, request, work)
                except BaseException:
                    self._works.discard(work)
                    raise
        if async_op:
            return work
        work.wait()
        return 0

    def write(self, local_buffer: Any, remote_buffer: Any, *, async_op: bool = False, timeout: float | None = None) -> Any:
        """Writes a local view into the peer's memory: 0 when it is there, or a work with `async_op`."""
        return self._begin(local_buffer, remote_buffer, False, async_op, timeout)

    def read(self, local_buffer: Any, remote_buffer: Any, *, async_op: bool = False, timeout: float | None = None) -> Any:
        """Reads the peer's memory into a local view: 0 when it is here, or a work with `async_op`."""
        return self._begin(local_buffer, remote_buffer, True, async_op, timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Waits for the transfers, gives all memory back and ends the connection. After a timeout it can be called again."""
        until = time.monotonic() + _seconds(timeout, self._timeout)
        if self._pid != os.getpid():
            return  # All that there is to close is the parent's.
        self._closing = True
        failed: BaseException | None = None
        for work in list(self._works):
            try:
                work.wait(timedelta(seconds=max(until - time.monotonic(), 1e-3)))
            except BaseException as error:
                if not work.is_completed():
                    raise
                failed = failed or error
        with self._lock:
            if self._closed:
                return
            for key, registration in list(self._registrations.items()):
                self._release(registration, until)
                del self._registrations[key]
            if self._outgoing is not None and self._connection is not None:
                self._outgoing.end(self._connection)
            for node in (self._outgoing, self._own):
                if node is not None:
                    node.release()
            self._closed = True
            self._works.clear()
        if failed is not None:
            raise failed

    async def close_async(self, *, timeout: float | None = None) -> None:
        """As `close`, on a thread, so that the event loop goes on."""
        await asyncio.get_running_loop().run_in_executor(None, lambda: self.close(timeout=timeout))
