"""Initial values of a table, and rows of it."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.ops.reference.sampling import GOLDEN, mix64, shift_right, whole

_PIECE = 1 << 20  # numbers made at a time


def fill_uniform(table: Tensor, limit: float, key: int, rows: Tensor | None) -> None:
    """Fills a table with U(-limit, limit), a pure function of key, row and column.

    A column and the one half a row further share a draw of 64 bits: 24 of them are a number
    0 ≤ u < 2**24, and the value is (2u + 1 - 2**24) / 2**24 · limit, rounded once: the same on
    every device.
    """
    if not table.numel():
        return
    size = table[0].numel()
    for start in range(0, len(table), max(1, _PIECE // size)):
        piece = table[start : start + max(1, _PIECE // size)]
        if rows is None:
            numbers = torch.arange(start, start + len(piece), device=table.device)
        else:
            numbers = rows[start : start + len(piece)]
        piece.copy_(_uniform(numbers, size, key).mul_(limit * 2.0**-24).view(piece.shape))


def _uniform(rows: Tensor, size: int, key: int) -> Tensor:
    """Odd whole numbers between -2**24 and 2**24 (U, size), as float32."""
    draws = (size + 1) // 2
    place = rows[:, None] * draws + torch.arange(draws, device=rows.device) + 1
    bits = mix64(place * GOLDEN + whole(key, rows.device))  # (U, draws)
    numbers = torch.cat([shift_right(bits, 40), shift_right(bits, 16) & 0xFFFFFF], 1)[:, :size]
    return (2 * numbers + (1 - 2**24)).to(torch.float32)


def lookup(table: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """``table[rows]`` in ``dtype``."""
    return table[rows].to(dtype)
