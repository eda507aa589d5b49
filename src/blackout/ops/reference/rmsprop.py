"""Row-sparse RMSProp: rows of a gradient summed, aged and applied."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import RmsProp, Rounding, Scalar
from blackout.ops.reference.sampling import GOLDEN, mix64, mixed, shift_right, whole


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and for each the sum of its values."""
    distinct, place = rows.unique(return_inverse=True)
    sums = values.new_zeros(len(distinct), *values.shape[1:])
    return distinct, sums.index_add_(0, place, values)


class RowGradient(NamedTuple):
    """A row-sparse gradient with each row once."""

    rows: Tensor  # (U,), ascending
    values: Tensor  # (U, ...)

    @property
    def distinct(self) -> int:
        return len(self.rows)


def collect_rows(rows: Tensor, values: Tensor, length: int) -> RowGradient:
    """The gradient of a table with ``length`` rows, duplicates summed in float32 or better."""
    return RowGradient(*sum_duplicates(rows, values.to(work_type(values))))


def squared_norm(gradient: RowGradient | Tensor) -> Tensor:
    """The sum of the squares of a gradient, ()."""
    values = gradient if isinstance(gradient, Tensor) else gradient.values
    return torch.linalg.vector_norm(values, dtype=torch.float64) ** 2


def exact_aging(touched: Tensor, rows: Tensor, step: Scalar, beta: float) -> Tensor:
    """beta^(steps since the last update) of each row, (U,) float64; marks the rows as updated."""
    now = whole(step, touched.device).to(touched.dtype)
    waited = now - touched[rows]
    touched[rows] = now
    return beta ** waited.double()


def rmsprop_update(
    weight: Tensor, moment: Tensor, gradient: Tensor, aging: Tensor | float, update: RmsProp
) -> tuple[Tensor, Tensor]:
    """New (weight, moment): v <- aging v + (1-beta) g², theta <- theta - lr g / sqrt(v + damping).

    Before that theta loses the part ``shrink`` of itself.

    ``aging`` is beta, or for each row beta to the power of the steps it has waited. A ``moment``
    with one number a row (U, 1) takes the mean of g² over the row.
    """
    gradient = gradient * update.factor
    moment = new_moment(moment, gradient, aging, update.beta)
    return step_along(gradient, weight, moment, update), moment


def new_moment(moment: Tensor, gradient: Tensor, aging: Tensor | float, beta: float) -> Tensor:
    """The second moment after a gradient."""
    square = gradient.square()
    if moment.shape != gradient.shape:
        square = square.flatten(1).mean(1).view(moment.shape)
    return moment * aging + (1 - beta) * square


def step_along(direction: Tensor, weight: Tensor, moment: Tensor, update: RmsProp) -> Tensor:
    """The weight after it shrank and took a step."""
    root = (moment + update.damping).sqrt()
    # A weight that never had a gradient has 0 / 0 without damping: it stays where it is.
    step = update.lr * direction / root.clamp_min(torch.finfo(root.dtype).tiny)
    return weight - update.shrink * weight - step


def rmsprop_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment`` in place."""
    rows, values = gradient
    old = weight[rows].to(values.dtype)
    new, moment[rows] = rmsprop_update(old, moment[rows], values, aging, update)
    weight[rows] = stored(new, weight.dtype, rows, update.rounding)


def rmsprop_dense(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates all of ``weight`` and ``moment`` in place."""
    work = work_type(weight)
    new, later = rmsprop_update(weight.to(work), moment, gradient.to(work), aging, update)
    moment.copy_(later)
    weight.copy_(stored(new, weight.dtype, None, update.rounding))


def stored(new: Tensor, dtype: torch.dtype, rows: Tensor | None, rounding: Rounding) -> Tensor:
    """New weights of these rows, or of all, as a table of that type takes them."""
    if dtype != torch.bfloat16:
        return new.to(dtype)
    if rows is None:
        rows = torch.arange(math.prod(new.shape[:1]), device=new.device)  # 1 for a single number
    return rounded(new, rounding.numbers(rows), rounding_key(rounding, new.device))


def work_type(values: Tensor) -> torch.dtype:
    """The type that numbers of that type are computed in."""
    return torch.promote_types(values.dtype, torch.float32)


def rounding_key(rounding: Rounding, device: torch.device) -> Tensor:
    """The key () of the random bits with which one step rounds one table."""
    return mixed(rounding[:3], device)


def rounded(values: Tensor, rows: Tensor, key: Tensor) -> Tensor:
    """``values`` (U, ...) float32 as bfloat16, up or down at random so that the mean is exact.

    16 random bits are added below the bits that stay. They are a pure function of the key, the row
    and the column; four columns share one draw of 64 bits.
    """
    flat = values.reshape(len(rows), math.prod(values.shape[1:]))
    draws = (flat.shape[1] + 3) // 4
    place = rows[:, None] * draws + torch.arange(draws, device=rows.device) + 1
    bits = mix64(place * GOLDEN + key)  # (U, draws)
    noise = torch.stack([shift_right(bits, 16 * i) & 0xFFFF for i in range(4)], -1)
    noise = noise.flatten(1)[:, : flat.shape[1]].int()
    number = flat.contiguous().view(torch.int32)
    up = torch.where(flat.isfinite(), number + noise, number) & -65536  # the upper 16 bits
    result = torch.where(flat.isnan(), flat, up.view(torch.float32))
    return result.to(torch.bfloat16).view(values.shape)
