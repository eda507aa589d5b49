"""Lazy Adam: the touched rows of table and moments in one pass."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import changed, floats, numbers
from blackout.ops.cpu.rmsprop import RowGradient, for_all_or_each, row_update, settings
from blackout.ops.engine import RmsProp


def adam_rows(
    weight: Tensor,
    mean: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    momentum: Tensor | float,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates the touched rows of ``weight``, ``mean`` and ``moment`` in place, in one pass."""
    whole = update.rounding.numbers(gradient.rows)
    arguments = row_update(weight, moment, gradient, aging, update, whole)
    threads = torch.get_num_threads()
    _native.adam_rows(*arguments, floats(mean), *for_all_or_each(momentum), threads)
    changed(weight)


def adam_dense(
    weight: Tensor,
    mean: Tensor,
    moment: Tensor,
    gradient: Tensor,
    momentum: Tensor | float,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates all of ``weight``, ``mean`` and ``moment`` in place."""
    by_row = isinstance(aging, Tensor) or isinstance(momentum, Tensor)
    if by_row or weight.dtype != torch.float32 or moment.shape != weight.shape:
        reference.adam_dense(weight, mean, moment, gradient, momentum, aging, update)
        return
    gradient = gradient.contiguous()
    _native.adam_dense(
        weight.numel(),
        *numbers(gradient),
        floats(weight.detach()),
        floats(moment),
        *settings(update),
        float(aging),
        floats(mean),
        float(momentum),
        torch.get_num_threads(),
    )
    changed(weight)
