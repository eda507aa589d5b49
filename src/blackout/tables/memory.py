"""Memory for large tables: one row for each word of the vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from blackout import _native
from blackout.native_code import has_native

STORAGE = {"fp32": torch.float32, "bf16": torch.bfloat16}


_DEVICE: ContextVar[torch.device | None] = ContextVar("device of new tables", default=None)


@contextmanager
def tables_on(device: torch.device) -> Iterator[None]:
    """New tables are made on this device: one that fits there need not fit into memory first.

    >>> with tables_on(torch.device("cpu")):
    ...     empty_table(2, 3).shape
    torch.Size([2, 3])
    """
    before = _DEVICE.set(device)
    try:
        yield
    finally:
        _DEVICE.reset(before)


def empty_table(
    *shape: int, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> Tensor:
    """An uninitialised table, on huge pages where the system gives them: rows lie far apart."""
    return _on_huge_pages(torch.empty(shape, dtype=dtype, device=device or _DEVICE.get()))


def zero_table(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A table of zeros; memory is taken when a row is first written."""
    return _on_huge_pages(torch.zeros(shape, dtype=dtype, device=device))


def _on_huge_pages(table: Tensor) -> Tensor:
    if table.device.type == "cpu" and has_native():
        _native.advise_huge_pages(table.data_ptr(), math.prod(table.shape) * table.itemsize)
    return table
