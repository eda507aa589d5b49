"""How kernels are launched: sizes of blocks, numbers that may lie on the device."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from blackout.ops.engine import Scalar

MASK64 = (1 << 64) - 1


def block_of(length: int, most: int = 1 << 30) -> int:
    """The smallest power of two that holds ``length``, 16 at least, ``most`` at most."""
    return max(16, min(triton.next_power_of_2(length), most))


def warps_of(block: int) -> int:
    """So many warps that a thread has about eight numbers of a block."""
    return max(1, min(16, block // 256))


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
