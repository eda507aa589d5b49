"""Objectives J of z = u - log Q, with their derivatives (paper eqs. 6-10).

``copies`` (..., K), where it is given, says for how many equal samples each of the K stands: then
sums over samples weigh by it, and the derivative by a sample is that by all its copies together. A
sample with 0 copies counts for nothing, and neither does one with z = -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from blackout.ops.engine import Objective


class Objectives(NamedTuple):
    """J (G, M) of each word and its derivatives by the target's and the samples' logits."""

    value: Tensor  # (G, M)
    d_target: Tensor  # (G, M)
    d_samples: Tensor  # (G, M, K)


class _Softmax(NamedTuple):
    """The softmax over a target and samples; p is that of one copy.

    log-sum-exp is ``maximum + log_total``; the two stay apart, since a maximum of 1e4 would round
    the other away.
    """

    p_target: Tensor
    p_samples: Tensor
    maximum: Tensor
    log_total: Tensor

    @classmethod
    def of(cls, z_target: Tensor, z_samples: Tensor, copies: Tensor) -> _Softmax:
        z_samples = z_samples.masked_fill(copies <= 0, -math.inf)
        maximum = torch.maximum(z_target, z_samples.max(-1).values)
        e_target = (z_target - maximum).exp()
        e_samples = (z_samples - maximum[..., None]).exp()
        total = e_target + (copies * e_samples).sum(-1)
        return cls(e_target / total, e_samples / total[..., None], maximum, total.log())

    def log_p_target(self, z_target: Tensor) -> Tensor:
        return (z_target - self.maximum) - self.log_total


def _counted(z_samples: Tensor, copies: Tensor | None) -> tuple[Tensor, Tensor]:
    """z and copies (G, M, K), the z of what does not count at -inf."""
    if copies is None:
        return z_samples, torch.ones_like(z_samples)
    copies = copies.expand_as(z_samples)
    return z_samples.masked_fill(copies <= 0, -math.inf), copies


def blackout_objective(
    z_target: Tensor, z_samples: Tensor, copies: Tensor | None = None
) -> Objectives:
    """J = log p_i + sum_j log(1 - p_j), p the softmax over target and samples (paper eqs. 6-10).

    Only one sample, ``top``, one copy of it, can have p > 1/2; for it 1 - p would round to 0. So a
    second softmax leaves it out: its shares are the ratios p_k / (1 - p_top), and its log-sum-exp
    gives log(1 - p_top), without cancellation.
    """
    z_samples, copies = _counted(z_samples, copies)
    full = _Softmax.of(z_target, z_samples, copies)
    top = z_samples.argmax(-1, keepdim=True)
    left = copies.scatter_add(-1, top, -torch.ones_like(z_target)[..., None])  # without the one top
    rest = _Softmax.of(z_target, z_samples, left)
    p_top = full.p_samples.gather(-1, top)
    p_rest = full.p_samples.masked_fill(left <= 0, 0.0)  # of one copy
    odds = p_rest / (1 - p_rest)  # r_j = p_j / (1 - p_j); p_j <= 1/2 here, so r_j <= 1
    odds_sum = (left * odds).sum(-1, keepdim=True)

    log_miss_top = (rest.maximum - full.maximum) + (rest.log_total - full.log_total)  # log(1-p_top)
    value = full.log_p_target(z_target) + log_miss_top + (left * torch.log1p(-p_rest)).sum(-1)
    d_target = 1 - full.p_target + full.p_target * odds_sum[..., 0] + rest.p_target * p_top[..., 0]
    d_rest = left * (p_rest * (odds_sum - odds - 2) + rest.p_samples * p_top)
    d_top = p_top * (odds_sum - 2)
    return Objectives(value, d_target, d_rest.scatter_add(-1, top, d_top))


def blackout_noise_objective(
    z_target: Tensor, z_samples: Tensor, copies: Tensor | None = None
) -> Objectives:
    """BlackOut as the paper's section 2.2 reads: a negative j is compared with the noise only,

    1 - p_j = sum_S / (e^{z_j} + sum_S), the sum over all samples, j among them.
    """
    z_samples, copies = _counted(z_samples, copies)
    full = _Softmax.of(z_target, z_samples, copies)
    nothing = torch.full_like(z_target, -math.inf)
    noise = _Softmax.of(nothing, z_samples, copies)  # the samples alone
    share = torch.nan_to_num(noise.p_samples)  # 0 if no sample is left
    p_noise = share / (1 + share)
    value = full.log_p_target(z_target) - (copies * torch.log1p(share)).sum(-1)
    noise_sum = (copies * p_noise).sum(-1, keepdim=True)
    d_samples = copies * (share * noise_sum - p_noise - full.p_samples)
    return Objectives(value, 1 - full.p_target, d_samples)


def sampled_objective(
    z_target: Tensor, z_samples: Tensor, copies: Tensor | None = None
) -> Objectives:
    """J = log p_i alone: the sampled softmax, the paper's importance sampling (2.1)."""
    z_samples, copies = _counted(z_samples, copies)
    full = _Softmax.of(z_target, z_samples, copies)
    return Objectives(full.log_p_target(z_target), 1 - full.p_target, -copies * full.p_samples)


def nce_objective(
    delta_target: Tensor, delta_samples: Tensor, copies: Tensor | None = None
) -> Objectives:
    """J = log sigma(d_i) + sum_j log sigma(-d_j), with d = u - log Z - log(K Q)."""
    delta_samples, copies = _counted(delta_samples, copies)
    value = logsigmoid(delta_target) + (copies * logsigmoid(-delta_samples)).sum(-1)
    d_samples = -copies * torch.sigmoid(delta_samples)
    return Objectives(value, torch.sigmoid(-delta_target), d_samples)


ObjectiveFunction = Callable[..., Objectives]
"""Of z_target (G, M), z_samples (G, M, K) and copies."""

OBJECTIVES: dict[Objective, ObjectiveFunction] = {
    "blackout": blackout_objective,
    "blackout-noise": blackout_noise_objective,
    "sampled": sampled_objective,
    "nce": nce_objective,
}
