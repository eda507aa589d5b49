"""RMSProp on the device: rows aged, updated and rounded in one pass; dense weights likewise."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops import reference
from blackout.ops.engine import RmsProp, Rounding, Scalar
from blackout.ops.triton.launch import block_of, launch, scalar, signed, tiles
from blackout.ops.triton.numbers import GOLDEN, mix64, real, rounded, unsigned, whole
from blackout.ops.triton.rows import Sums, load_entry, order_rows, sum_rows
from blackout.ops.triton.sampling import mixed_on_host

_FLAT = 1024
_DENSE = 4096
_ROW = 4096  # columns of a row that a program holds at once
_TINY = tl.constexpr(1.1754943508222875e-38)

BY_NUMBER, BY_ROW, BY_STEPS, BY_TABLE = 0, 1, 2, 3
"""How a second moment ages: one factor for all, one for each touched row (both eager), beta to the
power of the steps a row waited, or a factor from a table of all rows."""


class Aging(NamedTuple):
    """The factor of old second moments. ``touched`` is marked where it is given."""

    kind: int
    factor: float = 1.0
    factors: Tensor | None = None  # (U,) or (V,)
    touched: Tensor | None = None  # (V,) int32
    beta: float = 1.0


@triton.jit
def _moved(weight, direction, moment, lr, damping, shrink):
    root = tl.maximum(tl.sqrt(moment + damping), _TINY)
    return weight - shrink * weight - lr * direction / root


@triton.jit
def _row_part(
    single, entry, run, values, more, scale, sums, leading, column, there, size,
    WITH_MORE: tl.constexpr,
):  # fmt: skip
    """Columns of a row's gradient: of its only entry, or of the sum of several."""
    if single:
        g = load_entry(entry, values, more, scale, leading, column, there, size, WITH_MORE)
    else:
        place = sums + run.to(tl.int64) * size + column
        g = tl.load(place, mask=there, other=0.0).to(tl.float32)
    return g


@triton.jit(
    do_not_specialize=["factor", "lr", "damping", "shrink", "step", "key", "aging", "momentum"]
)
def _update_rows(
    rows, entry_of, first, found, values, more, scale, sums, weight, moment, average, touched,
    factors, momenta, factor, lr, damping, shrink, step, key, aging, momentum, leading, size,
    length, LESS: tl.constexpr, LOG_BETA: tl.constexpr, AGING: tl.constexpr, MARK: tl.constexpr,
    BY_MEAN: tl.constexpr, ROUND: tl.constexpr, WITH_MORE: tl.constexpr, ADAM: tl.constexpr,
    FACTOR_ON_DEVICE: tl.constexpr, LR_ON_DEVICE: tl.constexpr, DAMPING_ON_DEVICE: tl.constexpr,
    SHRINK_ON_DEVICE: tl.constexpr, STEP_ON_DEVICE: tl.constexpr,
    GROUPS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One program a touched row, as (GROUPS, 4) columns at once: four share a draw of noise."""
    run = tl.program_id(0)
    if run < tl.load(found):
        row = tl.load(rows + run).to(tl.int64)
        known = (row >= 0) & (row < length)
        begin = tl.load(first + run)
        single = tl.load(first + run + 1) - begin == 1
        entry = tl.load(entry_of + begin).to(tl.int64)
        scaling = real(factor, FACTOR_ON_DEVICE)
        rate = real(lr, LR_ON_DEVICE)
        floor = real(damping, DAMPING_ON_DEVICE)
        lost = real(shrink, SHRINK_ON_DEVICE)
        now = whole(step, STEP_ON_DEVICE)
        age, inertia = aging, momentum
        if ADAM == 2:
            inertia = tl.load(momenta + run).to(tl.float32)
        if AGING == 1:
            age = tl.load(factors + run).to(tl.float32)
        if AGING == 2:
            waited = now - tl.load(touched + row, mask=known, other=0).to(tl.int64)
            age = tl.exp(waited.to(tl.float64) * LOG_BETA).to(tl.float32)
        if AGING == 3:
            age = tl.load(factors + row, mask=known, other=0.0).to(tl.float32)
        if MARK:
            tl.debug_barrier()  # every warp reads a number for itself: first all, then one writes
            tl.store(touched + row, now.to(tl.int32), mask=known)
        group = tl.arange(0, GROUPS)[:, None]
        lane = tl.arange(0, 4)[None, :]
        mean = 0.0
        if BY_MEAN:
            square = tl.zeros([GROUPS, 4], tl.float32)
            g = tl.zeros([GROUPS, 4], tl.float32)
            for part in range(PARTS):
                column = (part * GROUPS + group) * 4 + lane
                there = column < size
                g = _row_part(
                    single, entry, run, values, more, scale, sums, leading, column, there, size,
                    WITH_MORE,
                )  # fmt: skip
                g *= scaling
                square += g * g
            mean = tl.sum(tl.sum(square, 1), 0) / size
            mean = tl.load(moment + row, mask=known, other=0.0) * age + LESS * mean
            tl.debug_barrier()
            tl.store(moment + row, mean, mask=known)
        for part in range(PARTS):
            column = (part * GROUPS + group) * 4 + lane
            there = (column < size) & known
            if not BY_MEAN or PARTS > 1:  # else it is here already
                g = _row_part(
                    single, entry, run, values, more, scale, sums, leading, column, there, size,
                    WITH_MORE,
                )  # fmt: skip
                g *= scaling
            place = row * size + column
            old = tl.load(weight + place, mask=there, other=0.0).to(tl.float32)
            v = mean
            if not BY_MEAN:
                v = tl.load(moment + place, mask=there, other=0.0) * age + LESS * g * g
                tl.store(moment + place, v, mask=there)
            direction = g
            if ADAM:
                direction = inertia * tl.load(average + place, mask=there, other=0.0)
                direction += (1.0 - inertia) * g
                tl.store(average + place, direction, mask=there)
            new = _moved(old, direction, v, rate, floor, lost)
            if ROUND:
                bits = mix64(unsigned(key) + unsigned(now) + GOLDEN)
                quads = (size + 3) // 4
                stored = rounded(new, row, part * GROUPS + group, lane, quads, bits)
                tl.store(weight + place, stored, mask=there)
            else:
                tl.store(weight + place, new.to(weight.dtype.element_ty), mask=there)


def rounding_start(rounding: Rounding) -> int:
    """The key of seed and table, to which a kernel adds the step."""
    key = 0
    for given in (rounding.seed, rounding.table):
        key = mixed_on_host(key + given + GOLDEN.value)
    return signed(key)


class Momentum(NamedTuple):
    """The running mean of the gradients that Adam steps along, and the factor of the old one."""

    average: Tensor  # (V, h)
    factor: Tensor | float


def update_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: Sums,
    aging: Aging,
    update: RmsProp,
    momentum: Momentum | None = None,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment``, marks them where aging asks for it."""
    order, values, more, scale, sums, _ = gradient
    size = values.shape[1]
    block = block_of(size, _ROW)
    lr, lr_on_device = scalar(update.lr)
    factor, factor_on_device = scalar(update.factor)
    damping, damping_on_device = scalar(update.damping)
    shrink, shrink_on_device = scalar(update.shrink)
    step, step_on_device = scalar(update.rounding.step)
    average, inertia = (values, 0.0) if momentum is None else momentum
    each = isinstance(inertia, Tensor)
    launch(
        _update_rows,
        (len(order.entry),),
        (
            order.rows, order.entry, order.first, order.runs, values,
            values if more is None else more, values if scale is None else scale, sums,
            weight, moment, average, values if aging.touched is None else aging.touched,
            values if aging.factors is None else aging.factors, inertia if each else values,
            _real(factor), _real(lr), _real(damping), _real(shrink), step,
            rounding_start(update.rounding), float(aging.factor), 0.0 if each else float(inertia),
        ),
        (
            len(values), size, len(weight),
            1 - update.beta, math.log(max(aging.beta, 1e-300)), aging.kind,
            aging.touched is not None,
            moment.numel() == len(weight) and size > 1,
            weight.dtype == torch.bfloat16, more is not None,
            0 if momentum is None else 1 + each,
            factor_on_device, lr_on_device, damping_on_device, shrink_on_device, step_on_device,
            block // 4, tiles(size, block),
        ),
        num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip


def _real(value: float | Tensor) -> float | Tensor:
    """A number that a kernel must not take for a whole one."""
    return value if isinstance(value, Tensor) else float(value)


# ---------------------------------------------------------------------- the contract's functions


def collect_rows(rows: Tensor, values: Tensor, length: int) -> Sums | reference.RowGradient:
    """The gradient of a table with ``length`` rows; nobody waits to learn how many are touched."""
    if not len(rows):
        return reference.collect_rows(rows, values, length)
    flat = values.reshape(len(rows), -1).contiguous()
    return sum_rows(order_rows(rows), flat)


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and their sums; waits for the device, to learn how many."""
    if not len(rows):
        return reference.sum_duplicates(rows, values)
    gradient = sum_rows(order_rows(rows), values.reshape(len(rows), -1).contiguous())
    count = int(gradient.order.runs)
    first = gradient.order.first[: count + 1].long()
    single = (first[1:] - first[:-1] == 1)[:, None]
    alone = gradient.values[gradient.order.entry[first[:-1]]]
    sums = torch.where(single, alone, gradient.sums[:count])
    return gradient.rows[:count], sums.view(count, *values.shape[1:])


def squared_norm(gradient: Sums | reference.RowGradient | Tensor) -> Tensor:
    """The sum of the squares of a gradient, ()."""
    if isinstance(gradient, Sums):
        return gradient.squares.sum(dtype=torch.float64)
    return reference.squared_norm(gradient)


@triton.jit(do_not_specialize=["step"])
def _age(
    touched, rows, aging, step, count, length,
    LOG_BETA: tl.constexpr, STEP_ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    row = tl.load(rows + place, mask=there, other=-1).to(tl.int64)
    before = tl.load(rows + place - 1, mask=there & (place > 0), other=-1).to(tl.int64)
    # a row again is what fills up the array: the first has its number
    valid = there & (row != before) & (row >= 0) & (row < length)
    now = whole(step, STEP_ON_DEVICE)
    waited = now - tl.load(touched + row, mask=valid, other=0).to(tl.int64)
    tl.store(aging + place, tl.exp(waited.to(tl.float64) * LOG_BETA).to(tl.float32), mask=there)
    tl.store(touched + row, (tl.zeros_like(row) + now).to(tl.int32), mask=valid)


def exact_aging(touched: Tensor, rows: Tensor, step: Scalar, beta: float) -> Tensor:
    """beta^(steps since the last update) of each row, (U,) float32; marks the rows as updated."""
    aging = torch.empty(len(rows), device=rows.device)
    if not len(rows):
        return aging
    now, on_device = scalar(step)
    launch(
        _age,
        (tiles(len(rows), _FLAT),),
        (touched, rows.contiguous(), aging, now),
        (len(rows), len(touched), math.log(max(beta, 1e-300)), on_device, _FLAT),
    )
    return aging


def rmsprop_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: Sums | reference.RowGradient,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment`` in place."""
    if isinstance(gradient, Sums):  # else it touches no row
        update_rows(weight, moment, gradient, _eager_aging(aging), update)


def adam_rows(
    weight: Tensor,
    mean: Tensor,
    moment: Tensor,
    gradient: Sums | reference.RowGradient,
    momentum: Tensor | float,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates the touched rows of ``weight``, ``mean`` and ``moment`` in place."""
    if isinstance(gradient, Sums):
        inertia = momentum.reshape(-1).float() if isinstance(momentum, Tensor) else momentum
        average = Momentum(mean, inertia)
        update_rows(weight, moment, gradient, _eager_aging(aging), update, average)


def _eager_aging(aging: Tensor | float) -> Aging:
    if isinstance(aging, Tensor):
        return Aging(BY_ROW, factors=aging.reshape(-1).float().contiguous())
    return Aging(BY_NUMBER, aging)


@triton.jit(do_not_specialize=["factor", "lr", "damping", "shrink", "aging"])
def _update_dense(
    weight, moment, gradient, copy, live, factor, lr, damping, shrink, aging, count,
    LESS: tl.constexpr, FACTOR_ON_DEVICE: tl.constexpr, LR_ON_DEVICE: tl.constexpr,
    DAMPING_ON_DEVICE: tl.constexpr, SHRINK_ON_DEVICE: tl.constexpr,
    WITH_COPY: tl.constexpr, WITH_LIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    if WITH_LIVE:
        there = there & (tl.load(live) != 0)
    scaling = real(factor, FACTOR_ON_DEVICE)
    rate = real(lr, LR_ON_DEVICE)
    floor = real(damping, DAMPING_ON_DEVICE)
    g = tl.load(gradient + place, mask=there, other=0.0).to(tl.float32) * scaling
    old = tl.load(weight + place, mask=there, other=0.0)
    v = tl.load(moment + place, mask=there, other=0.0) * aging + LESS * g * g
    tl.store(moment + place, v, mask=there)
    new = _moved(old, g, v, rate, floor, real(shrink, SHRINK_ON_DEVICE))
    tl.store(weight + place, new, mask=there)
    if WITH_COPY:
        tl.store(copy + place, new.to(copy.dtype.element_ty), mask=there)


def update_dense(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    aging: float,
    update: RmsProp,
    copy: Tensor | None = None,
    live: Tensor | None = None,
) -> None:
    """Updates all of a float32 ``weight``; ``copy`` takes it in the type of products.

    Where ``live`` (1,) is 0, nothing changes.
    """
    lr, lr_on_device = scalar(update.lr)
    factor, factor_on_device = scalar(update.factor)
    damping, damping_on_device = scalar(update.damping)
    shrink, shrink_on_device = scalar(update.shrink)
    launch(
        _update_dense,
        (tiles(weight.numel(), _DENSE),),
        (
            weight, moment, gradient, weight if copy is None else copy,
            gradient if live is None else live,
            _real(factor), _real(lr), _real(damping), _real(shrink), float(aging),
        ),
        (
            weight.numel(), 1 - update.beta, factor_on_device, lr_on_device, damping_on_device,
            shrink_on_device, copy is not None, live is not None, _DENSE,
        ),
        num_warps=8,
    )  # fmt: skip


def rmsprop_dense(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    aging: Tensor | float,
    update: RmsProp,
) -> None:
    """Updates all of ``weight`` and ``moment`` in place."""
    plain = weight.dtype == torch.float32 and weight.is_contiguous()
    if isinstance(aging, Tensor) or not plain:
        reference.rmsprop_dense(weight, moment, gradient, aging, update)
    else:
        update_dense(weight, moment, gradient.contiguous(), aging, update)


@triton.jit
def _squares(gradient, partial, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gradient + place, mask=place < count, other=0.0).to(tl.float32)
    tl.store(partial + tl.program_id(0), tl.sum(g * g, 0))


def dense_slots(count: int) -> int:
    """How many partial sums of squares :func:`dense_squares` has."""
    return tiles(count, _DENSE)


def dense_squares(gradient: Tensor, partial: Tensor) -> None:
    """Partial sums of the squares of a gradient."""
    given, fixed = (gradient, partial), (gradient.numel(), _DENSE)
    launch(_squares, (len(partial),), given, fixed, num_warps=8)
