"""Nodes that the transports of a process share, and the threads that take their events.

Transports with the same settings and key have one node, so they have one set of sockets and one thread that moves packets. A node without
a key from its user makes one; it travels with the address of the node, through the program's own control plane.
"""

from __future__ import annotations

import atexit
import collections
import itertools
import os
import secrets
import threading
import time
from typing import Protocol

from strandway import _lab
from strandway.errors import WireError, WireTimeout
from strandway.wire import socket_holders

__all__ = ["Connection", "Operation", "SharedNode", "acquire", "node_key"]

# The time after which a silent peer is given up, in seconds.
PEER_TIMEOUT = 3.0

Settings = tuple[tuple[str, str], ...]


class Operation(Protocol):
    """An operation, as its node sees it."""

    def finish(self, error: BaseException | None) -> None:
        """It has ended, with or without an error."""


class Connection:
    """A connection that this process began, and the operations that wait for room on it."""

    def __init__(self) -> None:
        """One that is not established."""
        self.number = 0
        self.is_up = False
        self.ended: str | None = None
        self.waiting: collections.deque[tuple[_Request, Operation]] = collections.deque()


# reads, memory, offset, bytes, key, at
_Request = tuple[bool, int, int, int, bytes, int]


class SharedNode:
    """A node with its users."""

    def __init__(self, key: bytes, settings: Settings) -> None:
        """Opens the sockets and starts the threads."""
        self.key, self.settings = key, settings
        self.name = secrets.token_hex(16)
        self.users = 0
        self.wire = _lab.WireMover(key, dict(settings), PEER_TIMEOUT)
        self.addresses = self.wire.addresses()
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._operations: dict[int, Operation] = {}
        self._connections: dict[int, Connection] = {}
        self._thread = threading.Thread(target=self._run, name="strandway-transport", daemon=True)
        self._thread.start()

    def connect(self, addresses: list[str], timeout: float) -> Connection:
        """A connection to the node at these addresses, one per plane."""
        until = time.monotonic() + timeout
        connection = Connection()
        with self._changed:
            connection.number = self.wire.connect(addresses)
            self._connections[connection.number] = connection
            while not connection.is_up and connection.ended is None:
                if not self._changed.wait(max(until - time.monotonic(), 0.0)) and time.monotonic() >= until:
                    break
        if connection.ended is not None:
            raise WireError(f"no connection to {', '.join(addresses)}: {connection.ended}", "closed")
        if not connection.is_up:
            self.end(connection)
            raise WireTimeout(f"no connection to {', '.join(addresses)} within {timeout:g} s", "timeout")
        return connection

    def end(self, connection: Connection) -> None:
        """Ends a connection; its operations end with an error."""
        if connection.ended is None:
            try:
                self.wire.end(connection.number)
            except WireError:
                pass  # It has ended meanwhile.

    def begin(self, connection: Connection, request: _Request, operation: Operation) -> None:
        """Begins a read or a write, now or when there is room on the connection."""
        with self._changed:
            if connection.ended is not None:
                raise WireError(f"the connection has ended: {connection.ended}", "closed")
            if connection.waiting or not self._post(connection, request, operation):
                connection.waiting.append((request, operation))

    def _post(self, connection: Connection, request: _Request, operation: Operation) -> bool:
        """Posts an operation; False if the connection has no room."""
        number = next(self._numbers)
        self._operations[number] = operation
        try:
            reads, memory, offset, length, key, at = request
            self.wire.begin(reads, connection.number, memory, offset, length, key, at, number)
        except BaseException as error:
            del self._operations[number]
            if isinstance(error, WireError) and error.kind == "busy":
                return False
            raise
        return True

    def _run(self) -> None:
        """Takes events until the node is closed."""
        while True:
            try:
                events = self.wire.events(3600.0)
            except WireError:
                break
            for kind, ok, text, number, operation in events:
                self._handle(kind, ok, text, number, operation)
        with self._changed:
            lost = [*self._operations.values(), *(one for link in self._connections.values() for _, one in link.waiting)]
            self._operations.clear()
            self._connections.clear()
            self._changed.notify_all()
        for one in lost:
            one.finish(WireError("the transport was closed", "closed"))

    def _handle(self, kind: str, ok: bool, text: str, number: int, operation: int) -> None:
        """One event; operations are told without the lock, since they may begin others."""
        ended: list[tuple[Operation, BaseException | None]] = []
        with self._changed:
            connection = self._connections.get(number)
            if kind == "done":
                one = self._operations.pop(operation, None)
                if one is not None:
                    ended.append((one, None if ok else WireError(text, "closed")))
            if kind == "connected" and connection is not None:
                connection.is_up = True
            if kind == "closed" and connection is not None:
                connection.ended = text
                ended += [(one, WireError(f"the connection has ended: {text}", "closed")) for _, one in connection.waiting]
                connection.waiting.clear()
                del self._connections[number]
            if kind != "done":
                self._changed.notify_all()
            while connection is not None and connection.waiting:
                request, one = connection.waiting[0]
                try:
                    if not self._post(connection, request, one):
                        break
                except BaseException as refusal:
                    ended.append((one, refusal))
                connection.waiting.popleft()
        for one, error in ended:
            one.finish(error)

    def release(self) -> None:
        """One user less; the last one closes the node."""
        with _lock:
            self.users -= 1
            if self.users:
                return
            _nodes.pop((self.key, self.settings), None)
        self.close()

    def close(self) -> None:
        """Closes the node and waits for its thread: a thread that runs while the interpreter ends can crash the process."""
        self.wire.close()
        if self._thread is not threading.current_thread():
            self._thread.join()


_lock = threading.Lock()
_nodes: dict[tuple[bytes, Settings], SharedNode] = {}
_keys: dict[Settings, bytes] = {}


def node_key(settings: Settings) -> bytes:
    """The key of this process's nodes with these settings, whose user gave none."""
    with _lock:
        return _keys.setdefault(settings, secrets.token_bytes(32))


def acquire(key: bytes, settings: Settings) -> SharedNode:
    """The node with this key and these settings, which its users release."""
    with _lock:
        node = _nodes.get((key, settings))
        if node is None:
            node = _nodes[key, settings] = SharedNode(key, settings)
        node.users += 1
        return node


def _close_all() -> None:
    """At the end of a program, so that peers hear of it at once."""
    with _lock:
        nodes = list(_nodes.values())
        _nodes.clear()
    for node in nodes:
        node.close()


def _descriptors() -> list[int]:
    """Those of all nodes of this process."""
    with _lock:
        return [descriptor for node in _nodes.values() for descriptor in node.wire.descriptors()]


def _forget() -> None:
    """In a child of a fork: the nodes are its parent's, and another thread of the parent may have had the lock."""
    global _lock
    _lock = threading.Lock()
    _nodes.clear()
    _keys.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget)
socket_holders.append(_descriptors)
