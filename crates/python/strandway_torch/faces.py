"""How torch holds a group: as a `Backend` where that can be made from Python, else as a `ProcessGroup` of its own."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from strandway import _lab

from .compat import MAKES_BACKENDS, Backend, ProcessGroup, device_types, keeps_works, options_type, sentence
from .operations import Operations
from .work import StrandwayWork, hold

__all__ = ["AsBackend", "AsGroup", "StrandwayBackend"]


class AsBackend(Operations, Backend):  # type: ignore[misc]
    """One rank's side of a group: a backend for some kinds of devices, beside those of others."""

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
        try:
            Backend.__init__(self, rank, size)
            self._options = Backend.Options("strandway", timeout=timeout)
            self._options.group_name = name
            self._options.global_ranks_in_group = list(global_ranks)
        except (AttributeError, TypeError) as error:
            raise RuntimeError(sentence(str(error))) from error
        self._another = AsBackend
        self._meet(store, rank, size, timeout, apart, group)

    # Each of these must be defined: the inherited property asks C++, which asks the property.
    supports_coalescing = property(lambda self: False)
    supports_splitting = property(lambda self: True)
    supports_shrinking = property(lambda self: True)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def eager_connect_single_device(self, device: Any) -> None:
        """The ranks have met already, whatever device is bound to the group."""

    def perform_nocolor_split(self, device: Any) -> None:
        """Ranks outside a new group have nothing to do for it."""


# Arguments beside tensors that a caller may give instead of options, in this order.
_BESIDE = {
    "broadcast": ("BroadcastOptions", ("rootRank", "timeout")),
    "allreduce": ("AllreduceOptions", ("reduceOp", "timeout")),
    "allreduce_coalesced": ("AllreduceCoalescedOptions", ("reduceOp", "timeout")),
    "reduce": ("ReduceOptions", ("rootRank", "reduceOp", "timeout")),
    "allgather": ("AllgatherOptions", ("timeout",)),
    "_allgather_base": ("AllgatherOptions", ("timeout",)),
    "all_gather_single": ("AllgatherOptions", ("timeout",)),
    "allgather_coalesced": ("AllgatherOptions", ("timeout",)),
    "allgather_into_tensor_coalesced": ("AllgatherOptions", ("timeout",)),
    "all_gather_single_coalesced": ("AllgatherOptions", ("timeout",)),
    "gather": ("GatherOptions", ("rootRank", "timeout")),
    "scatter": ("ScatterOptions", ("rootRank", "timeout")),
    "reduce_scatter": ("ReduceScatterOptions", ("reduceOp", "timeout")),
    "_reduce_scatter_base": ("ReduceScatterOptions", ("reduceOp", "timeout")),
    "reduce_scatter_single": ("ReduceScatterOptions", ("reduceOp", "timeout")),
    "reduce_scatter_tensor_coalesced": ("ReduceScatterOptions", ("reduceOp", "timeout")),
    "reduce_scatter_single_coalesced": ("ReduceScatterOptions", ("reduceOp", "timeout")),
    "alltoall_base": ("AllToAllOptions", ("timeout",)),
    "all_to_all_single": ("AllToAllOptions", ("timeout",)),
    "alltoall": ("AllToAllOptions", ("timeout",)),
    "barrier": ("BarrierOptions", ("timeout",)),
}
_KEYWORDS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}
# Arguments before those.
_TENSORS = {"broadcast": 1, "allreduce": 1, "allreduce_coalesced": 1, "reduce": 1, "barrier": 0, "alltoall_base": 4, "all_to_all_single": 4}
# Of these a caller may give what one tensor needs, without a list around it.
_LISTS = {"broadcast", "allreduce", "reduce", "allgather", "gather", "scatter", "reduce_scatter"}


def _called_by_python(name: str) -> Callable[..., StrandwayWork]:
    """An operation with the arguments that Python gives to a `ProcessGroup`; torch's own C++ half reads these for other groups."""
    operation, (kind, beside), count = getattr(Operations, name), _BESIDE[name], _TENSORS.get(name, 2)

    def call(self: AsGroup, *arguments: Any, opts: Any = None, **named: Any) -> StrandwayWork:
        tensors, others = arguments[:count], arguments[count:]
        options = options_type(kind)()
        if others and isinstance(others[0], type(options)):
            opts, others = others[0], others[1:]
        if opts is None:
            opts = options
            given = dict(zip(beside, others, strict=False)) | {_KEYWORDS[key]: value for key, value in named.items()}
            for attribute, value in given.items():
                setattr(opts, attribute, value)
        if name in _LISTS and any(isinstance(tensor, torch.Tensor) for tensor in tensors):
            tensors = tuple([tensor] for tensor in tensors)
        work: StrandwayWork = operation(self, *tensors, opts)
        return work

    call.__name__, call.__doc__ = name, operation.__doc__
    return call


class AsGroup(Operations, ProcessGroup):  # type: ignore[misc]
    """One rank's side of a group: the whole group, for tensors of all kinds of devices."""

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
        try:
            ProcessGroup.__init__(self, rank, size)
        except TypeError as error:
            raise RuntimeError(sentence(str(error))) from error
        self._options = types.SimpleNamespace(
            backend="strandway", _timeout=timeout, group_name=name, group_desc="undefined", global_ranks_in_group=list(global_ranks)
        )
        self._store, self._another = store, AsGroup
        self._meet(store, rank, size, timeout, apart, group)

    # torch asks these of a backend, and there is no other one.
    supports_coalescing = property(lambda self: False)
    # Both hand a `Backend` to torch.
    supports_splitting = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_time_estimate = property(lambda self: False)
    _device_types = property(lambda self: [torch.device(kind) for kind in device_types()])

    def _get_backend(self, device: Any) -> Any:
        kind = torch.device(device).type
        if kind not in device_types():
            raise RuntimeError(
                f"No backend type associated with device type {kind}: strandway moves tensors of {' and '.join(device_types())}"
            )
        return self

    def _hand_over(self, work: StrandwayWork) -> None:
        if not keeps_works():
            hold(work)

    # C++ asks a backend for the name; the properties are for Python, the others for C++.

    def _set_group_name(self, name: str) -> None:
        self._options.group_name = name

    def _set_group_desc(self, text: str) -> None:
        self._options.group_desc = text

    def getGroupName(self) -> str:
        """The name that torch has given to the group."""
        return str(self._options.group_name)

    def getGroupDesc(self) -> str:
        """The description of the group."""
        return str(self._options.group_desc)

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self) -> Any:
        """The store at which the ranks have met."""
        return self._store

    def _has_hooks(self) -> bool:
        return False

    def _wait_for_pending_works(self) -> None:
        """For hooks."""

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier of which rank 0 says who has not come."""
        super().monitored_barrier(types.SimpleNamespace(timeout=timeout), wait_all_ranks)

    def _start_coalescing(self, device: Any) -> None:
        """Operations of several tensors come as one call, or as several."""

    def _end_coalescing(self, device: Any) -> StrandwayWork:
        return StrandwayWork([], [], [])


for _name in _BESIDE:
    setattr(AsGroup, _name, _called_by_python(_name))

# What `torch.distributed` gets here.
StrandwayBackend: type[AsBackend] | type[AsGroup] = AsBackend if MAKES_BACKENDS else AsGroup
