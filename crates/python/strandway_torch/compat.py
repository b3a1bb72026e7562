"""The differences between versions of torch: names that came or went are asked for here, and nowhere else.

Nothing here asks for a version's number. A torch that lacks what is needed gets one sentence, which says what works.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

WORKS = "strandway works with torch 2.4 to 2.15"


def sentence(why: str) -> str:
    """The message for users of a torch that does not do."""
    return f"{WORKS}, and not with this torch {torch.__version__}: {why}"


try:
    from torch._C._distributed_c10d import Backend, ProcessGroup, ReduceOp, Work
    from torch.distributed import distributed_c10d
except ImportError as error:
    raise ImportError(sentence(str(error))) from error

__all__ = [
    "MAKES_BACKENDS",
    "WORKS",
    "Backend",
    "ErrorType",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "accelerator",
    "accelerator_type",
    "complete_functions",
    "device_types",
    "distributed_c10d",
    "keeps_works",
    "mark_callbacks",
    "options_type",
    "sentence",
]


class _ErrorType(enum.Enum):
    """torch has it since 2.7."""

    SUCCESS = 0
    TIMEOUT = 1
    COMM_ERROR = 2
    REMOTE_ERROR = 3


ErrorType: Any = getattr(torch._C._distributed_c10d, "ErrorType", _ErrorType)


def _makes(kind: Any) -> bool:
    try:
        kind(0, 1)
    except TypeError:
        return False
    return True


# Can a `Backend` be made from Python? Since torch 2.14. Before, the creator of a backend may return a `ProcessGroup` of its own.
MAKES_BACKENDS = _makes(Backend)

if not MAKES_BACKENDS and not (_makes(ProcessGroup) and hasattr(ProcessGroup, "group_desc")):
    raise ImportError(sentence("neither its Backend nor a ProcessGroup with a name can be made from Python"))


@functools.cache
def keeps_works() -> bool:
    """Does C++ keep the Python half of a work that a method of a `ProcessGroup` returns to it? Since torch 2.7."""

    class Probe(Work):  # type: ignore[misc]
        def get_future(self) -> Any:
            future: torch.futures.Future[None] = torch.futures.Future()
            future.set_result(None)
            return future

    class Group(ProcessGroup):  # type: ignore[misc]
        def allreduce(self, *arguments: Any) -> Any:
            return Probe()

    try:
        ProcessGroup.allreduce(Group(0, 1), [torch.zeros(1)]).get_future()
    except RuntimeError:
        return False
    return True


def accelerator_type() -> str | None:
    """The kind of accelerator that torch was built for, or that a package has brought. No device is started: programs may fork."""
    current = getattr(getattr(torch, "accelerator", None), "current_accelerator", None)
    # Since torch 2.7. That of torch 2.6 asks the driver.
    if current is not None and "check_available" in inspect.signature(current).parameters:
        found = current()
        return None if found is None else str(found.type)
    if torch.version.cuda or torch.version.hip:
        return "cuda"
    return "xpu" if getattr(torch.version, "xpu", None) and current is not None else None


def device_types() -> list[str]:
    """The kinds of devices whose tensors are moved."""
    kind = accelerator_type()
    return ["cpu"] if kind in (None, "cpu") else ["cpu", str(kind)]


def accelerator() -> tuple[Any, Any, Callable[[Any], Any]]:
    """The module with the streams of threads, the class of streams, and what makes an event of a device."""
    if hasattr(torch, "accelerator"):
        return torch.accelerator, torch.Stream, torch.Event
    return torch.cuda, torch.cuda.Stream, lambda _: torch.cuda.Event(blocking=True)


def options_type(name: str) -> Any:
    """The class of a collective's options, or None where torch does not have it."""
    return getattr(torch._C._distributed_c10d, name, None)


def mark_callbacks(threads: threading.local) -> None:
    """A future that is complete runs a new callback at once, on the thread that gives it; `threads.given` is above 0 meanwhile.

    Whether a future is complete by then differs between ranks, and torch does not say.
    """
    for name in ("then", "add_done_callback"):
        original = getattr(torch._C.Future, name)

        @functools.wraps(original)
        def give(self: Any, callback: Any, original: Any = original) -> Any:
            before = getattr(threads, "given", 0)
            threads.given = before + 1
            try:
                return original(self, callback)
            finally:
                threads.given = before

        setattr(torch._C.Future, name, give)


def complete_functions() -> None:
    """Wraps the functions of `torch.distributed` that do not ask a group in Python."""
    if MAKES_BACKENDS:
        _replace("recv", _recv)
        return
    _replace("monitored_barrier", _monitored_barrier)
    if not hasattr(ProcessGroup, "shutdown"):
        _replace("destroy_process_group", _destroy)


def _replace(name: str, wrapper: Callable[[Any], Any]) -> None:
    import torch.distributed as dist

    original = getattr(distributed_c10d, name)
    wrapped = functools.wraps(original)(wrapper(original))
    setattr(distributed_c10d, name, wrapped)
    setattr(dist, name, wrapped)


def _recv(original: Any) -> Any:
    """Lets `recv` without a source give the sender's rank: the C++ half of a backend cannot ask the one in Python."""

    def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
        backend = sys.modules.get("strandway_torch.backend")
        if src is None and group_src is None and backend is not None:
            source = backend.receive_from_any(tensor, group, tag)
            if source is not None:
                return int(source)
        return int(original(tensor, src, group, tag, group_src))

    return recv


def _destroy(original: Any) -> Any:
    """Lets our groups leave when torch forgets them: before torch 2.7 it tells only those of NCCL."""

    def destroy_process_group(group: Any = None) -> None:
        groups = list(distributed_c10d._world.pg_map)
        original(group)
        left = set(distributed_c10d._world.pg_map)
        for gone in groups:
            if gone not in left and getattr(gone, "is_strandway", False):
                gone.shutdown()

    return destroy_process_group


def _monitored_barrier(original: Any) -> Any:
    """Lets our groups do it: such a torch asks for the name gloo."""

    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        whole: Any = group or (distributed_c10d._get_default_group() if distributed_c10d.is_initialized() else None)
        if getattr(whole, "is_strandway", False):
            whole.monitored_barrier(timeout, wait_all_ranks)
        else:
            original(group, timeout, wait_all_ranks)

    return monitored_barrier
