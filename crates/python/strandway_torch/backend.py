"""The backend `strandway`: a `Backend` of `torch.distributed` over the package's process groups.

Tensors are lent to the wire by address, without a copy, until their work has ended; the work keeps them alive. One node serves all groups
of a process. Nothing is started before the first group is made, so that programs may fork until then.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing.util
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from strandway import _lab
from strandway.errors import WireError, WireTimeout
from strandway.wire import _close, share_memory
from torch._C._distributed_c10d import Backend, ErrorType, ReduceOp, Work

from .futures import Line, complete, in_callback, note

_ELEMENTS = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint64: "uint64",
    torch.uint32: "uint32",
    torch.uint16: "uint16",
    torch.uint8: "uint8",
    torch.complex128: "complex128",
    torch.complex64: "complex64",
    torch.bool: "bool",
}
_REDUCTIONS = {
    "SUM": "sum",
    "AVG": "avg",
    "PREMUL_SUM": "premul_sum",
    "MIN": "min",
    "MAX": "max",
    "PRODUCT": "product",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
}
# How long ranks wait at least for each other when a group is made; longer if its timeout is longer.
_PATIENCE = 30.0
# Tags above those that programs may use.
_MONITOR = 1 << 31
_NO_TIMEOUT = 7 * 24 * 3600.0

# C++ keeps only its half of a backend under TORCH_DISTRIBUTED_DEBUG=DETAIL; ours must outlive it.
_ALIVE: set[StrandwayBackend] = set()


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


_closing: int | None = None


def _close_at_exit() -> None:
    # The last words of a process arrive before it ends; children of multiprocessing do not run atexit.
    global _closing
    if _closing != os.getpid():
        _closing = os.getpid()
        # The package itself has registered what closes the wire; children of multiprocessing do not run that.
        multiprocessing.util.Finalize(None, _close, exitpriority=1)


class StrandwayWork(Work):  # type: ignore[misc]
    """An operation under way: of one or several collectives, with what remains to be done when they have ended."""

    def __init__(self, works: list[_lab.Work], result: list[torch.Tensor], finish: list[Callable[[], None]]) -> None:
        """Takes the works, the tensors of the result, and what copies results into tensors that are not contiguous."""
        super().__init__()
        self._works, self._result, self._finish = works, result, finish
        self._line: Line | None = None
        self._lock = threading.Lock()

    def _finished(self) -> None:
        with self._lock:
            finish, self._finish = self._finish, []
            for step in finish:
                step()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the end; an operation that is not over in time goes on, and the caller hears of it."""
        limit = timeout.total_seconds() if timeout else 0.0
        until = time.monotonic() + limit
        for work in self._works:
            left = max(until - time.monotonic(), 0.0) if limit > 0 else None
            if not work.wait(left):
                raise WireTimeout(f"wait timed out after {limit:.1f} s: its timeout was over before the operation", "timeout")
        self._finished()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the result, completed by a thread of the package; it fails as `wait` does."""
        end: torch.futures.Future[None] = torch.futures.Future()

        def value(_: torch.futures.Future[None]) -> list[torch.Tensor]:
            self.wait()
            return self._result

        # An error that `set_exception` gives to a future is lost in C++; one that a callback raises is the future's.
        future = end.then(value)
        complete(self._works, lambda: end.set_result(None), self._line)
        return future

    def _source_rank(self) -> int:
        source = self._works[0].source() if self._works else None
        return -1 if source is None else source

    def source_rank(self) -> int:
        """The rank that a receive from anybody was filled by."""
        return self._source_rank()

    def is_completed(self) -> bool:
        """Has it ended? Its results are in their tensors then."""
        if not all(work.is_ended() for work in self._works):
            return False
        if self._finish and not any(work.failed() for work in self._works):
            self._finished()
        return True

    def result(self) -> list[torch.Tensor]:
        """The tensors of the result."""
        return self._result


class _Call:
    """The memory of one collective."""

    def __init__(self) -> None:
        self.buffers: list[tuple[int, int, bool]] = []
        self.keep: list[torch.Tensor] = []
        self.finish: list[Callable[[], None]] = []

    def _add(self, tensor: torch.Tensor, writable: bool) -> tuple[int, int, int]:
        length = tensor.numel() * tensor.element_size()
        if length and not tensor.data_ptr():
            raise ValueError(f"a tensor of {length} bytes has no memory of its own: pass tensor.clone()")
        self.buffers.append((tensor.data_ptr(), length, writable))
        self.keep.append(tensor)
        return (len(self.buffers) - 1, 0, length)

    def read(self, tensor: torch.Tensor) -> tuple[int, int, int]:
        _check(tensor)
        return self._add(tensor.detach().contiguous(), False)

    def write(self, tensor: torch.Tensor) -> tuple[int, int, int]:
        _check(tensor)
        if tensor.is_contiguous():
            return self._add(tensor, True)
        # 1: yes. Where torch does not know, the copy at the end fails.
        if torch._debug_has_internal_overlap(tensor) == 1:
            raise ValueError("several numbers of the tensor are one place of its memory (it is expanded): pass tensor.clone()")
        whole = tensor.detach().contiguous()
        self.finish.append(lambda: _copy_back(tensor, whole))
        return self._add(whole, True)


def _copy_back(tensor: torch.Tensor, whole: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(whole)


def _check(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"strandway moves tensors of the CPU, and this one is on {tensor.device}: copy it there first")
    if tensor.layout != torch.strided:
        raise ValueError(f"strandway moves dense tensors, and this one is {tensor.layout}")


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    def end(tensor: torch.Tensor) -> int:
        return int(tensor.data_ptr() + tensor.numel() * tensor.element_size())

    return bool(one.data_ptr() < end(other) and other.data_ptr() < end(one))


def _blocks(part: tuple[int, int, int], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """A buffer cut into blocks of `sizes` bytes."""
    ends = list(itertools.accumulate(sizes))
    if ends[-1:] != [part[2]]:
        raise ValueError(f"a tensor of {part[2]} bytes does not consist of blocks of {list(sizes)} bytes")
    return [(part[0], end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _dtype_name(dtype: torch.dtype) -> str:
    return _ELEMENTS.get(dtype) or str(dtype).removeprefix("torch.")


def _alike(tensors: Sequence[torch.Tensor]) -> str:
    """The kind of all tensors of a call."""
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        names = " and ".join(sorted(map(str, dtypes)))
        raise TypeError(f"the tensors of a call have one type, inputs and outputs alike, and these have {names}")
    return _dtype_name(dtypes.pop()) if dtypes else "uint8"


def _tag(tag: int) -> int:
    if not 0 <= tag < 1 << 31:
        raise ValueError(f"tag {tag}: give 0 to {(1 << 31) - 1}")
    return tag


def _one(tensors: Sequence[Any], what: str) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} {what}: give one")
    return tensors[0]


def _rank_list(tensors: Sequence[Any], size: int, what: str) -> list[Any]:
    if len(tensors) != size:
        raise ValueError(f"{len(tensors)} {what} for {size} ranks: give one for each rank")
    return list(tensors)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _numbered(calls: Callable[[tuple[Any, ...]], int] = lambda _: 1) -> Callable[[_Method], _Method]:
    """A method of `calls(arguments)` collectives, which take their numbers also if they are refused here.

    They fail at the other ranks then, which hear why. Otherwise later calls of the ranks would meet wrong ones.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(self: StrandwayBackend, *arguments: Any, **options: Any) -> Any:
            group = self._numbers()
            begun = group.begun()
            try:
                work = method(self, *arguments, **options)
                work._line = self._line
                return work
            except Exception as error:
                try:
                    due = calls(arguments)
                except Exception:
                    due = 1
                for _ in range(due - (group.begun() - begun)):
                    group.refuse(method.__name__, str(error))
                raise

        return cast(_Method, call)

    return decorate


def _timeout(options: Any) -> float | None:
    timeout = getattr(options, "timeout", None)
    if not isinstance(timeout, timedelta) or timeout.total_seconds() < 0:
        return None
    return timeout.total_seconds() or _NO_TIMEOUT


class StrandwayBackend(Backend):  # type: ignore[misc]
    """One rank's side of a group."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str = "",
        global_ranks: Sequence[int] = (),
        *,
        apart: bool = False,
        group: _lab.WireGroup | None = None,
    ) -> None:
        """Meets the other ranks at the store, with a node of its own if `apart`; or takes a `group` that has met."""
        super().__init__(rank, size)
        self._options = Backend.Options("strandway", timeout=timeout)
        self._options.group_name = name
        self._options.global_ranks_in_group = list(global_ranks)
        seconds = timeout.total_seconds()
        if group is None:
            towards = os.environ.get("MASTER_ADDR") or None
            group = _lab.WireGroup.meet(_Store(store), rank, size, towards, seconds, max(seconds, _PATIENCE), apart)
        self._group = group
        self._twin: _lab.WireGroup | None = None
        self._twin_lock = threading.Lock()
        self._aborted = False
        self._line = Line()
        self._barriers = 0
        self._splits = 0
        _close_at_exit()
        _ALIVE.add(self)

    def getBackendName(self) -> str:
        """`strandway`."""
        return "strandway"

    # Each of these must be defined: the inherited property asks C++, which asks the property.
    supports_coalescing = property(lambda self: False)
    supports_splitting = property(lambda self: True)
    supports_shrinking = property(lambda self: True)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    @property
    def options(self) -> Any:
        """The name, the timeout and the ranks of the group."""
        return self._options

    # Life.

    def abort(self) -> None:
        """Ends all operations of the group here, now; they fail."""
        with self._twin_lock:
            self._aborted = True
            if self._twin is not None:
                self._twin.abort()
        self._group.abort()

    def shutdown(self) -> None:
        """Leaves the group."""
        _ALIVE.discard(self)
        self.abort()

    def set_timeout(self, timeout: timedelta) -> None:
        """How long operations may take from now on."""
        self._options._timeout = timeout
        self._group.set_timeout(timeout.total_seconds())
        if self._twin is not None:
            self._twin.set_timeout(timeout.total_seconds())

    def _failure(self) -> tuple[bool, str] | None:
        return self._group.failure() or (self._twin.failure() if self._twin is not None else None)

    def get_error(self) -> ErrorType:
        """Has an operation of the group failed, and by its timeout?"""
        failure = self._failure()
        if failure is None:
            return ErrorType.SUCCESS
        return ErrorType.TIMEOUT if failure[0] else ErrorType.COMM_ERROR

    def errored(self) -> Exception | None:
        """The first failure of an operation, which names rank, host and plane."""
        failure = self._failure()
        return None if failure is None else WireError(failure[1])

    def split(self, store: Any, ranks: Sequence[int], options: Any) -> StrandwayBackend | None:
        """A group of some of these ranks, in that order; all of those call it."""
        ranks = list(ranks)
        if self.rank() not in ranks:
            return None
        parents = list(self._options.global_ranks_in_group) or list(range(self.size()))
        timeout = getattr(options, "_timeout", None) or self._options._timeout
        name = getattr(options, "group_name", "") or self._options.group_name
        return StrandwayBackend(store, ranks.index(self.rank()), len(ranks), timeout, name, [parents[rank] for rank in ranks])

    def shrink(self, excluded: Sequence[int], flags: int = 0, options: Any = None) -> StrandwayBackend:
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
        return StrandwayBackend(None, group.rank(), group.ranks(), timeout, name, left, group=group)

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Any memory of the CPU is as good as any other."""
        # C++ gives the number of a device, and cannot hand over options of a tensor afterwards: it allocates by itself.
        return not isinstance(device, int) and torch.device(device).type == "cpu"

    def allocate_tensor(self, size: Any, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
        """Memory for communication."""
        return torch.empty(size, dtype=dtype, device=device)

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin with the group."""

    def _get_sequence_number_for_group(self) -> int:
        return self._group.begun()

    # Collectives.

    def _reduction(self, options: Any, dtype: torch.dtype) -> tuple[str, str, float]:
        """The element, the reduction and the factor."""
        if dtype not in _ELEMENTS:
            raise TypeError(f"strandway does not reduce {dtype}: {', '.join(str(known) for known in _ELEMENTS)} are reduced")
        operation, factor = options.reduceOp, 1.0
        for name, reduction in _REDUCTIONS.items():
            if operation == getattr(ReduceOp, name):
                if name == "PREMUL_SUM":
                    factor = float(operation.__getstate__()[1])
                return _ELEMENTS[dtype], reduction, factor
        raise ValueError(f"strandway has no reduction {operation}")

    def _start(
        self,
        job: str,
        call: _Call,
        inputs: list[tuple[int, int, int]],
        outputs: list[tuple[int, int, int]],
        options: Any = None,
        root: int = 0,
        reduces: tuple[str, str, float] | None = None,
    ) -> _lab.Work:
        if root < 0:
            raise ValueError(f"root {root}: give a rank of the group, 0 to {self.size() - 1}")
        if share_memory(call.buffers):
            raise ValueError("two outputs share memory: give each rank's its own")
        kind = _alike(call.keep)
        element, reduction, factor = reduces or (kind, "sum", 1.0)
        group = self._numbers()
        work = group.start(job, call.buffers, inputs, outputs, element, reduction, factor, root, _timeout(options), call.keep)
        note(work)
        return work

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

    @_numbered()
    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Work:
        """Everybody gets the root's tensor."""
        call = _Call()
        part = call.write(_one(tensors, "tensors"))
        work = self._start("broadcast", call, [], [part], options, options.rootRank)
        return StrandwayWork([work], tensors, call.finish)

    @_numbered(lambda arguments: len(arguments[0]))
    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Work:
        """Everybody's tensor becomes the reduction."""
        if tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, options)
        return self._allreduce(tensors, options)

    def _allreduce(self, tensors: list[torch.Tensor], options: Any) -> Work:
        works, finish = [], []
        for tensor in tensors:
            call = _Call()
            part = call.write(tensor)
            reduces = self._reduction(options, tensor.dtype)
            works.append(self._start("all_reduce", call, [], [part], options, reduces=reduces))
            finish.extend(call.finish)
        return StrandwayWork(works, tensors, finish)

    @_numbered(lambda arguments: len(arguments[0]))
    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any) -> Work:
        """The same for several tensors."""
        return self._allreduce(tensors, options)

    def allreduce_sparse(self, tensors: list[torch.Tensor], options: Any) -> Work:
        """Sums tensors of which most numbers are zero; blocks."""
        if options.reduceOp != ReduceOp.SUM:
            raise ValueError("strandway sums sparse tensors, and has no other reduction for them")
        tensor = tensors[0].coalesce()
        indices, values = tensor.indices().contiguous(), tensor.values().contiguous()
        count = torch.tensor([values.shape[0]], dtype=torch.int64)
        counts = [torch.empty_like(count) for _ in range(self.size())]
        self._gather_all(counts, count, options).wait()
        all_indices = [torch.empty((indices.shape[0], int(n)), dtype=indices.dtype) for n in counts]
        all_values = [torch.empty((int(n), *values.shape[1:]), dtype=values.dtype) for n in counts]
        self._gather_all(all_indices, indices, options).wait()
        self._gather_all(all_values, values, options).wait()
        merged = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values), tensor.shape).coalesce()
        for tensor in tensors:
            tensor.copy_(merged)
        return StrandwayWork([], tensors, [])

    @_numbered()
    def reduce(self, tensors: list[torch.Tensor], options: Any) -> Work:
        """The root's tensor becomes the reduction."""
        call = _Call()
        tensor = _one(tensors, "tensors")
        part = call.write(tensor) if options.rootRank == self.rank() else call.read(tensor)
        reduces = self._reduction(options, tensors[0].dtype)
        work = self._start("reduce", call, [], [part], options, options.rootRank, reduces)
        return StrandwayWork([work], tensors, call.finish)

    def _gather_all(self, outputs: list[torch.Tensor], tensor: torch.Tensor, options: Any) -> StrandwayWork:
        call = _Call()
        parts = [call.write(output) for output in outputs]
        own = call.read(tensor.clone() if any(_overlap(tensor, output) for output in outputs) else tensor)
        return StrandwayWork([self._start("all_gather", call, [own], parts, options)], outputs, call.finish)

    @_numbered()
    def allgather(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> Work:
        """Everybody gets the tensors of all; their lengths may differ."""
        lists = _rank_list(_one(outputs, "lists of outputs"), self.size(), "outputs")
        return self._gather_all(lists, _one(tensors, "inputs"), options)

    @_numbered(lambda arguments: len(arguments[1]))
    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> Work:
        """The same for several tensors. Outputs are by rank or by tensor, as torch's generations have them."""
        if len(outputs) == self.size() and all(len(some) == len(tensors) for some in outputs):
            outputs = [list(column) for column in zip(*outputs, strict=True)]
        works = [self._gather_all(some, tensor, options) for some, tensor in zip(outputs, tensors, strict=True)]
        return _together(works)

    @_numbered()
    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, options: Any) -> Work:
        """Everybody gets the tensors of all, one behind the other."""
        _alike([output, tensor])
        call = _Call()
        whole = call.write(output)
        length = tensor.numel() * tensor.element_size()
        parts = _blocks(whole, [length] * self.size())
        inputs = []
        in_place = tensor.data_ptr() == output.data_ptr() + self.rank() * length and tensor.is_contiguous() and output.is_contiguous()
        if not in_place:
            inputs = [call.read(tensor.clone() if _overlap(tensor, output) else tensor)]
        return StrandwayWork([self._start("all_gather", call, inputs, parts, options)], [output], call.finish)

    @_numbered(lambda arguments: len(arguments[1]))
    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], options: Any) -> Work:
        """The same for several tensors."""
        pairs = zip(outputs, tensors, strict=True)
        return _together([self.all_gather_single(output, tensor, options) for output, tensor in pairs])

    def _scatter_sums(self, output: torch.Tensor, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        call = _Call()
        part = call.write(output)
        parts = [call.read(tensor.clone() if _overlap(tensor, output) else tensor) for tensor in tensors]
        reduces = self._reduction(options, output.dtype)
        work = self._start("reduce_scatter", call, parts, [part], options, reduces=reduces)
        return StrandwayWork([work], [output], call.finish)

    @_numbered(lambda arguments: len(arguments[0]))
    def reduce_scatter(self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], options: Any) -> Work:
        """Rank r gets the reduction of everybody's tensor r."""
        pairs = zip(outputs, tensors, strict=True)
        whole = [(output, _rank_list(some, self.size(), "inputs")) for output, some in pairs]
        return _together([self._scatter_sums(output, some, options) for output, some in whole])

    @_numbered()
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, options: Any) -> Work:
        """The same, from one tensor of blocks."""
        call = _Call()
        part = call.write(output)
        whole = call.read(tensor.clone() if _overlap(tensor, output) else tensor)
        parts = _blocks(whole, [output.numel() * output.element_size()] * self.size())
        reduces = self._reduction(options, output.dtype)
        work = self._start("reduce_scatter", call, parts, [part], options, reduces=reduces)
        return StrandwayWork([work], [output], call.finish)

    @_numbered(lambda arguments: len(arguments[1]))
    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], options: Any) -> Work:
        """The same for several tensors."""
        pairs = zip(outputs, tensors, strict=True)
        return _together([self.reduce_scatter_single(output, tensor, options) for output, tensor in pairs])

    @_numbered()
    def alltoall(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], options: Any) -> Work:
        """Rank r gets everybody's tensor r."""
        call = _Call()
        parts = [call.write(output) for output in _rank_list(outputs, self.size(), "outputs")]
        some = _rank_list(tensors, self.size(), "inputs")
        inputs = [call.read(tensor.clone() if any(_overlap(tensor, output) for output in outputs) else tensor) for tensor in some]
        return StrandwayWork([self._start("all_to_all", call, inputs, parts, options)], outputs, call.finish)

    @_numbered()
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        options: Any,
    ) -> Work:
        """The same, from and into one tensor, cut along its first dimension."""
        call = _Call()

        def sizes(of: torch.Tensor, given: Sequence[int], which: str) -> list[int]:
            if not of.dim():
                raise ValueError(f"the {which} is one number without a dimension: the ranks share the first dimension")
            length, rows = of.numel() * of.element_size(), of.shape[0]
            if not given:
                if rows % self.size():
                    raise ValueError(f"the {which} has {rows} rows, which {self.size()} ranks cannot share equally: give split sizes")
                return [length // self.size()] * self.size()
            counts = _rank_list(given, self.size(), f"{which} split sizes")
            if min(counts) < 0 or sum(counts) != rows:
                raise ValueError(
                    f"the {which} has {rows} rows, and its split sizes are {counts}: they are 0 or more, and their sum is the rows"
                )
            return [count * (length // rows if rows else 0) for count in counts]

        rows = (output.shape[1:], tensor.shape[1:])
        if rows[0].numel() != rows[1].numel():
            raise ValueError(
                f"rows of the output have the shape {list(rows[0])}, and those of the input {list(rows[1])}: give both the same"
            )
        whole, source = call.write(output), call.read(tensor.clone() if _overlap(tensor, output) else tensor)
        outputs = _blocks(whole, sizes(output, output_sizes, "output"))
        inputs = _blocks(source, sizes(tensor, input_sizes, "input"))
        return StrandwayWork([self._start("all_to_all", call, inputs, outputs, options)], [output], call.finish)

    @_numbered()
    def gather(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> Work:
        """The root gets the tensors of all."""
        call = _Call()
        some = _rank_list(_one(outputs, "lists of outputs"), self.size(), "outputs") if options.rootRank == self.rank() else []
        tensor = _one(tensors, "inputs")
        own = call.read(tensor.clone() if any(_overlap(tensor, output) for output in some) else tensor)
        parts = [call.write(output) for output in some]
        return StrandwayWork([self._start("gather", call, [own], parts, options, options.rootRank)], some, call.finish)

    @_numbered()
    def scatter(self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], options: Any) -> Work:
        """Rank r gets the root's tensor r."""
        call = _Call()
        output = _one(outputs, "outputs")
        part = call.write(output)
        parts = []
        if options.rootRank == self.rank():
            some = _rank_list(_one(tensors, "lists of inputs"), self.size(), "inputs")
            parts = [call.read(tensor.clone() if _overlap(tensor, output) else tensor) for tensor in some]
        return StrandwayWork([self._start("scatter", call, parts, [part], options, options.rootRank)], outputs, call.finish)

    @_numbered()
    def barrier(self, options: Any) -> Work:
        """Ends when all ranks have called it."""
        return StrandwayWork([self._start("barrier", _Call(), [], [], options)], [], [])

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        """Sends a tensor to a receive with the same tag."""
        call = _Call()
        call.read(_one(tensors, "tensors"))
        return StrandwayWork([self._group.send(call.buffers[0], to, _tag(tag), None, call.keep)], tensors, [])

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        """Receives a tensor from a rank."""
        call = _Call()
        call.write(_one(tensors, "tensors"))
        return StrandwayWork([self._group.recv(call.buffers[0], source, _tag(tag), None, call.keep)], tensors, call.finish)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """Receives a tensor from any rank."""
        call = _Call()
        call.write(_one(tensors, "tensors"))
        return StrandwayWork([self._group.recv(call.buffers[0], None, _tag(tag), None, call.keep)], tensors, call.finish)

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """A barrier of which rank 0 says who has not come."""
        given = _timeout(options)
        if getattr(options, "timeout", None) == timedelta(0):
            given = 0.0
        seconds = self._options._timeout.total_seconds() if given is None else given
        self._barriers += 1
        tag = _MONITOR | (self._barriers & 0xFFFFFF)
        word = torch.zeros(1, dtype=torch.uint8)
        part = (word.data_ptr(), 1, True)
        if self.rank() != 0:
            try:
                self._group.send(part, 0, tag, seconds, word).wait(None)
                self._group.recv(part, 0, tag, seconds, word).wait(None)
            except WireError as error:
                raise WireError(
                    f"Rank {self.rank()} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
                    f"rank 0: {error}",
                    error.kind,
                    0,
                ) from error
            return
        until = time.monotonic() + seconds
        if seconds <= 0:
            raise WireTimeout(f"Rank 0 timed out in monitoredBarrier after {seconds:.1f} s", "timeout", 0)
        missing: list[int] = []
        for rank in range(1, self.size()):
            try:
                # Ranks that have arrived count even if another one took all the time.
                self._group.recv(part, rank, tag, max(until - time.monotonic(), 0.01), word).wait(None)
            except WireError as error:
                missing.append(rank)
                if not wait_all_ranks:
                    raise WireError(
                        f"[Rank 0]: Rank {rank} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms: {error}", error.kind, rank
                    ) from error
        if missing:
            names = ", ".join(map(str, missing))
            which = f"Ranks {names}" if len(missing) > 1 else f"Rank {names}"
            raise WireError(f"[Rank 0]: {which} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms", "timeout", missing[0])
        for rank in range(1, self.size()):
            self._group.send(part, rank, tag, seconds, word).wait(None)

    # Names of torch's earlier generations.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _together(works: list[Any]) -> StrandwayWork:
    """Several works as one."""
    return StrandwayWork(
        [inner for work in works for inner in work._works],
        [tensor for work in works for tensor in work._result],
        [work._finished for work in works],
    )


def create(options: Any, backend_options: Any) -> StrandwayBackend:
    """The backend of a new group, as `torch.distributed` asks for it."""
    ranks = list(options.global_ranks_in_group or [])
    name = options.group_id or ""
    return StrandwayBackend(options.store, options.group_rank, options.group_size, options.timeout, name, ranks)


def receive_from_any(tensor: torch.Tensor, group: Any, tag: int) -> int | None:
    """Receives a tensor from any rank of a group of this backend; gives the sender's global rank, or None for other groups."""
    from torch.distributed import distributed_c10d

    whole = group or distributed_c10d._get_default_group()
    mine = [backend for backend in _ALIVE if backend._options.group_name == getattr(whole, "group_name", None)]
    if len(mine) != 1 or tensor.device.type != "cpu":
        return None
    work = mine[0].recv_anysource([tensor], tag)
    work.wait()
    return int(distributed_c10d.get_global_rank(whole, work.source_rank())) if group is not None else work.source_rank()
