"""How kernels are launched: sizes of blocks, numbers that may lie on the device, and the launch.

Triton looks at every argument of every launch to find what it compiled for such ones: 10 to 50 µs
of Python, longer than most kernels here run. :func:`launch` remembers what it found and hands the
arguments to it. That takes two promises of a kernel: parameters that change from call to call come
first (``given``), and those among them that are whole numbers are ``do_not_specialize``; all others
(``fixed``) decide, with the types of the first, which compiled kernel it is.

Kernels run where their tensors are, as PyTorch's own do, whichever device is the current one.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
from torch import Tensor

from blackout.ops.engine import Scalar

MASK64 = (1 << 64) - 1
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# how a compiled kernel is called is no promise of Triton's: elsewhere it is asked every time
_KNOWN = triton.__version__.startswith("3.6.") and torch.version.hip is None
_COMPILED: dict[tuple[Any, ...], Any] = {}
_MOST = 4096


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    given: tuple[Any, ...],
    fixed: tuple[Any, ...],
    **options: Any,
) -> None:
    """``kernel[grid](*given, *fixed, **options)`` on the current stream of the tensors' device.

    ``given``: tensors, beginning with one, and numbers, whatever they are this time. ``fixed``:
    whole numbers and flags that are the same for all calls with such shapes and settings.
    """
    if _INTERPRETED:
        kernel[grid](*given, *fixed, **options)
        return
    values, kinds, places = [], [], 0
    home = given[0].get_device()
    for one in given:
        if isinstance(one, Tensor):
            if one.get_device() != home:  # by its address it would be read all the same
                devices = f"{given[0].device} and {one.device}"
                raise RuntimeError(f"{kernel.__name__}: tensors are on {devices}")
            place = one.data_ptr()
            places |= place
            values.append(place)
            kinds.append(one.dtype)
        else:
            values.append(one)
            kinds.append(_kind(one))
    # Triton launches on the current device, whatever it is given; to a CPU's tensors it says no
    if home not in (-1, torch.cuda.current_device()):
        with torch.cuda.device(home):
            launch(kernel, grid, given, fixed, **options)
        return
    key = (id(kernel), home, *kinds, *fixed, *options.values())
    known = _KNOWN and not places & 15  # Triton's kernels differ by alignment
    compiled = _COMPILED.get(key) if known else None
    if compiled is None:
        compiled = kernel[grid](*given, *fixed, **options)
        if known:
            if len(_COMPILED) >= _MOST:  # of somebody whose shapes are never the same
                _COMPILED.clear()
            _COMPILED[key] = compiled
        return
    x, y, z = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(home)  # type: ignore[attr-defined]
    compiled.run(
        x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None,
        *values, *fixed,
    )  # fmt: skip


def _kind(number: Any) -> Any:
    """What Triton makes a kernel's parameter of a number that is not specialised."""
    if isinstance(number, int):
        return "i32" if -(1 << 31) <= number < 1 << 31 else "i64"
    return float


def block_of(length: int, most: int = 1 << 30) -> int:
    """The smallest power of two that holds ``length``, 16 at least, ``most`` at most."""
    return max(16, min(1 << (length - 1).bit_length(), most))


def warps_of(block: int) -> int:
    """So many warps that a thread has about eight numbers of a block."""
    return max(1, min(16, block // 256))


def tiles(length: int, size: int) -> int:
    """How many pieces of ``size`` hold ``length``."""
    return -(-length // size)


def on_host(number: Scalar) -> Any:
    """A number as it is; a tensor on the CPU as its number, which nobody has to wait for."""
    if isinstance(number, Tensor):
        return number if number.device.type != "cpu" else number.item()
    return number


def scalar(number: Scalar) -> tuple[Any, bool]:
    """A kernel's argument for a number, and whether it lies on the device."""
    value = on_host(number)
    return value, isinstance(value, Tensor)


def signed(bits: int) -> int:
    """A 64-bit pattern as the signed number that has it."""
    bits &= MASK64
    return bits - (1 << 64) if bits >> 63 else bits
