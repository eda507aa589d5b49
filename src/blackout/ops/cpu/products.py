"""Matrix products on the CPU: native code where it is the faster, else PyTorch's.

In float32 it has the whole machine on processors of every maker. In bfloat16 it needs the
processor's instruction for that; where the processor has tiles besides (AMX), PyTorch uses them.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer

_ROWS = 4  # of a left operand; for fewer, laying out the right one is most of the work


def matrix_product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """``left @ right`` of two matrices or batches of them, of one type; also into ``out``.

    Any operand may be transposed. ``out`` has rows without gaps, in float32 or bfloat16; without
    it the result is of the operands' type.
    """
    shape = (*left.shape[:-1], right.shape[-1])
    steps = _steps(left), _steps(right)
    if steps[0] is None or steps[1] is None or not _is_ours(left, right):
        return _by_pytorch(left, right, out)
    if out is None:
        out = buffer(shape, left.dtype)
    to = _steps(out)
    if out.shape != shape or to is None or to[2] != 1:
        raise ValueError(f"a product of shape {shape} into {tuple(out.shape)}, {out.stride()}")
    _native.multiply(
        left.shape[0] if left.dim() == 3 else 1,
        left.shape[-2],
        left.shape[-1],
        right.shape[-1],
        left.data_ptr(),
        left.dtype == torch.bfloat16,
        *steps[0],
        right.data_ptr(),
        right.dtype == torch.bfloat16,
        *steps[1],
        out.data_ptr(),
        out.dtype == torch.bfloat16,
        *to[:2],
        torch.get_num_threads(),
    )
    return out


def _is_ours(left: Tensor, right: Tensor) -> bool:
    if left.shape[-2] < _ROWS or left.shape[-1] != right.shape[-2]:
        return False
    if left.shape[:-2] != right.shape[:-2] or left.dtype != right.dtype:
        return False
    return left.dtype == torch.float32 or (left.dtype == torch.bfloat16 and _has_half())


@functools.cache
def _has_half() -> bool:
    """Whether native products in bfloat16 are the faster."""
    return _native.isa() == "avx512bf16" and not torch.cpu._is_amx_tile_supported()


def _steps(array: Tensor) -> tuple[int, int, int] | None:
    """From matrix to matrix, row to row and column to column; None where neither is next to it."""
    *batch, row, column = array.stride()
    if array.shape[-1] == 1:
        column = 1  # whatever it says
    elif array.shape[-2] == 1:
        row = max(row, array.shape[-1])
    if 1 not in (row, column):
        return None
    return (batch[0] if batch else 0), row, column


def _by_pytorch(left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
    if out is None or out.dtype == left.dtype:
        return torch.matmul(left, right, out=out)
    return out.copy_(torch.matmul(left, right))
