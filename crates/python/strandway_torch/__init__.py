"""The backend `strandway` of `torch.distributed`; `import torch` finds it by an entry point."""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["register"]


def register() -> None:
    """Called by `import torch`: it is quick, starts nothing, and does not fail."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "strandway" not in dist.Backend.backend_list:
            dist.Backend.register_backend("strandway", _create, extended_api=True, devices=["cpu"])
            _complete_recv(dist)
    except Exception as error:
        import warnings

        warnings.warn(f"the backend strandway is not registered: {error}", stacklevel=2)


def _create(options: object, backend_options: object) -> object:
    from .backend import create

    return create(options, backend_options)


def _complete_recv(dist: Any) -> None:
    """Lets `torch.distributed.recv` without a source give the sender's rank: its C++ half cannot ask a backend in Python."""
    from torch.distributed import distributed_c10d

    original = distributed_c10d.recv

    @functools.wraps(original)
    def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
        backend = sys.modules.get("strandway_torch.backend")
        if src is None and group_src is None and backend is not None:
            source = backend.receive_from_any(tensor, group, tag)
            if source is not None:
                return int(source)
        return int(original(tensor, src, group, tag, group_src))

    distributed_c10d.recv = recv
    dist.recv = recv
