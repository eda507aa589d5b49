"""Memory for large tables: one row for each word of the vocabulary."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from blackout import _native

STORAGE = {"fp32": torch.float32, "bf16": torch.bfloat16}


def empty_table(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An uninitialised table, on huge pages where the system gives them: rows lie far apart."""
    return _on_huge_pages(torch.empty(shape, dtype=dtype))


def zero_table(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A table of zeros; memory is taken when a row is first written."""
    return _on_huge_pages(torch.zeros(shape, dtype=dtype, device=device))


def _on_huge_pages(table: Tensor) -> Tensor:
    if table.device.type == "cpu":
        _native.advise_huge_pages(table.data_ptr(), math.prod(table.shape) * table.itemsize)
    return table
