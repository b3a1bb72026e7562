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
    """One accelerator, for threads that copy between it and the host. "The stream" is the calling thread's current one."""

    def __init__(self, device: torch.device) -> None:
        """Takes an accelerator with its index."""
        self.device = device
        self._api, self._stream, self._event = accelerator()

    def stream(self) -> Any:
        """A new stream."""
        return self._stream(self.device)

    def record(self) -> Any:
        """An event after all that the stream was given."""
        event = self._event(self.device)
        event.record(self._api.current_stream(self.device))
        return event

    def wait(self, event: Any) -> None:
        """Lets the stream wait for an event. The host does not wait."""
        self._api.current_stream(self.device).wait_event(event)

    @contextlib.contextmanager
    def use(self, stream: Any) -> Iterator[None]:
        """Makes another stream the thread's current one. Its device becomes current, too, and stays it."""
        before = self._api.current_stream(self.device)
        self._api.set_stream(stream)
        try:
            yield
        finally:
            self._api.set_stream(before)

    def pinned(self, count: int) -> torch.Tensor:
        """Memory of the host that the device copies from and to by itself. torch keeps it for the next call when it is given back."""
        return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Lets the stream copy between the device and pinned memory."""
        with torch.no_grad():
            target.copy_(source, non_blocking=True)

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keeps the memory of a tensor until a stream has done what it was given."""
        try:
            tensor.record_stream(stream)
        except NotImplementedError:
            # The device's allocator knows no streams.
            stream.synchronize()


def is_usable(device: torch.device) -> bool:
    """Is it of the kind of accelerator that torch has here?"""
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
    """The accelerator that an option of a call names; None for the CPU."""
    return _device(device) if device is not None and is_usable(device) and device.index is not None else None
