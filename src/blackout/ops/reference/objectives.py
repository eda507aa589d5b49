"""Objectives J of z = u - log Q, with their derivatives (paper eqs. 6-10)."""

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


def _softmax(z_target: Tensor, z_samples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Softmax over target and samples: (p_target, p_samples, maximum, log of the shifted total).

    log-sum-exp is ``maximum + log_total``; the two stay apart, since a maximum of 1e4 would round
    the other away.
    """
    maximum = torch.maximum(z_target, z_samples.max(-1).values)
    e_target = (z_target - maximum).exp()
    e_samples = (z_samples - maximum[..., None]).exp()
    total = e_target + e_samples.sum(-1)
    return e_target / total, e_samples / total[..., None], maximum, total.log()


def blackout_objective(z_target: Tensor, z_samples: Tensor) -> Objectives:
    """J = log p_i + sum_j log(1 - p_j), p the softmax over target and samples (paper eqs. 6-10).

    A sample that must not count (a copy of the target) has z = -inf. Only one sample, ``top``, can
    have p > 1/2; for it 1 - p would round to 0. So a second softmax leaves it out: its shares are
    the ratios p_k / (1 - p_top), and its log-sum-exp gives log(1 - p_top), without cancellation.
    """
    p_target, p_samples, maximum, log_total = _softmax(z_target, z_samples)
    top = z_samples.argmax(-1, keepdim=True)
    rest = z_samples.scatter(-1, top, -math.inf)  # (G, M, K) without the top sample
    share_target, share_rest, rest_maximum, rest_log_total = _softmax(z_target, rest)
    p_top = p_samples.gather(-1, top)
    p_rest = p_samples.scatter(-1, top, 0.0)
    odds = p_rest / (1 - p_rest)  # r_j = p_j / (1 - p_j); p_j <= 1/2 here, so r_j <= 1
    odds_sum = odds.sum(-1, keepdim=True)

    log_p_target = (z_target - maximum) - log_total
    log_miss_top = (rest_maximum - maximum) + (rest_log_total - log_total)  # log(1 - p_top)
    value = log_p_target + log_miss_top + torch.log1p(-p_rest).sum(-1)
    d_target = 1 - p_target + p_target * odds_sum[..., 0] + share_target * p_top[..., 0]
    d_rest = p_rest * (odds_sum - odds - 2) + share_rest * p_top
    d_top = p_top * (odds_sum - 2)
    return Objectives(value, d_target, d_rest.scatter(-1, top, d_top))


def blackout_noise_objective(z_target: Tensor, z_samples: Tensor) -> Objectives:
    """BlackOut as the paper's section 2.2 reads: a negative j is compared with the noise only,

    1 - p_j = sum_S / (e^{z_j} + sum_S), the sum over all samples, j among them.
    """
    p_target, p_samples, maximum, log_total = _softmax(z_target, z_samples)
    share = torch.nan_to_num(z_samples.softmax(-1))  # over the samples alone; 0 if none is left
    p_noise = share / (1 + share)
    value = (z_target - maximum) - log_total - torch.log1p(share).sum(-1)
    d_samples = share * p_noise.sum(-1, keepdim=True) - p_noise - p_samples
    return Objectives(value, 1 - p_target, d_samples)


def sampled_objective(z_target: Tensor, z_samples: Tensor) -> Objectives:
    """J = log p_i alone: the sampled softmax, the paper's importance sampling (2.1)."""
    p_target, p_samples, maximum, log_total = _softmax(z_target, z_samples)
    return Objectives((z_target - maximum) - log_total, 1 - p_target, -p_samples)


def nce_objective(delta_target: Tensor, delta_samples: Tensor) -> Objectives:
    """J = log sigma(d_i) + sum_j log sigma(-d_j), with d = u - log Z - log(K Q)."""
    value = logsigmoid(delta_target) + logsigmoid(-delta_samples).sum(-1)
    return Objectives(value, torch.sigmoid(-delta_target), -torch.sigmoid(delta_samples))


OBJECTIVES: dict[Objective, Callable[[Tensor, Tensor], Objectives]] = {
    "blackout": blackout_objective,
    "blackout-noise": blackout_noise_objective,
    "sampled": sampled_objective,
    "nce": nce_objective,
}
