"""The operations of a group, as torch calls them: collectives, sends and receives, barriers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from strandway import _lab
from strandway.errors import WireError, WireTimeout
from strandway.wire import share_memory

from .compat import ReduceOp
from .devices import Device, device_named, device_of
from .futures import note
from .group import Side
from .memory import ELEMENTS, Call, alike, blocks, check_tag, one, overlap, rank_list
from .staging import DeferredWork, Part, StagedCall
from .work import StrandwayWork, together

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
# Tags above those that programs may use.
_MONITOR = 1 << 31
_NO_TIMEOUT = 7 * 24 * 3600.0

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _numbered(calls: Callable[[tuple[Any, ...]], int] = lambda _: 1) -> Callable[[_Method], _Method]:
    """A method of `calls(arguments)` collectives, which take their numbers also if they are refused here.

    They fail at the other ranks then, which hear why. Otherwise later calls of the ranks would meet wrong ones.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(self: Operations, *arguments: Any, **options: Any) -> Any:
            begun = self._begun()
            try:
                work = method(self, *arguments, **options)
                work._line = self._line
                self._hand_over(work)
                return work
            except Exception as error:
                try:
                    due = calls(arguments)
                except Exception:
                    due = 1
                for _ in range(due - (self._begun() - begun)):
                    self._refuse(method.__name__, str(error))
                raise

        return cast(_Method, call)

    return decorate


def _timeout(options: Any) -> float | None:
    timeout = getattr(options, "timeout", None)
    if not isinstance(timeout, timedelta) or timeout.total_seconds() < 0:
        return None
    return timeout.total_seconds() or _NO_TIMEOUT


def _flows(job: str, inputs: list[Part], outputs: list[Part], rank: int, root: int) -> tuple[list[Part], list[Part]]:
    """The parts that the wire reads, and the parts that it writes."""
    if job == "broadcast":
        return (outputs, []) if rank == root else ([], outputs)
    if job in ("all_reduce", "reduce"):
        return outputs, outputs if job == "all_reduce" or rank == root else []
    # Without inputs it is in place: our part of the result is there.
    return [outputs[rank]] if job == "all_gather" and not inputs else inputs, outputs


class Operations(Side):
    """All operations. Their names are those of torch's `Backend` and `ProcessGroup`, of all versions."""

    def _hand_over(self, work: StrandwayWork) -> None:
        """A work goes to torch."""

    def _reduction(self, options: Any, dtype: torch.dtype) -> tuple[str, str, float]:
        """The element, the reduction and the factor."""
        if dtype not in ELEMENTS:
            raise TypeError(f"strandway does not reduce {dtype}: {', '.join(str(known) for known in ELEMENTS)} are reduced")
        operation, factor = options.reduceOp, 1.0
        for name, reduction in _REDUCTIONS.items():
            if operation == getattr(ReduceOp, name):
                if name == "PREMUL_SUM":
                    factor = float(operation.__getstate__()[1])
                return ELEMENTS[dtype], reduction, factor
        raise ValueError(f"strandway has no reduction {operation}")

    def _start(
        self,
        job: str,
        call: Call,
        inputs: list[tuple[int, int, int]],
        outputs: list[tuple[int, int, int]],
        options: Any = None,
        root: int = 0,
        reduces: tuple[str, str, float] | None = None,
    ) -> _lab.Work | DeferredWork:
        if root < 0:
            raise ValueError(f"root {root}: give a rank of the group, 0 to {self.size() - 1}")
        if share_memory(call.buffers):
            raise ValueError("two outputs share memory: give each rank's its own")
        kind = alike(call.keep)
        element, reduction, factor = reduces or (kind, "sum", 1.0)
        device = device_of(call.keep) if job != "barrier" else device_named(getattr(options, "device", None))

        def start(group: _lab.WireGroup, buffers: Any, ins: Any, outs: Any, timeout: float | None, owner: object) -> _lab.Work:
            return group.start(job, buffers, ins, outs, element, reduction, factor, root, timeout, owner)

        queue = self._queue(device is not None)
        if queue is None:
            work: _lab.Work | DeferredWork = start(self._numbers(), call.buffers, inputs, outputs, _timeout(options), call.keep)
        else:
            reads, writes = _flows(job, inputs, outputs, self.rank(), root)
            work = queue.put(StagedCall(job, start, self._deferred(device, options), call, inputs, outputs, reads, writes))
        note(work)
        return work

    def _deferred(self, device: Device | None, options: Any) -> DeferredWork:
        timeout = _timeout(options)
        return DeferredWork(device, time.monotonic() + (self._options._timeout.total_seconds() if timeout is None else timeout))

    def _refuse(self, what: str, why: str) -> None:
        """Gives a number to a call that was refused here. It fails at the other ranks, which hear why."""
        queue = self._queue(False)
        if queue is None:
            self._numbers().refuse(what, why)
        else:
            queue.put(StagedCall(what, lambda group, *_: group.refuse(what, why), self._deferred(None, None), Call(), [], []))

    def _message(self, tensor: torch.Tensor, writes: bool, start: Any) -> StrandwayWork:
        """Sends or receives a tensor."""
        call = Call()
        part = call.write(tensor) if writes else call.read(tensor)
        device = device_of(call.keep)
        queue = self._queue(device is not None, messages=True)
        if queue is None:
            work: Any = start(self._group, call.buffers[0], None, call.keep)
        else:

            def begin(group: Any, buffers: Any, ins: Any, outs: Any, timeout: float, owner: object) -> Any:
                (_, begin, end), address = (ins + outs)[0], buffers[0][0] if buffers else 0
                return start(group, (address + begin, end - begin, writes), timeout, owner)

            inputs, outputs = ([], [part]) if writes else ([part], [])
            name = "recv" if writes else "send"
            work = queue.put(StagedCall(name, begin, self._deferred(device, None), call, inputs, outputs, inputs, outputs))
        return StrandwayWork([work], [tensor], call.finish)

    @_numbered()
    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """Everybody gets the root's tensor."""
        call = Call()
        part = call.write(one(tensors, "tensors"))
        work = self._start("broadcast", call, [], [part], options, options.rootRank)
        return StrandwayWork([work], tensors, call.finish)

    @_numbered(lambda arguments: len(arguments[0]))
    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """Everybody's tensor becomes the reduction."""
        if tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, options)
        return self._allreduce(tensors, options)

    def _allreduce(self, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        works: list[_lab.Work | DeferredWork] = []
        finish = []
        for tensor in tensors:
            call = Call()
            part = call.write(tensor)
            reduces = self._reduction(options, tensor.dtype)
            works.append(self._start("all_reduce", call, [], [part], options, reduces=reduces))
            finish.extend(call.finish)
        return StrandwayWork(works, tensors, finish)

    @_numbered(lambda arguments: len(arguments[0]))
    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """The same for several tensors."""
        return self._allreduce(tensors, options)

    def allreduce_sparse(self, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """Sums tensors of which most numbers are zero; blocks."""
        if options.reduceOp != ReduceOp.SUM:
            raise ValueError("strandway sums sparse tensors, and has no other reduction for them")
        tensor = tensors[0].coalesce()
        indices, values = tensor.indices().contiguous(), tensor.values().contiguous()
        count = torch.tensor([values.shape[0]], dtype=torch.int64)
        counts = [torch.empty_like(count) for _ in range(self.size())]
        self._gather_all(counts, count, options).wait()
        all_indices = [indices.new_empty((indices.shape[0], int(n))) for n in counts]
        all_values = [values.new_empty((int(n), *values.shape[1:])) for n in counts]
        self._gather_all(all_indices, indices, options).wait()
        self._gather_all(all_values, values, options).wait()
        merged = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values), tensor.shape).coalesce()
        for tensor in tensors:
            tensor.copy_(merged)
        return StrandwayWork([], tensors, [])

    @_numbered()
    def reduce(self, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """The root's tensor becomes the reduction."""
        call = Call()
        tensor = one(tensors, "tensors")
        part = call.write(tensor) if options.rootRank == self.rank() else call.read(tensor)
        reduces = self._reduction(options, tensors[0].dtype)
        work = self._start("reduce", call, [], [part], options, options.rootRank, reduces)
        return StrandwayWork([work], tensors, call.finish)

    def _gather_all(self, outputs: list[torch.Tensor], tensor: torch.Tensor, options: Any) -> StrandwayWork:
        call = Call()
        parts = [call.write(output) for output in outputs]
        own = call.read(tensor.clone() if any(overlap(tensor, output) for output in outputs) else tensor)
        return StrandwayWork([self._start("all_gather", call, [own], parts, options)], outputs, call.finish)

    @_numbered()
    def allgather(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """Everybody gets the tensors of all; their lengths may differ."""
        lists = rank_list(one(outputs, "lists of outputs"), self.size(), "outputs")
        return self._gather_all(lists, one(tensors, "inputs"), options)

    @_numbered(lambda arguments: len(arguments[1]))
    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """The same for several tensors. Outputs are by rank or by tensor, as torch's generations have them."""
        if len(outputs) == self.size() and all(len(some) == len(tensors) for some in outputs):
            outputs = [list(column) for column in zip(*outputs, strict=True)]
        works = [self._gather_all(some, tensor, options) for some, tensor in zip(outputs, tensors, strict=True)]
        return together(works)

    @_numbered()
    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, options: Any) -> StrandwayWork:
        """Everybody gets the tensors of all, one behind the other."""
        alike([output, tensor])
        call = Call()
        whole = call.write(output)
        length = tensor.numel() * tensor.element_size()
        parts = blocks(whole, [length] * self.size())
        inputs = []
        in_place = tensor.data_ptr() == output.data_ptr() + self.rank() * length and tensor.is_contiguous() and output.is_contiguous()
        if not in_place:
            inputs = [call.read(tensor.clone() if overlap(tensor, output) else tensor)]
        return StrandwayWork([self._start("all_gather", call, inputs, parts, options)], [output], call.finish)

    @_numbered(lambda arguments: len(arguments[1]))
    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """The same for several tensors."""
        pairs = zip(outputs, tensors, strict=True)
        return together([self.all_gather_single(output, tensor, options) for output, tensor in pairs])

    def _scatter_sums(self, output: torch.Tensor, tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        call = Call()
        part = call.write(output)
        parts = [call.read(tensor.clone() if overlap(tensor, output) else tensor) for tensor in tensors]
        reduces = self._reduction(options, output.dtype)
        work = self._start("reduce_scatter", call, parts, [part], options, reduces=reduces)
        return StrandwayWork([work], [output], call.finish)

    @_numbered(lambda arguments: len(arguments[0]))
    def reduce_scatter(self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], options: Any) -> StrandwayWork:
        """Rank r gets the reduction of everybody's tensor r."""
        pairs = zip(outputs, tensors, strict=True)
        whole = [(output, rank_list(some, self.size(), "inputs")) for output, some in pairs]
        return together([self._scatter_sums(output, some, options) for output, some in whole])

    @_numbered()
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, options: Any) -> StrandwayWork:
        """The same, from one tensor of blocks."""
        call = Call()
        part = call.write(output)
        whole = call.read(tensor.clone() if overlap(tensor, output) else tensor)
        parts = blocks(whole, [output.numel() * output.element_size()] * self.size())
        reduces = self._reduction(options, output.dtype)
        work = self._start("reduce_scatter", call, parts, [part], options, reduces=reduces)
        return StrandwayWork([work], [output], call.finish)

    @_numbered(lambda arguments: len(arguments[1]))
    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """The same for several tensors."""
        pairs = zip(outputs, tensors, strict=True)
        return together([self.reduce_scatter_single(output, tensor, options) for output, tensor in pairs])

    @_numbered()
    def alltoall(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """Rank r gets everybody's tensor r."""
        call = Call()
        parts = [call.write(output) for output in rank_list(outputs, self.size(), "outputs")]
        some = rank_list(tensors, self.size(), "inputs")
        inputs = [call.read(tensor.clone() if any(overlap(tensor, output) for output in outputs) else tensor) for tensor in some]
        return StrandwayWork([self._start("all_to_all", call, inputs, parts, options)], outputs, call.finish)

    @_numbered()
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        options: Any,
    ) -> StrandwayWork:
        """The same, from and into one tensor, cut along its first dimension."""
        call = Call()

        def sizes(of: torch.Tensor, given: Sequence[int], which: str) -> list[int]:
            if not of.dim():
                raise ValueError(f"the {which} is one number without a dimension: the ranks share the first dimension")
            length, rows = of.numel() * of.element_size(), of.shape[0]
            if not given:
                if rows % self.size():
                    raise ValueError(f"the {which} has {rows} rows, which {self.size()} ranks cannot share equally: give split sizes")
                return [length // self.size()] * self.size()
            counts = rank_list(given, self.size(), f"{which} split sizes")
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
        whole, source = call.write(output), call.read(tensor.clone() if overlap(tensor, output) else tensor)
        outputs = blocks(whole, sizes(output, output_sizes, "output"))
        inputs = blocks(source, sizes(tensor, input_sizes, "input"))
        return StrandwayWork([self._start("all_to_all", call, inputs, outputs, options)], [output], call.finish)

    @_numbered()
    def gather(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any) -> StrandwayWork:
        """The root gets the tensors of all."""
        call = Call()
        some = rank_list(one(outputs, "lists of outputs"), self.size(), "outputs") if options.rootRank == self.rank() else []
        tensor = one(tensors, "inputs")
        own = call.read(tensor.clone() if any(overlap(tensor, output) for output in some) else tensor)
        parts = [call.write(output) for output in some]
        return StrandwayWork([self._start("gather", call, [own], parts, options, options.rootRank)], some, call.finish)

    @_numbered()
    def scatter(self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], options: Any) -> StrandwayWork:
        """Rank r gets the root's tensor r."""
        call = Call()
        output = one(outputs, "outputs")
        part = call.write(output)
        parts = []
        if options.rootRank == self.rank():
            some = rank_list(one(tensors, "lists of inputs"), self.size(), "inputs")
            parts = [call.read(tensor.clone() if overlap(tensor, output) else tensor) for tensor in some]
        return StrandwayWork([self._start("scatter", call, parts, [part], options, options.rootRank)], outputs, call.finish)

    @_numbered()
    def barrier(self, options: Any) -> StrandwayWork:
        """Ends when all ranks have called it."""
        return StrandwayWork([self._start("barrier", Call(), [], [], options)], [], [])

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> StrandwayWork:
        """Sends a tensor to a receive with the same tag."""
        check_tag(tag)
        return self._message(one(tensors, "tensors"), False, lambda group, buffer, *rest: group.send(buffer, to, tag, *rest))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> StrandwayWork:
        """Receives a tensor from a rank."""
        check_tag(tag)
        return self._message(one(tensors, "tensors"), True, lambda group, buffer, *rest: group.recv(buffer, source, tag, *rest))

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> StrandwayWork:
        """Receives a tensor from any rank."""
        check_tag(tag)
        return self._message(one(tensors, "tensors"), True, lambda group, buffer, *rest: group.recv(buffer, None, tag, *rest))

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
