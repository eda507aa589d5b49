"""Initial values of a table, and rows of it."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer, integers, numbers, words_below


def fill_uniform(table: Tensor, limit: float, key: int, rows: Tensor | None) -> None:
    """The same values as the reference's, made in place."""
    if not table.numel():
        return
    _native.fill_uniform(
        *numbers(table.detach()),
        len(table),
        table[0].numel(),
        0 if rows is None else integers(rows),
        key % 2**64,
        limit,
        torch.get_num_threads(),
    )


def lookup(table: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """``table[rows]`` in ``dtype``."""
    rows = words_below(rows, len(table), "row")
    result = buffer((*rows.shape, table.shape[1]), dtype)
    _native.gather(
        *numbers(table),
        integers(rows),
        rows.numel(),
        table.shape[1],
        *numbers(result),
        torch.get_num_threads(),
    )
    return result
