"""Row-sparse RMSProp: gradients stay where they are until they are applied, in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import array, changed, floats, integers, numbers, words_below
from blackout.ops.engine import RmsProp, Scalar


class RowGradient(NamedTuple):
    """A row-sparse gradient in place: row i is the sum of values order[start[i] : start[i + 1]]."""

    rows: Tensor  # (U,), distinct, ascending
    start: Tensor  # (U + 1,)
    order: Tensor  # (N,)
    values: Tensor  # (N, ...)

    @property
    def distinct(self) -> int:
        return len(self.rows)

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
    distinct, start = (rows.new_empty(n) for n in (count, count + 1))
    order = rows.new_empty(count, dtype=torch.int32)
    found = _native.collect_rows(
        integers(rows), count, integers(distinct), integers(start), order.data_ptr()
    )
    return RowGradient(distinct[:found], start[: found + 1], order, values)


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and for each the sum of its values."""
    gradient = collect_rows(rows, values, int(rows.max()) + 1 if len(rows) else 0)
    sums = values.new_empty(len(gradient.rows), *values.shape[1:], dtype=torch.float32)
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
    agings = rows.new_empty(len(rows), dtype=torch.float32)
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
    whole = update.rounding.numbers(gradient.rows)
    arguments = row_update(weight, moment, gradient, aging, update, whole)
    _native.update_rows(*arguments, torch.get_num_threads())
    changed(weight)


def row_update(
    weight: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    aging: Tensor | float,
    update: RmsProp,
    whole: Tensor,
) -> tuple[Any, ...]:
    """What native code takes to change rows; the tensors must outlive the call.

    ``whole``: the numbers of the gradient's rows in the whole table.
    """
    rounding = 0
    if weight.dtype == torch.bfloat16:
        rounding = int(reference.rounding_key(update.rounding, weight.device))
    return (
        *gradient.arguments(),
        *numbers(weight.detach()),
        floats(moment),
        *settings(update),
        *for_all_or_each(aging),
        moment.shape != weight.shape,
        rounding % 2**64,
        integers(whole),
    )


def for_all_or_each(factor: Tensor | float) -> tuple[float, int]:
    """A number for all rows, or the address of one for each."""
    return (0.0, floats(factor)) if isinstance(factor, Tensor) else (factor, 0)


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
        *settings(update),
        aging,
        torch.get_num_threads(),
    )
    changed(weight)


def settings(update: RmsProp) -> tuple[float, float, float, float, float]:
    """An update's numbers, as native code takes them."""
    return (
        float(update.factor),
        float(update.lr),
        update.beta,
        float(update.damping),
        float(update.shrink),
    )
