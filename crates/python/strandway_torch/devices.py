"""Accelerators: streams, events and pinned memory of the host, through `torch.accelerator`, so that CUDA, ROCm and XPU take one path."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .compat import accelerator, accelerator_type

__all__ = ["Device", "device_named", "device_of", "is_usable"]


class Device:
    """One accelerator, for threads that copy between it and the host."""

    def __init__(self, device: torch.device) -> None:
        """An accelerator with its number."""
        self.device = device
        self._api, self._stream, self._event = accelerator()

    def stream(self) -> Any:
        """A new stream."""
        return self._stream(self.device)

    def now(self, stream: Any = None) -> Any:
        """An event after what the stream has been given so far; that of the calling thread if none is named."""
        event = self._event(self.device) if self._event is torch.Event else self._event(blocking=True)
        event.record(self._api.current_stream(self.device) if stream is None else stream)
        return event

    def follow(self, event: Any) -> None:
        """The calling thread's stream goes on after the event. The host does not wait."""
        self._api.current_stream(self.device).wait_event(event)

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """The stream is the calling thread's, and so is the device, which stays so: going back would start the first one."""
        before = self._api.current_stream(self.device)
        self._api.set_stream(stream)
        try:
            yield
        finally:
            self._api.set_stream(before)

    def pinned(self, count: int) -> torch.Tensor:
        """Memory of the host that the device reads and writes by itself. torch keeps what is given back for the next call."""
        return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copies between device and pinned memory, on the calling thread's stream."""
        with torch.no_grad():
            target.copy_(source, non_blocking=True)

    def lend(self, tensor: torch.Tensor, stream: Any) -> None:
        """The memory of a tensor is not given to others until the stream has come here."""
        try:
            tensor.record_stream(stream)
        except NotImplementedError:
            # Its allocator knows no streams.
            stream.synchronize()


def is_usable(device: torch.device) -> bool:
    """Is this the kind of accelerator that torch has here?"""
    return bool(device.type == accelerator_type())


@functools.cache
def _device(device: torch.device) -> Device:
    return Device(device)


def device_of(tensors: Sequence[torch.Tensor]) -> Device | None:
    """The accelerator that all tensors of a call are on; None for the CPU."""
    found = {tensor.device for tensor in tensors}
    if len(found) > 1:
        raise ValueError(f"the tensors of a call are on one device, and these are on {' and '.join(sorted(map(str, found)))}")
    device = found.pop() if found else torch.device("cpu")
    return None if device.type == "cpu" else _device(device)


def device_named(device: Any) -> Device | None:
    """The accelerator that an option of a call names."""
    return _device(device) if device is not None and is_usable(device) and device.index is not None else None
