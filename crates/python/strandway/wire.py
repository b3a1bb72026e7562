"""Process groups: collectives on arrays, between processes that a launcher has started. No PyTorch is needed.

Under torchrun, Open MPI, PMI or Slurm, one line meets the others::

    group = strandway.Group.from_env()
    group.all_reduce(gradients, "avg")

Arrays are those of numpy, or whatever else has `__array_interface__` or is a writable buffer; they are lent to the wire, not copied. Calls
block with the interpreter's lock released, or give a `Work` with `wait=False`.

>>> import threading
>>> import numpy as np
>>> import strandway
>>> store, sums = strandway.MemoryStore(), []
>>> def rank(r):
...     group = strandway.Group.meet(store, r, 2, apart=True)
...     sums.append(group.all_reduce(np.full(3, r + 1.0)))
>>> threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
>>> for thread in threads: thread.start()
>>> for thread in threads: thread.join()
>>> sums
[array([3., 3., 3.]), array([3., 3., 3.])]
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from . import _lab

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Kinds of numpy (`dtype.str` without the byte order) that are reduced.
_KINDS = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "i8": "int64",
    "i4": "int32",
    "i2": "int16",
    "i1": "int8",
    "u8": "uint64",
    "u4": "uint32",
    "u2": "uint16",
    "u1": "uint8",
    "c16": "complex128",
    "c8": "complex64",
    "b1": "bool",
}
# The same kinds as buffers name them; the size decides where there is none.
_FORMATS = {
    "d": "f8",
    "f": "f4",
    "e": "f2",
    "q": "i8",
    "l": "i",
    "i": "i4",
    "h": "i2",
    "b": "i1",
    "Q": "u8",
    "L": "u",
    "I": "u4",
    "H": "u2",
    "B": "u1",
    "n": "i",
    "N": "u",
    "?": "b1",
    "Zd": "c16",
    "Zf": "c8",
}


def _close() -> None:
    try:
        _lab.close_wire()
    except Exception as error:
        # A program that ends cannot catch it.
        print(f"strandway: {error}", file=sys.stderr)


# Elsewhere there is nothing to close.
if sys.platform == "linux":
    atexit.register(_close)

_descriptors: list[int] = []
# Each gives the descriptors of sockets, of which a child of a fork must have none.
socket_holders: list[Callable[[], list[int]]] = [lambda: _lab.wire_descriptors()]


def _before_fork() -> None:
    _descriptors[:] = [descriptor for holder in socket_holders for descriptor in holder()]


def _after_fork() -> None:
    # A child that holds the sockets would hide the death of its parent from the other ranks.
    if _descriptors:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in _descriptors:
            os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


if sys.platform == "linux":
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def waiting() -> list[tuple[str, float, list[str]]]:
    """The operations under way in this process, the oldest first: name, seconds since they began, and the ranks that they wait for."""
    return _lab.wire_waiting()


def _print_waiting() -> None:
    lines = [f"strandway: operations under way in process {os.getpid()}:"]
    for what, seconds, ranks in waiting():
        lines.append(f"  {what}, for {seconds:.1f} s, waits for {', '.join(ranks) or 'the wire'}")
    print("\n".join(lines if len(lines) > 1 else [*lines, "  none"]), file=sys.stderr, flush=True)


def _print_on_signal() -> None:
    # The interpreter's handler writes a byte at once, also while the main thread waits in a call.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def read() -> None:
        while True:
            if signal.SIGUSR1 in os.read(reader, 64):
                _print_waiting()

    threading.Thread(target=read, name="strandway-signals", daemon=True).start()


if os.environ.get("STRANDWAY_DUMP_ON_SIGUSR1") == "1" and threading.current_thread() is threading.main_thread():
    _print_on_signal()


class Store(Protocol):
    """Where ranks find each other: a few values under names. A process that can read it can join the group.

    A store with `remove(key)` does not keep what nobody needs any more.
    """

    def set(self, key: str, value: bytes) -> None:
        """Writes a value."""

    def get(self, key: str, seconds: float) -> bytes:
        """Waits until there is a value, for at most `seconds` seconds."""


class MemoryStore:
    """A store for the threads of one process."""

    def __init__(self) -> None:
        """An empty one."""
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        """Writes a value."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, seconds: float) -> bytes:
        """Waits until there is a value."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, seconds):
                raise TimeoutError(f"no value for {key} within {seconds:.1f} s")
            return self._values[key]

    def remove(self, key: str) -> None:
        """Removes a value, if there is one."""
        with self._changed:
            self._values.pop(key, None)


class Work:
    """A collective under way, or ended."""

    def __init__(self, work: _lab.Work, result: Any = None) -> None:
        """Takes the extension's work and the result."""
        self._work, self._result = work, result

    def done(self) -> bool:
        """Has it ended?"""
        return self._work.is_ended()

    def wait(self, timeout: float | None = None) -> Any:
        """The result, once it is there; `TimeoutError` if it is not there within `timeout` seconds; the collective goes on."""
        if not self._work.wait(timeout):
            raise TimeoutError(f"the collective is not over after {timeout} s")
        return self._result


class _Call:
    """The memory of one collective."""

    def __init__(self) -> None:
        self.buffers: list[tuple[int, int, bool]] = []
        self.keep: list[Any] = []
        self.kinds: list[str] = []

    def add(self, array: Any, writable: bool) -> tuple[int, int, int]:
        address, length, kind = _memory(array, writable)
        self.buffers.append((address, length, writable))
        self.keep.append(array)
        self.kinds.append(kind)
        return (len(self.buffers) - 1, 0, length)

    def element(self, reduces: bool) -> str:
        """The kind of all arrays of the call, of which none is written that shares memory with another one."""
        if share_memory(self.buffers):
            raise ValueError("an input and an output, or two outputs, share memory: pass a copy of one of them")
        kinds = sorted(set(self.kinds))
        if len(kinds) > 1:
            raise TypeError(f"the arrays of a call have one kind of numbers, and these have {' and '.join(kinds)}")
        kind = kinds[0] if kinds else "uint8"
        if reduces and kind not in _KINDS.values():
            if kind[1:] in _KINDS:
                raise TypeError(f"numbers of the kind {kind} are not reduced: pass array.astype(array.dtype.newbyteorder('='))")
            known = ", ".join(_KINDS.values())
            raise TypeError(f"numbers of the kind {kind} are not reduced: pass array.astype(...) with one of {known}")
        return kind


def share_memory(buffers: Sequence[tuple[int, int, bool]]) -> bool:
    """Has one of the buffers that are written a byte of another one?"""
    end = end_written = 0
    for address, length, writable in sorted(buffer for buffer in buffers if buffer[1]):
        if address < end_written or (writable and address < end):
            return True
        end = max(end, address + length)
        end_written = max(end_written, address + length if writable else 0)
    return False


def _memory(array: Any, writable: bool) -> tuple[int, int, str]:
    """Address, bytes and kind of an array."""
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        (address, readonly), typestr = interface["data"], interface["typestr"]
        if typestr[1:2] == "O":
            raise TypeError("the array holds Python objects, which cannot be moved: pass numbers")
        if interface.get("strides") is not None:
            raise ValueError("the array is not contiguous: pass numpy.ascontiguousarray(array)")
        if writable and readonly:
            raise ValueError("the array is read-only, and the result goes there")
        length = _item_size(array, typestr)
        for extent in interface["shape"]:
            length *= extent
        # Numbers in the other byte order are a kind of their own, which is moved as it is.
        foreign = typestr[:1] == (">" if sys.byteorder == "little" else "<")
        return address, length, typestr if foreign else _KINDS.get(typestr[1:], typestr[1:])
    view = memoryview(array)
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous")
    if view.readonly:
        raise ValueError("the buffer is read-only: pass a numpy array or a bytearray")
    layout = view.format.lstrip("@=<") if sys.byteorder == "little" else view.format.lstrip("@=>!")
    name = _FORMATS.get(layout, view.format)
    name = f"{name}{view.itemsize}" if name in ("i", "u") else name
    address = ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view)) if view.nbytes else 0
    return address, view.nbytes, _KINDS.get(name, name)


def _item_size(array: Any, typestr: str) -> int:
    # A text's typestr counts characters, not bytes.
    size = getattr(array, "itemsize", None)
    return int(size) if size is not None else int(typestr[2:])


def _blocks(part: tuple[int, int, int], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    blocks, end = [], 0
    for size in sizes:
        blocks.append((part[0], end, end + size))
        end += size
    if end != part[2]:
        raise ValueError(f"a buffer of {part[2]} bytes does not consist of blocks of {list(sizes)} bytes")
    return blocks


def _check_pair(rank: int, tag: int) -> None:
    if rank < 0:
        raise ValueError(f"rank {rank}: give 0 or more")
    if not 0 <= tag < 1 << 32:
        raise ValueError(f"tag {tag}: give 0 to {(1 << 32) - 1}")


def _numbered(method: _Method) -> _Method:
    """A collective that takes its number also if it is refused, and fails at the other ranks then: later calls must meet the right ones."""

    @functools.wraps(method)
    def call(self: Group, *arguments: Any, **options: Any) -> Any:
        begun = self._inner.begun()
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            if self._inner.begun() == begun:
                self._inner.refuse(method.__name__, str(error))
            raise

    return cast(_Method, call)


class Group:
    """One rank's side of a group of processes. All ranks call the same collectives in the same order."""

    def __init__(self, inner: _lab.WireGroup) -> None:
        """See `from_env` and `meet`."""
        self._inner = inner

    @classmethod
    def from_env(cls, timeout: float = 1800.0, patience: float = 300.0) -> Group:
        """All processes that a launcher has started: torchrun, Open MPI, PMI or Slurm.

        They meet at `STRANDWAY_STORE` (`HOST:PORT` at rank 0, or a directory that all see), or at `MASTER_ADDR` and the port after
        `MASTER_PORT`. `STRANDWAY_PLANES` has this host's IPv6 or IPv4 address on each plane, with commas between. Collectives may take
        `timeout` seconds; ranks wait `patience` seconds for each other.
        """
        return cls(_lab.WireGroup.from_env(timeout, patience))

    @classmethod
    def meet(cls, store: Store, rank: int, ranks: int, timeout: float = 1800.0, patience: float = 300.0, *, apart: bool = False) -> Group:
        """Processes that meet at a store of yours; `apart` gives a group a node of its own, for several ranks in one process."""
        return cls(_lab.WireGroup.meet(store, rank, ranks, None, timeout, patience, apart))

    @property
    def rank(self) -> int:
        """Our rank."""
        return self._inner.rank()

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self._inner.ranks()

    def __repr__(self) -> str:
        """Our rank, and the number of ranks."""
        return f"Group(rank {self.rank} of {self.ranks})"

    def host(self, rank: int) -> str | None:
        """Host and process of a rank."""
        return self._inner.host(rank)

    def split(self, color: int | None, key: int = 0) -> Group | None:
        """A group of the ranks that call with the same color, ordered by key, then rank; None without a color."""
        inner = self._inner.split(color, key)
        return None if inner is None else Group(inner)

    def shrink(self, excluded: Sequence[int]) -> Group:
        """The group without some ranks, for those that are left: all of them call it with the same ranks. Nothing is sent."""
        return Group(self._inner.shrink(list(excluded)))

    def abort(self) -> None:
        """Ends all collectives of the group here, now; they fail, and so do later ones."""
        self._inner.abort()

    def _run(
        self,
        job: str,
        call: _Call,
        inputs: list[tuple[int, int, int]],
        outputs: list[tuple[int, int, int]],
        result: Any,
        wait: bool,
        root: int = 0,
        op: str = "sum",
        factor: float = 1.0,
        reduces: bool = False,
    ) -> Any:
        if root < 0:
            raise ValueError(f"root {root}: give a rank, 0 to {self.ranks - 1}")
        element = call.element(reduces)
        work = Work(self._inner.start(job, call.buffers, inputs, outputs, element, op, factor, root, None, call.keep), result)
        return work.wait() if wait else work

    @_numbered
    def all_reduce(self, array: Any, op: str = "sum", *, factor: float = 1.0, wait: bool = True) -> Any:
        """Every rank's array becomes the reduction: `sum`, `avg`, `premul_sum`, `min`, `max`, `product`, `band`, `bor`, `bxor`."""
        call = _Call()
        part = call.add(array, True)
        return self._run("all_reduce", call, [], [part], array, wait, op=op, factor=factor, reduces=True)

    @_numbered
    def reduce(self, array: Any, root: int = 0, op: str = "sum", *, factor: float = 1.0, wait: bool = True) -> Any:
        """The root's array becomes the reduction."""
        call = _Call()
        part = call.add(array, self.rank == root)
        return self._run("reduce", call, [], [part], array, wait, root, op, factor, True)

    @_numbered
    def broadcast(self, array: Any, root: int = 0, *, wait: bool = True) -> Any:
        """Every rank gets the root's array."""
        call = _Call()
        part = call.add(array, self.rank != root)
        return self._run("broadcast", call, [], [part], array, wait, root)

    @_numbered
    def all_gather(self, array: Any, output: Any = None, *, wait: bool = True) -> Any:
        """Every rank gets the arrays of all: in a new array, in `output`, or in a list of arrays whose lengths may differ."""
        call = _Call()
        own = call.add(array, False)
        if output is None:
            output = _new(self.ranks, array)
        if isinstance(output, list):
            parts = [call.add(one, True) for one in output]
        else:
            parts = _blocks(call.add(output, True), [own[2]] * self.ranks)
        return self._run("all_gather", call, [own], parts, output, wait)

    @_numbered
    def reduce_scatter(self, array: Any, output: Any, op: str = "sum", *, factor: float = 1.0, wait: bool = True) -> Any:
        """Rank r gets the reduction of everybody's block r, each as long as `output`."""
        call = _Call()
        whole, part = call.add(array, False), call.add(output, True)
        parts = _blocks(whole, [part[2]] * self.ranks)
        return self._run("reduce_scatter", call, parts, [part], output, wait, op=op, factor=factor, reduces=True)

    @_numbered
    def all_to_all(self, arrays: Any, outputs: Any, *, wait: bool = True) -> Any:
        """Rank r gets everybody's array r. Two lists of arrays, or two arrays of equal blocks."""
        call = _Call()

        def parts(given: Any, writable: bool) -> list[tuple[int, int, int]]:
            if isinstance(given, list):
                return [call.add(one, writable) for one in given]
            whole, rows = call.add(given, writable), (getattr(given, "shape", None) or memoryview(given).shape or (1,))[0]
            if rows % self.ranks:
                raise ValueError(f"an array of {rows} rows cannot be shared equally by {self.ranks} ranks: pass lists of arrays")
            return _blocks(whole, [whole[2] // self.ranks] * self.ranks)

        return self._run("all_to_all", call, parts(arrays, False), parts(outputs, True), outputs, wait)

    @_numbered
    def gather(self, array: Any, output: Any = None, root: int = 0, *, wait: bool = True) -> Any:
        """The root gets the arrays of all, in a new array, in `output`, or in a list; others get None."""
        call = _Call()
        own = call.add(array, False)
        if self.rank != root:
            return self._run("gather", call, [own], [], None, wait, root)
        if output is None:
            output = _new(self.ranks, array)
        if isinstance(output, list):
            parts = [call.add(one, True) for one in output]
        else:
            parts = _blocks(call.add(output, True), [own[2]] * self.ranks)
        return self._run("gather", call, [own], parts, output, wait, root)

    @_numbered
    def scatter(self, array: Any, output: Any, root: int = 0, *, wait: bool = True) -> Any:
        """Rank r gets the root's block r, as long as `output`, or its array r of a list; others pass None."""
        call = _Call()
        part = call.add(output, True)
        parts = []
        if self.rank == root:
            if isinstance(array, list):
                parts = [call.add(one, False) for one in array]
            else:
                parts = _blocks(call.add(array, False), [part[2]] * self.ranks)
        return self._run("scatter", call, parts, [part], output, wait, root)

    def send(self, array: Any, to: int, tag: int = 0, *, wait: bool = True) -> Any:
        """Sends an array to a receive with the same tag and length."""
        _check_pair(to, tag)
        call = _Call()
        call.add(array, False)
        work = Work(self._inner.send(call.buffers[0], to, tag, None, call.keep))
        return work.wait() if wait else work

    def recv(self, array: Any, source: int | None = None, tag: int = 0, *, wait: bool = True) -> Any:
        """Receives an array from a rank, or from anybody; gives the array."""
        _check_pair(0 if source is None else source, tag)
        call = _Call()
        call.add(array, True)
        work = Work(self._inner.recv(call.buffers[0], source, tag, None, call.keep), array)
        return work.wait() if wait else work

    @_numbered
    def barrier(self, *, wait: bool = True) -> Any:
        """Returns when all ranks have called it."""
        return self._run("barrier", _Call(), [], [], None, wait)


def _new(ranks: int, like: Any) -> Any:
    import numpy as np

    array = np.asarray(like)
    return np.empty((ranks, *array.shape), array.dtype)
