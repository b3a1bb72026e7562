"""The memory of a call: tensors lent to the wire by address, without a copy; the call keeps them alive."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .devices import is_usable

ELEMENTS = {
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


class Call:
    """The memory of one operation."""

    def __init__(self) -> None:
        """None yet."""
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
        """Lends a tensor that is only read: its buffer's number, begin and end."""
        _check(tensor)
        return self._add(tensor.detach().contiguous(), False)

    def write(self, tensor: torch.Tensor) -> tuple[int, int, int]:
        """Lends a tensor that is written: its buffer's number, begin and end."""
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
    if tensor.device.type != "cpu" and not is_usable(tensor.device):
        raise ValueError(f"strandway moves tensors of the CPU and of torch's accelerator, and this one is on {tensor.device}")
    if tensor.layout != torch.strided:
        raise ValueError(f"strandway moves dense tensors, and this one is {tensor.layout}")


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Do two tensors share memory, as far as their first and last bytes tell?"""

    def end(tensor: torch.Tensor) -> int:
        return int(tensor.data_ptr() + tensor.numel() * tensor.element_size())

    return bool(one.data_ptr() < end(other) and other.data_ptr() < end(one))


def blocks(part: tuple[int, int, int], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """A buffer cut into blocks of `sizes` bytes."""
    ends = list(itertools.accumulate(sizes))
    if ends[-1:] != [part[2]]:
        raise ValueError(f"a tensor of {part[2]} bytes does not consist of blocks of {list(sizes)} bytes")
    return [(part[0], end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _dtype_name(dtype: torch.dtype) -> str:
    return ELEMENTS.get(dtype) or str(dtype).removeprefix("torch.")


def alike(tensors: Sequence[torch.Tensor]) -> str:
    """The kind of all tensors of a call."""
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        names = " and ".join(sorted(map(str, dtypes)))
        raise TypeError(f"the tensors of a call have one type, inputs and outputs alike, and these have {names}")
    return _dtype_name(dtypes.pop()) if dtypes else "uint8"


def check_tag(tag: int) -> int:
    """The tag, if it is one."""
    if not 0 <= tag < 1 << 31:
        raise ValueError(f"tag {tag}: give 0 to {(1 << 31) - 1}")
    return tag


def one(tensors: Sequence[Any], what: str) -> Any:
    """The only element of a list."""
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} {what}: give one")
    return tensors[0]


def rank_list(tensors: Sequence[Any], size: int, what: str) -> list[Any]:
    """A list with one element for each rank."""
    if len(tensors) != size:
        raise ValueError(f"{len(tensors)} {what} for {size} ranks: give one for each rank")
    return list(tensors)
