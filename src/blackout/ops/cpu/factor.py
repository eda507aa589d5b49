"""A matrix that many others are multiplied with: laid out once for the native product."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer, numbers

_ALIGNED = 64  # bytes


class Factor:
    """The right operand of products with a recurrent matrix over the steps of a block.

    ``transposed``: whether rows of ``matrix`` are columns of the operand.
    """

    def __init__(self, matrix: Tensor, *, transposed: bool) -> None:
        rows, columns = matrix.shape
        self.depth, self.columns = (columns, rows) if transposed else (rows, columns)
        spare = _ALIGNED // matrix.itemsize
        size = _native.panel_numbers(self.depth, self.columns) + spare
        self._memory = buffer((size,), matrix.dtype)
        self._half = matrix.dtype == torch.bfloat16
        self._place = -(-self._memory.data_ptr() // _ALIGNED) * _ALIGNED
        _native.pack(
            *numbers(matrix),
            columns,
            0,
            self._place,
            self._half,
            self.depth,
            self.columns,
            transposed,
            torch.get_num_threads(),
        )

    def multiply(self, left: Tensor, out: Tensor, *, add: bool = False) -> None:
        """``left`` (n, depth) times the matrix into ``out`` (n, columns), or onto it."""
        address, half = numbers(left)
        _native.product(
            address,
            half,
            self.depth,
            1,
            self._place,
            self._half,
            len(left),
            self.depth,
            self.columns,
            *numbers(out),
            self.columns,
            add,
            1,
            torch.get_num_threads(),
        )
