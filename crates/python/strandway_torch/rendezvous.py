"""How two processes of different hosts meet for a transfer: TCP connections that carry JSON objects, one per line.

One side keeps a `Rendezvous`, whose metadata is a short string for the other side, which connects to it by `visit`. A connection stays
open until the transfer is over, so each side hears at once when the other process ends.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from strandway.errors import WireError, WireTimeout

__all__ = ["Link", "Rendezvous", "visit"]

# The version of the messages.
VERSION = 1
# Bytes of the longest line: ours, far more than any message has.
_LINE_MAX = 64 << 10
# How long a visitor may take for its first message, in seconds, and how many may be that far at the same time.
_GREETING = 10.0
_GREETINGS_MAX = 256
# How long the peer's system may take for a message, in seconds.
_SEND = 5.0
# How long one address of a rendezvous is tried, in seconds, while there are others.
_CALL = 3.0

Message = dict[str, Any]

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _forget() -> None:
    """In a child of a fork: its parent's connections must end with the parent."""
    for one in list(_sockets):
        one.close()


os.register_at_fork(after_in_child=_forget)


class Link:
    """One connection, and the name of the other process for messages."""

    def __init__(self, connection: socket.socket, peer: str) -> None:
        """Takes the connection."""
        self.peer = peer
        self._socket, self._buffer = connection, b""
        connection.settimeout(_SEND)
        _sockets.add(connection)

    def send(self, message: Message) -> None:
        """Sends a message; `WireError` if the peer has gone."""
        try:
            self._socket.sendall(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        except OSError as error:
            raise WireError(f"{self.peer} cannot be reached: {error}", "gone") from error

    def poll(self, seconds: float) -> Message | None:
        """The next message, or None if there is none in time; `WireError` if the peer has gone or says nonsense."""
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not self._is_readable(max(until - time.monotonic(), 0.0)):
                return None
            try:
                some = self._socket.recv(_LINE_MAX)
            except OSError as error:
                raise WireError(f"{self.peer} has ended: {error}", "gone") from error
            if not some:
                raise WireError(f"{self.peer} has ended", "gone")
            self._buffer += some
            if len(self._buffer) > _LINE_MAX:
                raise WireError(f"{self.peer} sends lines that are too long: it is no checkpoint transport of strandway")
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if type(message) is not dict:
            raise WireError(f"{self.peer} sends what is no message: it is no checkpoint transport of strandway")
        return message

    def _is_readable(self, seconds: float) -> bool:
        # `select` takes no descriptors above 1,023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def is_gone(self) -> bool:
        """Has the peer closed the connection?"""
        try:
            if not self._is_readable(0.0):
                return False
            return not self._socket.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


class Rendezvous:
    """Where visitors are received, on a port of its own at all addresses of the host, or at these if they are of loopback."""

    def __init__(self, planes: Sequence[str], greet: Callable[[Link, Message], None]) -> None:
        """`planes`: this host's address on each plane. `greet` gets each visitor with its first message, on a thread of its own.

        A `ValueError` of `greet` goes to the visitor as an error.
        """
        self._greet = greet
        hosts = [_host(plane) for plane in planes]
        if all(ipaddress.ip_address(host).is_loopback for host in hosts):
            family = socket.AF_INET6 if ":" in hosts[0] else socket.AF_INET
            self._socket = socket.create_server((hosts[0], 0), family=family, backlog=_GREETINGS_MAX)
            hosts = hosts[:1]
        elif socket.has_dualstack_ipv6():
            self._socket = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_GREETINGS_MAX)
        else:
            self._socket = socket.create_server(("", 0), backlog=_GREETINGS_MAX)
        _sockets.add(self._socket)
        self._closed, self._room = False, threading.Semaphore(_GREETINGS_MAX)
        place = {"host": socket.gethostname(), "pid": os.getpid(), "addresses": hosts, "port": self._socket.getsockname()[1]}
        self.metadata = json.dumps({"strandway": VERSION, **place}, separators=(",", ":"))
        self._thread = threading.Thread(target=self._run, name="strandway-rendezvous", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            try:
                connection, address = self._socket.accept()
            except OSError:
                # One visitor that left, or too many descriptors; after `close` it is the end.
                if not self._closed:
                    time.sleep(0.05)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            link = Link(connection, f"the process at {address[0]}")
            threading.Thread(target=self._receive, args=(link,), name="strandway-visitor", daemon=True).start()

    def _receive(self, link: Link) -> None:
        try:
            message = link.poll(_GREETING)
            if message is None:
                raise ValueError(f"no message came within {_GREETING:g} s")
            if message.get("strandway") != VERSION:
                raise ValueError(f"this side speaks version {VERSION} of the checkpoint transport: install the same strandway on all hosts")
            self._greet(link, message)
        except ValueError as error:
            with contextlib.suppress(WireError):
                link.send({"error": str(error)})
            link.close()
        except WireError:
            link.close()
        finally:
            self._room.release()

    def close(self) -> None:
        """Receives nobody any more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _host(plane: str) -> str:
    """The address of a plane without its port."""
    if plane.startswith("["):
        return plane[1:].split("]", 1)[0]
    return plane.rsplit(":", 1)[0] if plane.count(":") == 1 else plane


def visit(metadata: str, rank: int, until: float) -> Link:
    """A connection to the rendezvous with this metadata, the one of a rank; `until` is a time of `time.monotonic`."""
    wrong = f"the metadata {metadata[:100]!r} is not that of a checkpoint transport of strandway: give all replicas the same transport"
    try:
        place = json.loads(metadata)
    except (ValueError, RecursionError):
        raise ValueError(wrong) from None
    if type(place) is not dict or "strandway" not in place:
        raise ValueError(wrong)
    if place["strandway"] != VERSION:
        raise ValueError(f"the sender speaks version {place['strandway']!r} of the checkpoint transport, this side {VERSION}")
    addresses, port = place.get("addresses"), place.get("port")
    if type(addresses) is not list or not addresses or not all(type(one) is str for one in addresses):
        raise ValueError(wrong)
    if type(port) is not int or not 0 < port < 1 << 16:
        raise ValueError(wrong)
    peer = f"rank {rank} ({str(place.get('host'))[:256]}, process {place.get('pid')})"
    reasons = []
    for address in addresses:
        left = until - time.monotonic()
        if left <= 0:
            reasons.append("timed out")
            break
        try:
            connection = socket.create_connection((address, port), min(left, _CALL) if len(addresses) > 1 else left)
        except OSError as error:
            reasons.append(f"{address} port {port}: {error}")
            continue
        return Link(connection, peer)
    text = f"{peer} does not answer: {'; '.join(reasons)}"
    if time.monotonic() >= until:
        raise WireTimeout(f"timed out: {text}", "timeout", rank)
    raise WireError(text, "gone", rank)
