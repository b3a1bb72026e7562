"""The backend `strandway`: groups of `torch.distributed` over the package's process groups.

Tensors are lent to the wire (`memory`) until their work has ended (`work`, `futures`). The operations (`operations`) of a group (`group`)
have two faces (`faces`), of which torch's version takes one (`compat`).
"""

from __future__ import annotations

from typing import Any

import torch

from .compat import device_types, distributed_c10d
from .faces import StrandwayBackend
from .group import ALIVE
from .work import StrandwayWork

__all__ = ["StrandwayBackend", "StrandwayWork", "create", "receive_from_any"]


def create(options: Any, backend_options: Any) -> Any:
    """A new group, as `torch.distributed` asks for it."""
    ranks = list(options.global_ranks_in_group or [])
    name = options.group_id or ""
    return StrandwayBackend(options.store, options.group_rank, options.group_size, options.timeout, name, ranks)


def receive_from_any(tensor: torch.Tensor, group: Any, tag: int) -> int | None:
    """Receives a tensor from any rank of a group of this backend; gives the sender's global rank, or None for other groups."""
    whole = group or distributed_c10d._get_default_group()
    mine = [backend for backend in ALIVE if backend._options.group_name == getattr(whole, "group_name", None)]
    if len(mine) != 1 or tensor.device.type not in device_types():
        return None
    work = mine[0].recv_anysource([tensor], tag)
    work.wait()
    return int(distributed_c10d.get_global_rank(whole, work.source_rank())) if group is not None else work.source_rank()
