"""A process group for torchft, which is made anew whenever replicas come or go: `Manager(pg=ProcessGroupStrandway(), ...)`.

Each configuration has a node of its own, which ends with it. A replica that has died is found within a second, by its refused port; the
error that `errored` gives names its rank, host and plane.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from strandway.errors import WireError
from torch.distributed import ProcessGroup as BaseProcessGroup
from torchft.process_group import ProcessGroup, ProcessGroupWrapper

from .compat import MAKES_BACKENDS, device_types
from .faces import StrandwayBackend
from .operations import Operations

__all__ = ["ProcessGroupStrandway"]


class ProcessGroupStrandway(ProcessGroupWrapper):  # type: ignore[misc]
    """A `ProcessGroup` of torchft over Strandway. `timeout` is that of operations, and of meeting the other ranks."""

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        """Meets nobody before `configure`."""
        super().__init__(timeout)
        self._backend: Operations | None = None

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        name = ""
        if self._group_rank and self._group_world_size:
            name = f"torchft_quorum_{self._quorum_id}_rank_{self._group_rank % self._group_world_size}"
        backend = StrandwayBackend(store, rank, world_size, self._timeout, name, self._global_ranks or (), apart=True)
        self._backend = backend
        if not MAKES_BACKENDS:
            return backend
        group = BaseProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        for kind in device_types():
            group._register_backend(torch.device(kind), ProcessGroup.BackendType.CUSTOM, backend)
        return group

    def _leave(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.shutdown()

    def abort(self, errored: bool = True) -> None:
        """Ends all operations here, now, and leaves; `configure` begins anew."""
        self._leave()
        super().abort(errored)

    def shutdown(self) -> None:
        """Leaves the group."""
        self._leave()
        super().shutdown()

    def errored(self) -> Exception | None:
        """The first failure of an operation since `configure`. The group is aborted then, since torchft configures it anew."""
        failure = None if self._backend is None else self._backend.errored()
        if failure is None or self._backend is None:
            return None
        self._backend.abort()
        return WireError(f"aborted: {failure}")

    def set_timeout(self, timeout: timedelta) -> None:
        """How long operations may take from now on."""
        super().set_timeout(timeout)
        if self._backend is not None:
            self._backend.set_timeout(timeout)

    def getBackendName(self) -> str:
        """`torchft-strandway`."""
        return "torchft-strandway"
