"""Arrays for the native code: their memory, their addresses, their number formats."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from blackout import _native

_SMALL = 1 << 16  # bytes below which the ordinary allocator is as good


def buffer(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor in memory that earlier blocks have used."""
    size = math.prod(shape) * dtype.itemsize
    if size < _SMALL:
        return torch.empty(shape, dtype=dtype, device="cpu")  # whatever the default device
    return torch.from_numpy(_native.buffer(size)).view(dtype).view(shape)


def array(tensor: Tensor, dtype: torch.dtype) -> int:
    """The address of a contiguous array of that type; it must outlive the native call."""
    if tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(f"need a contiguous array of {dtype}, not {tensor.dtype}")
    return tensor.data_ptr()


def floats(tensor: Tensor) -> int:
    """The address of an array of float32."""
    return array(tensor, torch.float32)


def integers(tensor: Tensor) -> int:
    """The address of an array of int64."""
    return array(tensor, torch.int64)


def numbers(tensor: Tensor) -> tuple[int, bool]:
    """Address and format (True for bfloat16) of an array of either kind."""
    half = tensor.dtype == torch.bfloat16
    return array(tensor, torch.bfloat16 if half else torch.float32), half


def changed(tensor: Tensor) -> None:
    """Tells autograd that native code has written into a tensor.

    A backward pass through a graph that needs the old numbers is then refused, not wrong.
    """
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def words_below(words: Tensor, size: int, name: str) -> Tensor:
    """``words`` as a contiguous array, after checking that each names a row of a table."""
    words = words.contiguous()
    if words.numel():
        low, high = (int(x) for x in words.aminmax())
        if low < 0 or high >= size:
            raise IndexError(f"{name} {low if low < 0 else high} is not in 0 … {size - 1}")
    return words


def converted(values: Tensor, dtype: torch.dtype) -> Tensor:
    """``values``, contiguous, in another of the two formats; itself where it has it."""
    values = values.contiguous()
    if values.dtype == dtype:
        return values
    result = buffer(tuple(values.shape), dtype)
    convert(values, result)
    return result


def convert(values: Tensor, to: Tensor) -> None:
    """Fills ``to`` with ``values``, in its own format."""
    threads = torch.get_num_threads()
    _native.convert(*numbers(values), *numbers(to), values.numel(), threads)
