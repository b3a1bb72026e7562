"""A host on the wire: registered memory, connections, sends, receives and writes into a peer's memory.

`Node` blocks, with the interpreter's lock released; `AsyncNode` has the same methods for asyncio. Packets move on a thread of the node.

>>> import strandway
>>> with strandway.Node("::1") as server, strandway.Node("::1") as client:
...     ours = client.connect(server.addresses)
...     theirs = server.accept()
...     inbox = server.zeros(16)
...     key = inbox.expose(theirs)                   # sixteen bytes; send them to the peer in any way
...     ours.write(client.register(b"hello"), key, immediate=7)
...     theirs.written(), inbox.read(0, 5)
((7, 5), b'hello')

With planes beyond loopback, both sides need the same `key`, at least 16 random bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, cast

from . import _lab
from .errors import WireError

if TYPE_CHECKING:
    from typing_extensions import Unpack

Addresses = str | Sequence[str]


class BasicOptions(TypedDict, total=False):
    """The keyword arguments of every call that makes a node; both sides have the same `key`, `payload` and `protection`.

    `key`: at least 16 random bytes; on loopback none is needed. `node`: a node file, which has planes, key, profile, payload, rate and
    round trip; arguments go before it. `payload`: bytes per packet; without it, copies and casts find the largest that pass, and others
    take 1,344. `protection`: `encrypted` (default), `authenticated` or `none`.
    """

    key: bytes | None
    node: str | os.PathLike[str] | None
    payload: int | None
    protection: str


class WireOptions(BasicOptions, total=False):
    """Those of `BasicOptions`, and the ones of calls that choose how to send.

    `profile`: the protocol, the same on both sides. `rate` (of all planes, such as `"10 Gbps"`) and `rtt` (without queues, such as
    `"80 ms"`) limit how much may be under way.
    """

    profile: str | None
    rate: str | None
    rtt: str | None


def settings(
    planes: Addresses,
    *,
    key: bytes | None = None,
    node: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    payload: int | None = None,
    protection: str = "encrypted",
    rate: str | None = None,
    rtt: str | None = None,
) -> dict[str, Any]:
    """The keyword arguments of a call with a node, as the extension wants them."""
    return {
        "planes": many(planes),
        "key": None if key is None else bytes(key),
        "node": None if node is None else os.fspath(node),
        "profile": profile,
        "payload": payload,
        "protection": protection,
        "rate": rate,
        "rtt": rtt,
    }


def many(addresses: Addresses) -> list[str]:
    """One address, or a list of one for each plane."""
    return [addresses] if isinstance(addresses, str) else list(addresses)


def _copied(data: bytes | bytearray | memoryview) -> bytes:
    return memoryview(data).cast("B").tobytes()


class _Answers:
    """A thread that tells event loops which calls may go on."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.endings = _lab.Endings()
        self.waiting: dict[int, Callable[[], None]] = {}
        self.numbers = itertools.count(1)
        threading.Thread(target=self._run, name="strandway-answers", daemon=True).start()

    def _run(self) -> None:
        while True:
            number = self.endings.next(3600.0)
            call = None if number is None else self.waiting.pop(number, None)
            if call is not None:
                call()

    def notify(self, pending: _lab.Pending, call: Callable[[], None]) -> None:
        number = next(self.numbers)
        self.waiting[number] = call
        pending.notify(self.endings, number)


_answers: _Answers | None = None
_answers_lock = threading.Lock()


def _answers_of_process() -> _Answers:
    global _answers
    with _answers_lock:
        # A child of a fork has none of its parent's threads.
        if _answers is None or _answers.pid != os.getpid():
            _answers = _Answers()
        return _answers


async def _later(pending: _lab.Pending) -> Any:
    """The result of a call, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    answers = _answers_of_process()
    try:
        while True:
            rung = asyncio.Event()

            def ring(rung: asyncio.Event = rung) -> None:
                try:
                    loop.call_soon_threadsafe(rung.set)
                except RuntimeError:
                    pass  # The loop was closed; nobody waits any more.

            answers.notify(pending, ring)
            await rung.wait()
            if pending.is_ended():
                return pending.wait(0.0)
    except asyncio.CancelledError:
        pending.cancel()
        raise


class _Region:
    """The methods that regions of both kinds have."""

    def __init__(self, node: _lab.WireNode, inner: _lab.WireRegion, length: int) -> None:
        """See `register` and `zeros` of a node."""
        self._node, self._inner, self._length = node, inner, length

    def __len__(self) -> int:
        """Its bytes."""
        return self._length

    def _range(self, start: int, end: int | None) -> tuple[int, int]:
        end = self._length if end is None else end
        if not 0 <= start <= end <= self._length:
            raise ValueError(f"bytes {start} to {end} of a region of {self._length}")
        return start, end


class Region(_Region):
    """A buffer in a node. Peers reach no part of it that is neither exposed nor posted as a receive."""

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """A copy of a range."""
        return cast(bytes, self._node.read(self._inner, *self._range(start, end)).wait(None))

    def write(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        """Copies bytes into it. A send of these bytes that is under way may take the old or the new ones."""
        data = _copied(data)
        self._range(at, at + len(data))
        self._node.write(self._inner, at, data).wait(None)

    def expose(self, peer: Peer, start: int = 0, end: int | None = None) -> bytes:
        """Lets one peer write into a range, until `peer.revoke(key)`, `free`, or the end of the connection: the key that it needs."""
        return cast(bytes, peer._inner.expose(self._inner, *self._range(start, end)).wait(None))

    def free(self) -> bytes:
        """Takes the buffer out of the node: its bytes. Its keys are void."""
        return cast(bytes, self._node.deregister(self._inner).wait(None))


class _Peer:
    """The common part of peers of both kinds."""

    def __init__(self, inner: _lab.WirePeer) -> None:
        """See `connect` and `accept` of a node."""
        self._inner = inner

    @property
    def source(self) -> str | None:
        """Where its first datagram came from, if the other side began."""
        return self._inner.source()

    @property
    def ended(self) -> str | None:
        """Why the connection has ended, if it has."""
        return self._inner.ended()


class Peer(_Peer):
    """An open connection; closed by `close`, or when nothing refers to it any more."""

    def send(self, region: Region, start: int = 0, end: int | None = None, *, timeout: float | None = None) -> None:
        """Sends a range of a region into the next receive of the peer; returns when it is there."""
        self._inner.send(region._inner, *region._range(start, end)).wait(timeout)

    def recv(self, region: Region, start: int = 0, end: int | None = None, *, timeout: float | None = None) -> int:
        """Waits for one send of the peer, which goes into this range; gives the number of bytes."""
        return cast(int, self._inner.recv(region._inner, *region._range(start, end)).wait(timeout))

    def write(
        self,
        region: Region,
        key: bytes,
        at: int = 0,
        *,
        start: int = 0,
        end: int | None = None,
        immediate: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Writes a range of a region into the memory that the peer has exposed, `at` bytes from its start; returns when all is there.

        With an immediate, a number, the peer hears of it by `written`.
        """
        self._inner.write(region._inner, *region._range(start, end), key, at, immediate).wait(timeout)

    def written(self, timeout: float | None = None) -> tuple[int, int]:
        """The peer's next write with an immediate: the immediate, and the number of bytes."""
        return cast("tuple[int, int]", self._inner.written().wait(timeout))

    def revoke(self, key: bytes) -> bool:
        """Takes a key back; False if it was not valid."""
        return cast(bool, self._inner.revoke(key).wait(None))

    def counters(self) -> dict[str, Any]:
        """Bytes per plane, retransmissions, the round trip, and which planes are in use."""
        return cast("dict[str, Any]", self._inner.counters().wait(None))

    def close(self) -> None:
        """Ends the connection."""
        self._inner.close().wait(None)


class _Node:
    """The methods that nodes of both kinds have."""

    def __init__(self, planes: Addresses = (), *, peer_timeout: float = 3.0, accept: bool = True, **wire: Unpack[WireOptions]) -> None:
        """A node with this local address on each plane, with or without a port; without a port it takes a free one.

        Addresses are IPv6 or IPv4 ones. Without any, the node is on loopback, `::1`, or `127.0.0.1` where there is no IPv6.
        A peer that is silent for `peer_timeout` seconds has ended. Without `accept` others cannot connect. The other arguments are those
        of `WireOptions`.
        """
        self._inner = _lab.WireNode(settings(planes, **wire), peer_timeout, accept)

    @property
    def addresses(self) -> list[str]:
        """Its address on each plane, for `connect` of others."""
        return self._inner.addresses()

    def __repr__(self) -> str:
        """Its addresses, or that it is closed."""
        try:
            return f"{type(self).__name__}({', '.join(self.addresses)})"
        except WireError:
            return f"{type(self).__name__}(closed)"


class Node(_Node):
    """A host on the wire, with calls that block. Ctrl-C ends a wait."""

    def connect(self, peer: Addresses, timeout: float | None = None) -> Peer:
        """A connection with the node at these addresses, one per plane."""
        return Peer(self._inner.connect(many(peer)).wait(timeout))

    def accept(self, timeout: float | None = None) -> Peer:
        """The next connection that another node begins."""
        return Peer(self._inner.accept().wait(timeout))

    def register(self, data: bytes | bytearray | memoryview) -> Region:
        """A region with a copy of these bytes."""
        data = _copied(data)
        return Region(self._inner, self._inner.register(data).wait(None), len(data))

    def zeros(self, length: int) -> Region:
        """A region of zeros."""
        return Region(self._inner, self._inner.zeros(length).wait(None), length)

    def close(self) -> None:
        """Closes all connections and ends the node."""
        self._inner.close()

    def __enter__(self) -> Node:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Closes it."""
        self.close()


class AsyncRegion(_Region):
    """A `Region` for asyncio."""

    async def read(self, start: int = 0, end: int | None = None) -> bytes:
        """A copy of a range."""
        return cast(bytes, await _later(self._node.read(self._inner, *self._range(start, end))))

    async def write(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        """Copies bytes into it."""
        data = _copied(data)
        self._range(at, at + len(data))
        await _later(self._node.write(self._inner, at, data))

    async def expose(self, peer: AsyncPeer, start: int = 0, end: int | None = None) -> bytes:
        """Lets one peer write into a range: the key that it needs."""
        return cast(bytes, await _later(peer._inner.expose(self._inner, *self._range(start, end))))

    async def free(self) -> bytes:
        """Takes the buffer out of the node: its bytes."""
        return cast(bytes, await _later(self._node.deregister(self._inner)))


class AsyncPeer(_Peer):
    """A `Peer` for asyncio. A task that is cancelled gives up the answer, not the operation."""

    async def send(self, region: AsyncRegion, start: int = 0, end: int | None = None) -> None:
        """Sends a range of a region into the next receive of the peer."""
        await _later(self._inner.send(region._inner, *region._range(start, end)))

    async def recv(self, region: AsyncRegion, start: int = 0, end: int | None = None) -> int:
        """Waits for one send of the peer, which goes into this range; gives the number of bytes."""
        return cast(int, await _later(self._inner.recv(region._inner, *region._range(start, end))))

    async def write(
        self, region: AsyncRegion, key: bytes, at: int = 0, *, start: int = 0, end: int | None = None, immediate: int | None = None
    ) -> None:
        """Writes a range of a region into the memory that the peer has exposed."""
        await _later(self._inner.write(region._inner, *region._range(start, end), key, at, immediate))

    async def written(self) -> tuple[int, int]:
        """The peer's next write with an immediate: the immediate, and the number of bytes."""
        return cast("tuple[int, int]", await _later(self._inner.written()))

    async def revoke(self, key: bytes) -> bool:
        """Takes a key back; False if it was not valid."""
        return cast(bool, await _later(self._inner.revoke(key)))

    async def counters(self) -> dict[str, Any]:
        """Bytes per plane, retransmissions, the round trip, and which planes are in use."""
        return cast("dict[str, Any]", await _later(self._inner.counters()))

    async def close(self) -> None:
        """Ends the connection."""
        await _later(self._inner.close())


class AsyncNode(_Node):
    """A `Node` for asyncio."""

    async def connect(self, peer: Addresses) -> AsyncPeer:
        """A connection with the node at these addresses, one per plane."""
        return AsyncPeer(await _later(self._inner.connect(many(peer))))

    async def accept(self) -> AsyncPeer:
        """The next connection that another node begins."""
        return AsyncPeer(await _later(self._inner.accept()))

    async def register(self, data: bytes | bytearray | memoryview) -> AsyncRegion:
        """A region with a copy of these bytes."""
        data = _copied(data)
        return AsyncRegion(self._inner, await _later(self._inner.register(data)), len(data))

    async def zeros(self, length: int) -> AsyncRegion:
        """A region of zeros."""
        return AsyncRegion(self._inner, await _later(self._inner.zeros(length)), length)

    async def close(self) -> None:
        """Closes all connections and ends the node."""
        await asyncio.get_running_loop().run_in_executor(None, self._inner.close)

    async def __aenter__(self) -> AsyncNode:
        """Itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Closes it."""
        await self.close()
