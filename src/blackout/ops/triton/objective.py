"""The objectives J of sampled losses and their derivatives, in place of the logits.

One program a word: the target's logit, J, and the derivatives by all logits of its sample set. The
formulas, with a sample that was drawn m times as one column, are those of
:mod:`blackout.ops.reference.objectives`.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from blackout.ops.engine import Objective, Scalar
from blackout.ops.triton.launch import block_of, launch, scalar, tiles
from blackout.ops.triton.numbers import log1p, real

KINDS: dict[Objective, int] = {"blackout": 0, "blackout-noise": 1, "sampled": 2, "nce": 3}
MOST_COLUMNS = 1 << 15
"""More samples than that do not fit into the registers of one program."""


@triton.jit
def _blackout(z_target, z, copies, k):
    """Only one copy of one sample, the top, can have p > 1/2: a second softmax leaves it out."""
    z_top, place = tl.max(z, 0, return_indices=True)
    highest = tl.maximum(z_top, z_target)
    e = tl.exp(z - highest)
    e_target = tl.exp(z_target - highest)
    total = tl.sum(copies * e, 0) + e_target
    share = 1.0 / total
    p_top = tl.exp(z_top - highest) * share  # 0 where no sample is left
    p_target = e_target * share

    top = (k == place) & (copies > 0)
    left = tl.where(top, copies - 1.0, copies)
    z_rest = tl.where(left > 0, z, float("-inf"))
    rest_highest = tl.maximum(tl.max(z_rest, 0), z_target)
    e_rest = tl.exp(z_rest - rest_highest)
    e_rest_target = tl.exp(z_target - rest_highest)
    rest_total = tl.sum(left * e_rest, 0) + e_rest_target
    of_top = p_top / rest_total
    p_rest = tl.where(left > 0, e * share, 0.0)
    odds = p_rest / (1.0 - p_rest)
    odds_sum = tl.sum(left * odds, 0)

    log_miss_top = (rest_highest - highest) + (tl.log(rest_total) - tl.log(total))
    value = (z_target - highest) - tl.log(total) + log_miss_top + tl.sum(left * log1p(-p_rest), 0)
    d_target = 1.0 - p_target + p_target * odds_sum + e_rest_target * of_top
    d = left * (p_rest * (odds_sum - odds - 2.0) + e_rest * of_top)
    d += tl.where(top, p_top * (odds_sum - 2.0), 0.0)
    return value, d_target, d


@triton.jit
def _blackout_noise(z_target, z, copies):
    highest = tl.maximum(tl.max(z, 0), z_target)
    e_target = tl.exp(z_target - highest)
    e = tl.exp(z - highest)
    total = tl.sum(copies * e, 0) + e_target
    noise_highest = tl.max(z, 0)
    any_left = noise_highest > float("-inf")
    e_noise = tl.exp(z - tl.where(any_left, noise_highest, 0.0))
    noise_total = tl.sum(copies * e_noise, 0)
    share = e_noise / tl.where(any_left, noise_total, 1.0)
    p_noise = share / (1.0 + share)
    value = (z_target - highest) - tl.log(total) - tl.sum(copies * log1p(share), 0)
    d = copies * (share * tl.sum(copies * p_noise, 0) - p_noise - e / total)
    return value, 1.0 - e_target / total, d


@triton.jit
def _sampled(z_target, z, copies):
    highest = tl.maximum(tl.max(z, 0), z_target)
    e = tl.exp(z - highest)
    e_target = tl.exp(z_target - highest)
    total = tl.sum(copies * e, 0) + e_target
    value = (z_target - highest) - tl.log(total)
    return value, 1.0 - e_target / total, -copies * (e / total)


@triton.jit
def _log_sigmoid(x):
    return tl.minimum(x, 0.0) - log1p(tl.exp(-tl.abs(x)))


@triton.jit
def _nce(z_target, z, copies):
    each = tl.where(copies > 0, copies * _log_sigmoid(-z), 0.0)
    value = _log_sigmoid(z_target) + tl.sum(each, 0)
    return value, tl.sigmoid(-z_target), -copies * tl.sigmoid(z)


@triton.jit(do_not_specialize=["log_draws", "log_z"])
def _objective(
    logits, hidden, weight, bias, target, samples, copies_of, log_q_target, log_q_samples,
    counts, log_draws, log_z, value_out, d_target_out, d_log_z_out, length, words, columns, size,
    KIND: tl.constexpr, KEEP: tl.constexpr, WITH_BIAS: tl.constexpr, WITH_COPIES: tl.constexpr,
    WITH_COUNTS: tl.constexpr, LOG_Z_ON_DEVICE: tl.constexpr, SUM_LOG_Z: tl.constexpr,
    COLUMNS: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    group = n // words
    k = tl.arange(0, COLUMNS)
    there = k < columns
    place = logits + n * columns + k
    y = tl.load(target + n).to(tl.int64)
    known = (y >= 0) & (y < length)

    # all that is loaded first: what follows waits for all warps again and again
    u = tl.load(place, mask=there, other=0.0).to(tl.float32)
    log_q = tl.load(log_q_samples + group * columns + k, mask=there, other=0.0)
    log_q_i = tl.load(log_q_target + n)
    copies = there.to(tl.float32)
    if WITH_COPIES:
        copies = tl.load(copies_of + group * columns + k, mask=there, other=0.0)
    read = size
    if WITH_COUNTS:  # 1 for a word, 0 for none, whose state may be anything
        weight_of_word = tl.load(counts + n)
        counted = weight_of_word != 0
        read = tl.where(counted, size, 0)
    c = tl.arange(0, SIZE)
    product = tl.zeros([SIZE], tl.float32)
    for part in range(PARTS):
        column = part * SIZE + c
        inside = column < read
        s = tl.load(hidden + n * size + column, mask=inside, other=0.0).to(tl.float32)
        row = tl.load(weight + y * size + column, mask=inside & known, other=0.0)
        product += s * row.to(tl.float32)
    u_target = tl.where(known, tl.sum(product, 0), float("nan"))
    if WITH_BIAS or not KEEP:
        word = tl.load(samples + group * columns + k, mask=there, other=0).to(tl.int64)
    if WITH_BIAS:
        u_target += tl.load(bias + y, mask=known, other=0.0).to(tl.float32)
        inside = there & (word >= 0) & (word < length)
        u += tl.load(bias + word, mask=inside, other=0.0).to(tl.float32)
    constant = real(log_z, LOG_Z_ON_DEVICE) + log_draws
    if not KEEP:
        copies = tl.where(word == y, 0.0, copies)
    z = tl.where(copies > 0, u - (log_q + constant).to(tl.float32), float("-inf"))
    z_target = u_target - (log_q_i + constant).to(tl.float32)
    if KIND == 0:
        value, d_target, d = _blackout(z_target, z, copies, k)
    elif KIND == 1:
        value, d_target, d = _blackout_noise(z_target, z, copies)
    elif KIND == 2:
        value, d_target, d = _sampled(z_target, z, copies)
    else:
        value, d_target, d = _nce(z_target, z, copies)
    if WITH_COUNTS:
        value = tl.where(counted, value * weight_of_word, 0.0)
        d_target = tl.where(counted, d_target * weight_of_word, 0.0)
        d = tl.where(counted, d * weight_of_word, 0.0)
    if SUM_LOG_Z:
        tl.store(d_log_z_out + n, -(tl.sum(tl.where(there, d, 0.0), 0) + d_target))
    tl.store(value_out + n, value)
    tl.store(d_target_out + n, d_target)
    tl.store(place, d.to(logits.dtype.element_ty), mask=there)


def objective_in_place(
    logits: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    log_z: Scalar,
    words: tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor],
    objective: Objective,
    keep_copies: bool,
    draws: int,
    counts: Tensor | None = None,
    d_log_z: Tensor | None = None,
    value: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """J (G, M) and its derivatives by the targets' logits; those by ``logits`` replace them.

    ``words``: target (G, M), samples (G, C), multiplicity (G, C), log Q of targets and of samples;
    ``draws``: K. ``counts`` (G, M): a factor of each word. ``d_log_z`` (G, M) takes the
    derivatives by log Z, ``value`` J.
    """
    target, samples, copies, log_q_target, log_q_samples = words
    value = torch.empty(target.shape, device=hidden.device) if value is None else value
    d_target = torch.empty_like(value)
    columns, size = logits.shape[-1], hidden.shape[-1]
    block, some = block_of(columns), block_of(size, 4096)
    constant: Scalar = log_z if objective == "nce" else 0.0
    given, on_device = scalar(constant)
    launch(
        _objective,
        (target.numel(),),
        (
            logits, hidden, weight, weight if bias is None else bias, target, samples,
            logits if copies is None else copies, log_q_target, log_q_samples,
            value if counts is None else counts,
            math.log(draws) if objective == "nce" else 0.0, given if on_device else float(given),
            value, d_target, value if d_log_z is None else d_log_z,
        ),
        (
            len(weight), logits.shape[1], columns, size,
            KINDS[objective], keep_copies, bias is not None, copies is not None, counts is not None,
            on_device, d_log_z is not None, block, some, tiles(size, some),
        ),
        num_warps=max(2, min(32, block // 512)),
    )  # fmt: skip
    return value, d_target
