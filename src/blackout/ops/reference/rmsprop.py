"""Row-sparse RMSProp: rows of a gradient summed, aged and applied."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.reference.sampling import GOLDEN, mix64, shift_right


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and for each the sum of its values."""
    distinct, place = rows.unique(return_inverse=True)
    sums = values.new_zeros(len(distinct), *values.shape[1:])
    return distinct, sums.index_add_(0, place, values)


class RowGradient(NamedTuple):
    """A row-sparse gradient with each row once."""

    rows: Tensor  # (U,), ascending
    values: Tensor  # (U, ...)


def collect_rows(rows: Tensor, values: Tensor, length: int) -> RowGradient:
    """The gradient of a table with ``length`` rows, duplicates summed in float32 or better."""
    return RowGradient(*sum_duplicates(rows, values.to(_work_type(values))))


def squared_norm(gradient: RowGradient | Tensor) -> float:
    """The sum of the squares of a gradient."""
    values = gradient if isinstance(gradient, Tensor) else gradient.values
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def exact_aging(touched: Tensor, rows: Tensor, step: int, beta: float) -> Tensor:
    """beta^(steps since the last update) of each row, (U,) float64; marks the rows as updated."""
    waited = step - touched[rows]
    touched[rows] = step
    return beta ** waited.double()


def rmsprop_update(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
) -> tuple[Tensor, Tensor]:
    """New (weight, moment): v <- aging v + (1-beta) g², theta <- theta - lr g / sqrt(v + damping).

    ``aging`` is beta, or for each row beta to the power of the steps it has waited. A ``moment``
    with one number a row (U, 1) takes the mean of g² over the row.
    """
    square = gradient.square()
    if moment.shape != gradient.shape:
        square = square.flatten(1).mean(1).view(moment.shape)
    moment = moment * aging + (1 - beta) * square
    root = (moment + damping).sqrt() if damping_inside else moment.sqrt() + damping
    # A weight that never had a gradient has 0 / 0 without damping: it stays where it is.
    return weight - lr * gradient / root.clamp_min(torch.finfo(root.dtype).tiny), moment


def rmsprop_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    factor: float,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
    rounding: int,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment`` in place with factor · gradient.

    ``rounding`` is the key of the random bits that round a bfloat16 weight.
    """
    rows, values = gradient
    new, new_moment = rmsprop_update(
        weight[rows].to(values.dtype),
        moment[rows],
        values * factor,
        aging,
        lr,
        beta,
        damping,
        damping_inside,
    )
    moment[rows] = new_moment
    weight[rows] = rounded(new, rows, rounding) if weight.dtype == torch.bfloat16 else new


def rmsprop_dense(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    factor: float,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
    rounding: int,
) -> None:
    """Updates all of ``weight`` and ``moment`` in place with factor · gradient."""
    work = _work_type(weight)
    new, new_moment = rmsprop_update(
        weight.to(work),
        moment,
        gradient.to(work) * factor,
        aging,
        lr,
        beta,
        damping,
        damping_inside,
    )
    moment.copy_(new_moment)
    if weight.dtype == torch.bfloat16:
        new = rounded(new, torch.arange(len(new), device=new.device), rounding)
    weight.copy_(new)


def _work_type(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


def rounding_key(seed: int, table: int, step: int) -> int:
    """The key of the random bits with which one step rounds one table."""
    words = torch.tensor([seed, table, step])
    key = torch.zeros((), dtype=torch.int64)
    for word in words:
        key = mix64(key + word + GOLDEN)
    return int(key)


def rounded(values: Tensor, rows: Tensor, key: int) -> Tensor:
    """``values`` (U, ...) float32 as bfloat16, up or down at random so that the mean is exact.

    16 random bits are added below the bits that stay. They are a pure function of the key, the row
    and the column; four columns share one draw of 64 bits.
    """
    flat = values.reshape(len(values), -1)
    draws = (flat.shape[1] + 3) // 4
    place = rows[:, None] * draws + torch.arange(draws, device=rows.device) + 1
    bits = mix64(place * GOLDEN + key)  # (U, draws)
    noise = torch.stack([shift_right(bits, 16 * i) & 0xFFFF for i in range(4)], -1)
    noise = noise.flatten(1)[:, : flat.shape[1]].int()
    number = flat.contiguous().view(torch.int32)
    up = torch.where(flat.isfinite(), number + noise, number) & -65536  # the upper 16 bits
    result = torch.where(flat.isnan(), flat, up.view(torch.float32))
    return result.to(torch.bfloat16).view(values.shape)
