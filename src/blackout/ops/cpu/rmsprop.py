"""Row-sparse RMSProp: gradients stay where they are until they are applied, in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import array, floats, integers, numbers, words_below
from blackout.ops.engine import RmsProp, Scalar


class RowGradient(NamedTuple):
    """A row-sparse gradient in place: row i is the sum of values order[start[i] : start[i + 1]]."""

    rows: Tensor  # (U,), distinct, ascending
    start: Tensor  # (U + 1,)
    order: Tensor  # (N,)
    values: Tensor  # (N, ...)

    @property
    def size(self) -> int:
        return self.values[:1].numel()

    def arguments(self) -> tuple[Any, ...]:
        return (
            self.size,
            integers(self.rows),
            integers(self.start),
            array(self.order, torch.int32),
            *numbers(self.values),
            len(self.rows),
        )


def collect_rows(rows: Tensor, values: Tensor, length: int) -> RowGradient:
    """The gradient of a table with ``length`` rows; the values stay where they are."""
    rows, values = words_below(rows, length, "row"), values.contiguous()
    count = len(rows)
    distinct, start = (torch.empty(n, dtype=torch.int64) for n in (count, count + 1))
    order = torch.empty(count, dtype=torch.int32)
    found = _native.collect_rows(
        integers(rows), count, integers(distinct), integers(start), order.data_ptr()
    )
    return RowGradient(distinct[:found], start[: found + 1], order, values)


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and for each the sum of its values."""
    gradient = collect_rows(rows, values, int(rows.max()) + 1 if len(rows) else 0)
    sums = torch.empty(len(gradient.rows), *values.shape[1:])
    _native.sum_rows(*gradient.arguments(), floats(sums), torch.get_num_threads())
    return gradient.rows, sums.to(values.dtype)


def squared_norm(gradient: RowGradient | Tensor) -> float:
    """The sum of the squares of a gradient, added up in one order whatever the threads."""
    if isinstance(gradient, Tensor):
        flat = gradient.contiguous()
        return _native.dense_squared_norm(*numbers(flat), flat.numel(), torch.get_num_threads())
    return _native.squared_norm(*gradient.arguments(), torch.get_num_threads())


def exact_aging(touched: Tensor, rows: Tensor, step: Scalar, beta: float) -> Tensor:
    """beta^(steps since the last update) of each row, (U,); marks the rows as updated."""
    agings = torch.empty(len(rows))
    _native.exact_aging(
        array(touched, torch.int32),
        integers(rows),
        len(rows),
        int(step),
        beta,
        floats(agings),
        torch.get_num_threads(),
    )
    return agings


def rmsprop_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment`` in place, in one pass."""
    one_aging, agings = (0.0, aging) if isinstance(aging, Tensor) else (aging, None)
    rounding = 0
    if weight.dtype == torch.bfloat16:
        rounding = int(reference.rounding_key(update.rounding, weight.device))
    _native.update_rows(
        *gradient.arguments(),
        *numbers(weight.detach()),
        floats(moment),
        *_settings(update),
        one_aging,
        0 if agings is None else floats(agings),
        moment.shape != weight.shape,
        rounding % 2**64,
        torch.get_num_threads(),
    )


def rmsprop_dense(
    weight: Tensor, moment: Tensor, gradient: Tensor, aging: Tensor | float, update: RmsProp
) -> None:
    """Updates all of ``weight`` and ``moment`` in place."""
    if weight.dtype != torch.float32 or isinstance(aging, Tensor) or moment.shape != weight.shape:
        reference.rmsprop_dense(weight, moment, gradient, aging, update)
        return
    gradient = gradient.contiguous()
    _native.update_dense(
        weight.numel(),
        *numbers(gradient),
        floats(weight.detach()),
        floats(moment),
        *_settings(update),
        aging,
        torch.get_num_threads(),
    )


def _settings(update: RmsProp) -> tuple[float, float, float, float]:
    return float(update.factor), float(update.lr), update.beta, update.damping
