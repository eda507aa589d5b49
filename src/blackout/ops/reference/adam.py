"""Lazy Adam: as RMSProp, with a step along a running mean of the gradients."""

from __future__ import annotations

from torch import Tensor

from blackout.ops.engine import RmsProp
from blackout.ops.reference.rmsprop import RowGradient, new_moment, step_along, stored, work_type


def adam_update(
    weight: Tensor,
    mean: Tensor,
    moment: Tensor,
    gradient: Tensor,
    momentum: Tensor | float,
    aging: Tensor | float,
    update: RmsProp,
) -> tuple[Tensor, Tensor, Tensor]:
    """New (weight, mean, moment): m <- momentum m + (1 - momentum) g, v as RMSProp has it.

    theta <- theta - lr m / sqrt(v + damping)
    """
    gradient = gradient * update.factor
    moment = new_moment(moment, gradient, aging, update.beta)
    mean = momentum * mean + (1 - momentum) * gradient
    return step_along(mean, weight, moment, update), mean, moment


def adam_rows(
    weight: Tensor,
    mean: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    momentum: Tensor | float,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates the touched rows of ``weight``, ``mean`` and ``moment`` in place."""
    rows, values = gradient
    old = weight[rows].to(values.dtype)
    new, mean[rows], moment[rows] = adam_update(
        old, mean[rows], moment[rows], values, momentum, aging, update
    )
    weight[rows] = stored(new, weight.dtype, rows, update.rounding)


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
    work = work_type(weight)
    new, new_mean, later = adam_update(
        weight.to(work), mean, moment, gradient.to(work), momentum, aging, update
    )
    mean.copy_(new_mean)
    moment.copy_(later)
    weight.copy_(stored(new, weight.dtype, None, update.rounding))
