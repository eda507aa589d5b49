"""Objectives over samples that lie on several ranks: two rounds of a few numbers a word.

Each rank has z = u - log Q of all words against its own columns (G, M, C), ``copies`` of each, and
z of the targets whose rows it owns (-inf for others). The formulas are those of
:mod:`blackout.ops.reference.objectives`, to rounding: only one sample, the top, can have p near 1,
and it is kept apart, so that no 1 - p rounds to 0 and nothing overflows with z up to ± 1e4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from blackout.ops.reference.objectives import Objectives
from blackout.ranks import Ranks


class Total(NamedTuple):
    """A sum of exp(z) over ranks, as maximum + log(sum of exp(z - maximum))."""

    maximum: Tensor
    total: Tensor

    @classmethod
    def of(cls, *parts: tuple[Tensor, Tensor | float]) -> Total:
        """Of parts (maximum, sum relative to it), some of them -inf."""
        maximum = parts[0][0]
        for other, _ in parts[1:]:
            maximum = torch.maximum(maximum, other)
        maximum = maximum.clamp(min=torch.finfo(maximum.dtype).min)  # -inf - -inf is no number
        terms = [total * (m - maximum).exp() for m, total in parts]
        return cls(maximum, sum(terms[1:], terms[0]))

    def share(self, z: Tensor) -> Tensor:
        """exp(z) / sum, for z (G, M) or (G, M, C)."""
        if z.ndim == self.maximum.ndim:
            return (z - self.maximum).exp() / self.total
        return (z - self.maximum[..., None]).exp_() / self.total[..., None]

    def log_share(self, z: Tensor) -> Tensor:
        return (z - self.maximum) - self.total.log()


def _sum_of(z: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of z (..., C) and the sum of copies · exp(z - maximum); (-inf, 0) of nothing."""
    maximum = z.amax(-1)
    finite = maximum.clamp(min=torch.finfo(z.dtype).min)
    return maximum, (copies * (z - finite[..., None]).exp_()).sum(-1)


def gathered(ranks: Ranks, *numbers: Tensor) -> list[list[Tensor]]:
    """Some numbers a word (G, M) of each rank: a list by rank for each of them."""
    parts = ranks.gather(torch.stack(numbers), "round one")
    return [[part[i] for part in parts] for i in range(len(numbers))]


def largest(values: list[Tensor]) -> Tensor:
    """The largest over ranks."""
    return torch.stack(values).amax(0)


def blackout(z_target: Tensor, z: Tensor, copies: Tensor, ranks: Ranks) -> Objectives:
    """J = log p_i + sum_j log(1 - p_j), p the softmax over target and samples."""
    z = z.masked_fill(copies <= 0, -math.inf)
    top = z.argmax(-1, keepdim=True)
    z_top = z.gather(-1, top)[..., 0]
    left = copies.expand_as(z).scatter_add(-1, top, torch.full_like(z_top, -1.0)[..., None])
    rest = _sum_of(z.masked_fill(left <= 0, -math.inf), left.clamp(min=0))

    peaks, sums, tops, targets = gathered(ranks, *rest, z_top, z_target)
    z_i = largest(targets)
    leader = torch.stack(tops).argmax(0)  # the rank of the top; of equal ones the first
    z_top = largest(tops)
    others = [x.masked_fill(leader == rank, -math.inf) for rank, x in enumerate(tops)]
    without = Total.of((z_i, 1.0), *zip(peaks, sums, strict=True), *[(x, 1.0) for x in others])
    full = Total.of(without, (z_top, 1.0))
    p_i, p_top, top_ratio = full.share(z_i), full.share(z_top), without.share(z_i)
    log_miss_top = (without.maximum - full.maximum) + (without.total / full.total).log()

    leads = (leader == ranks.rank)[..., None]
    left = torch.where(leads, left, copies)  # what is here besides the one top
    z = z.masked_fill(left <= 0, -math.inf)
    p = full.share(z)  # at most 1/2
    odds = p / (1 - p)
    here = torch.stack([(left * odds).sum(-1), (left * torch.log1p(-p)).sum(-1)])
    odds_sum, log_misses = ranks.sum_in_order(here, "round two").unbind(0)

    value = full.log_share(z_i) + log_miss_top + log_misses
    d_target = 1 - p_i + p_i * odds_sum + top_ratio * p_top
    d = left * (p * (odds_sum[..., None] - odds - 2) + without.share(z) * p_top[..., None])
    d_top = (p_top * (odds_sum - 2))[..., None]
    return Objectives(value, d_target, d.scatter_add(-1, top, torch.where(leads, d_top, 0.0)))


def blackout_noise(z_target: Tensor, z: Tensor, copies: Tensor, ranks: Ranks) -> Objectives:
    """A negative is compared with the noise only: 1 - p_j = S / (exp(z_j) + S), S over samples."""
    z = z.masked_fill(copies <= 0, -math.inf)
    peaks, sums, targets = gathered(ranks, *_sum_of(z, copies), z_target)
    z_i = largest(targets)
    noise = Total.of(*zip(peaks, sums, strict=True))
    full = Total.of((z_i, 1.0), noise)
    share = torch.nan_to_num(noise.share(z))  # 0 if no sample is left
    p_noise = share / (1 + share)
    here = torch.stack([(copies * torch.log1p(share)).sum(-1), (copies * p_noise).sum(-1)])
    log_sum, noise_sum = ranks.sum_in_order(here, "round two").unbind(0)
    d = copies * (share * noise_sum[..., None] - p_noise - full.share(z))
    return Objectives(full.log_share(z_i) - log_sum, 1 - full.share(z_i), d)


def sampled(z_target: Tensor, z: Tensor, copies: Tensor, ranks: Ranks) -> Objectives:
    """J = log p_i alone: one round."""
    z = z.masked_fill(copies <= 0, -math.inf)
    peaks, sums, targets = gathered(ranks, *_sum_of(z, copies), z_target)
    z_i = largest(targets)
    full = Total.of((z_i, 1.0), *zip(peaks, sums, strict=True))
    return Objectives(full.log_share(z_i), 1 - full.share(z_i), -copies * full.share(z))


def nce(z_target: Tensor, z: Tensor, copies: Tensor, ranks: Ranks) -> Objectives:
    """J = log sigma(z_i) + sum_j log sigma(-z_j), z = u - log Z - log(K Q): derivatives need no
    other rank; only the value is added up."""
    here = torch.where(z_target == -math.inf, 0.0, logsigmoid(z_target))
    here = here + (copies * logsigmoid(-z)).sum(-1)
    value = ranks.sum_in_order(here, "values")
    return Objectives(value, torch.sigmoid(-z_target), -copies * torch.sigmoid(z))


DividedObjective = Callable[[Tensor, Tensor, Tensor, Ranks], Objectives]

ROUNDS: dict[str, DividedObjective] = {
    "blackout": blackout,
    "blackout-noise": blackout_noise,
    "sampled": sampled,
    "nce": nce,
}
