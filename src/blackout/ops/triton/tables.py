"""Rows of a table copied out of it, and its initial values."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.triton.launch import block_of, launch, signed, tiles, warps_of
from blackout.ops.triton.numbers import GOLDEN, mix64, unsigned

_FILL = 2048  # numbers that a program makes


@triton.jit
def _gather(
    table, rows, out, log_q, log_q_out, length, size,
    WITH_LOG_Q: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    row = tl.load(rows + place).to(tl.int64)
    known = (row >= 0) & (row < length)
    values = tl.load(table + row * size + column, mask=there & known, other=float("nan"))
    tl.store(out + place * size + column, values.to(out.dtype.element_ty), mask=there)
    if WITH_LOG_Q:
        found = tl.load(log_q + row, mask=known, other=float("nan"))
        tl.store(log_q_out + place, found.to(log_q_out.dtype.element_ty))


def gather(
    table: Tensor, rows: Tensor, dtype: torch.dtype, log_q: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``table[rows]`` in ``dtype`` and ``log_q[rows]`` in float32; what is not there reads as NaN.

    Without ``log_q`` the second is nothing.
    """
    size = table.shape[1]
    out = torch.empty(*rows.shape, size, dtype=dtype, device=table.device)
    found = torch.empty(rows.shape, device=table.device)
    block = block_of(size, 2048)
    launch(
        _gather,
        (rows.numel(), tiles(size, block)),
        (table, rows, out, table if log_q is None else log_q, found),
        (len(table), size, log_q is not None, block),
        num_warps=warps_of(block),
    )
    return out, found


@triton.jit
def _nearest_bfloat16(x):
    """float32 numbers to the nearest bfloat16, ties to even, still as float32."""
    pattern = x.to(tl.uint32, bitcast=True)
    up = pattern + 0x7FFF + ((pattern >> 16) & 1)
    return (up & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["key"])
def _fill(
    table, rows, limit, key, count, size, draws,
    WITH_ROWS: tl.constexpr, TO_BFLOAT16: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    row, column = place // size, place % size
    if WITH_ROWS:
        row = tl.load(rows + row, mask=there, other=0).to(tl.int64)
    half = column >= draws  # a column and the one half a row further share 64 bits
    draw = tl.where(half, column - draws, column)
    bits = mix64(unsigned(row * draws + draw + 1) * GOLDEN + unsigned(key))
    taken = tl.where(half, (bits >> 16) & 0xFFFFFF, bits >> 40).to(tl.int32)
    value = (2 * taken + (1 - (1 << 24))).to(tl.float32) * tl.load(limit)
    if TO_BFLOAT16:  # the interpreter would cut the rest off
        value = _nearest_bfloat16(value)
    tl.store(table + place, value.to(table.dtype.element_ty), mask=there)


def fill_uniform(table: Tensor, limit: float, key: int, rows: Tensor | None) -> None:
    """Fills a table with U(-limit, limit), a pure function of key, row and column."""
    if not table.numel():
        return
    size = table[0].numel()
    # the factor as PyTorch rounds it for a float32 tensor
    factor = torch.full((), limit * 2.0**-24, dtype=torch.float32, device=table.device)
    launch(
        _fill,
        (tiles(table.numel(), _FILL),),
        (table, table if rows is None else rows, factor, signed(key)),
        (
            table.numel(), size, (size + 1) // 2, rows is not None,
            table.dtype == torch.bfloat16, _FILL,
        ),
    )  # fmt: skip
