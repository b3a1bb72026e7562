"""The backend `strandway` of torchcomms: `torchcomms.new_comm("strandway", torch.device("cpu"), name="world")`.

torchcomms finds it by the entry point `torchcomms.backends`, and gets a class here that has the methods of its Python backends. Ranks meet
at the store of the options, or at `MASTER_ADDR` and `MASTER_PORT`. Tensors are those that the package's process groups move.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torchcomms
from torch.distributed import PrefixStore, TCPStore
from torchcomms._comms import TorchCommBackend

from .compat import ReduceOp, device_types
from .faces import StrandwayBackend
from .work import StrandwayWork

__all__ = ["StrandwayComm"]

# Names of the rank and of the number of ranks, the first that is set: torchcomms' own, those of MPI and Slurm, torchrun's.
_RANKS = ("TORCHCOMM_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID", "SLURM_PROCID", "RANK")
_SIZES = ("TORCHCOMM_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE")
_TIMEOUT = timedelta(seconds=600)


def _number(names: Sequence[str]) -> int:
    for name in names:
        if value := os.environ.get(name):
            return int(value)
    raise RuntimeError(f"strandway does not know its place among the ranks: set {names[0]} or {names[-1]}, as torchrun does")


def _reduction(op: Any) -> Any:
    """The reduction of torch that one of torchcomms stands for."""
    name = getattr(op.type, "name", str(op.type))
    if name == "PREMUL_SUM":
        return torch.distributed._make_nccl_premul_sum(op.factor)
    return getattr(ReduceOp, name)


class StrandwayComm(TorchCommBackend):  # type: ignore[misc]
    """One rank's side of a communicator. Calls with `async_op` give a work; others wait."""

    def __init__(self) -> None:
        """Meets nobody before `init`."""
        super().__init__()
        self._side: Any = None
        self._store: Any = None
        self._name = ""
        # All ranks call `split` equally often.
        self._splits = 0

    def init(self, device: torch.device, name: str, options: Any) -> None:
        """Meets the other ranks."""
        if self._side is not None:
            raise RuntimeError(f"the communicator {self._name} has been made already")
        if device.type not in device_types():
            raise RuntimeError(f"strandway moves tensors of {' and '.join(device_types())}, not of {device}")
        rank, size, timeout = _number(_RANKS), _number(_SIZES), getattr(options, "timeout", None) or _TIMEOUT
        store = getattr(options, "store", None)
        if store is None:
            place = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
            if not all(place):
                raise RuntimeError("the ranks have no place to meet: set MASTER_ADDR and MASTER_PORT, or give options a store")
            store = TCPStore(str(place[0]), int(str(place[1])), is_master=rank == 0, wait_for_workers=False, timeout=timeout)
        self._meet(device, name, store, rank, size, timeout)

    def _meet(self, device: torch.device, name: str, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self._device, self._name, self._store, self._timeout = device, name, store, timeout
        self._side = StrandwayBackend(PrefixStore(f"torchcomms/{name}", store), rank, size, timeout, name)

    def finalize(self) -> None:
        """Leaves the communicator."""
        side, self._side = self._side, None
        if side is not None:
            side.shutdown()

    def abort(self) -> None:
        """Ends all operations here, now; they fail."""
        self._there().abort()

    def _there(self) -> Any:
        if self._side is None:
            raise RuntimeError(f"the communicator {self._name!r} has not been made, or has ended")
        return self._side

    def get_rank(self) -> int:
        """The rank of this process."""
        return int(self._there().rank())

    def get_size(self) -> int:
        """The number of ranks."""
        return int(self._there().size())

    def get_backend_name(self) -> str:
        """`strandway`."""
        return "strandway"

    def get_comm_name(self) -> str:
        """The name that the program gave."""
        return self._name

    def get_device(self) -> torch.device:
        """The device of the tensors."""
        return self._device

    def _options(self, op: Any = None, root: int = 0) -> Any:
        return SimpleNamespace(timeout=None, rootRank=root, reduceOp=None if op is None else _reduction(op))

    def _finish(self, work: StrandwayWork, async_op: bool) -> StrandwayWork | None:
        if async_op:
            return work
        work.wait()
        return None

    def send(self, tensor: torch.Tensor, dst: int, async_op: bool) -> StrandwayWork | None:
        """Sends a tensor to a rank."""
        return self._finish(self._there().send([tensor], dst, 0), async_op)

    def recv(self, tensor: torch.Tensor, src: int, async_op: bool) -> StrandwayWork | None:
        """Receives a tensor from a rank."""
        return self._finish(self._there().recv([tensor], src, 0), async_op)

    def broadcast(self, tensor: torch.Tensor, root: int, async_op: bool) -> StrandwayWork | None:
        """Everybody gets the root's tensor."""
        return self._finish(self._there().broadcast([tensor], self._options(root=root)), async_op)

    def all_reduce(self, tensor: torch.Tensor, op: Any, async_op: bool) -> StrandwayWork | None:
        """Everybody's tensor becomes the reduction."""
        return self._finish(self._there().allreduce([tensor], self._options(op)), async_op)

    def reduce(self, tensor: torch.Tensor, root: int, op: Any, async_op: bool) -> StrandwayWork | None:
        """The root's tensor becomes the reduction."""
        return self._finish(self._there().reduce([tensor], self._options(op, root)), async_op)

    def all_gather(self, tensor_list: list[torch.Tensor], tensor: torch.Tensor, async_op: bool) -> StrandwayWork | None:
        """Everybody gets the tensors of all; their lengths may differ."""
        return self._finish(self._there().allgather([tensor_list], [tensor], self._options()), async_op)

    all_gather_v = all_gather

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, async_op: bool) -> StrandwayWork | None:
        """Everybody gets the tensors of all, one behind the other."""
        return self._finish(self._there().all_gather_single(output, input, self._options()), async_op)

    def reduce_scatter(self, output: torch.Tensor, input_list: list[torch.Tensor], op: Any, async_op: bool) -> StrandwayWork | None:
        """Rank r gets the reduction of everybody's tensor r."""
        return self._finish(self._there().reduce_scatter([output], [input_list], self._options(op)), async_op)

    reduce_scatter_v = reduce_scatter

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, op: Any, async_op: bool) -> StrandwayWork | None:
        """The same, from one tensor of blocks."""
        return self._finish(self._there().reduce_scatter_single(output, input, self._options(op)), async_op)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, async_op: bool) -> StrandwayWork | None:
        """Rank r gets block r of everybody's tensor."""
        return self.all_to_all_v_single(output, input, [], [], async_op)

    def all_to_all_v_single(
        self, output: torch.Tensor, input: torch.Tensor, output_splits: list[int], input_splits: list[int], async_op: bool
    ) -> StrandwayWork | None:
        """The same with blocks of different lengths, in rows of the first dimension."""
        return self._finish(self._there().all_to_all_single(output, input, output_splits, input_splits, self._options()), async_op)

    def all_to_all(self, output_list: list[torch.Tensor], input_list: list[torch.Tensor], async_op: bool) -> StrandwayWork | None:
        """Rank r gets everybody's tensor r."""
        return self._finish(self._there().alltoall(output_list, input_list, self._options()), async_op)

    def barrier(self, async_op: bool) -> StrandwayWork | None:
        """Ends when all ranks have called it."""
        return self._finish(self._there().barrier(self._options()), async_op)

    def scatter(self, output: torch.Tensor, input_list: list[torch.Tensor], root: int, async_op: bool) -> StrandwayWork | None:
        """Rank r gets the root's tensor r."""
        return self._finish(self._there().scatter([output], [input_list], self._options(root=root)), async_op)

    def gather(self, output_list: list[torch.Tensor], input: torch.Tensor, root: int, async_op: bool) -> StrandwayWork | None:
        """The root gets the tensors of all."""
        return self._finish(self._there().gather([output_list], [input], self._options(root=root)), async_op)

    def split(self, ranks: list[int], name: str, options: Any) -> StrandwayComm | None:
        """A communicator of some of these ranks, in that order. Ranks that are in none call it with an empty list."""
        side = self._there()
        if not ranks:
            self._splits += 1
            return None
        if len(set(ranks)) != len(ranks) or not all(0 <= rank < side.size() for rank in ranks) or side.rank() not in ranks:
            raise RuntimeError(f"ranks {ranks}: name some of the {side.size()} ranks, each once, with this one ({side.rank()}) among them")
        # Other ranks may make another communicator with the same name, and these the same one again.
        self._splits += 1
        place = f"{self._name}/split {self._splits}/{'-'.join(map(str, ranks))}"
        child, timeout = StrandwayComm(), getattr(options, "timeout", None) or self._timeout
        child._meet(self._device, name, PrefixStore(place, self._store), ranks.index(side.rank()), len(ranks), timeout)
        if hasattr(child, "_set_device_and_options"):
            child._set_device_and_options(self._device, options)
        return child


torchcomms.register_backend("strandway", StrandwayComm)
