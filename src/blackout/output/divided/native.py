"""The two rounds of BlackOut with native code for all that has a number for each column.

The same formulas as :func:`blackout.output.divided.rounds.blackout`. Here are the numbers that a
word has once. A rank's own top is apart from its other columns: it may be the top of all, which is
kept apart, or belong to the rest.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from blackout.ops.cpu.rounds import Rounds
from blackout.ops.reference.objectives import Objectives
from blackout.output.divided.rounds import Total, gathered, largest
from blackout.ranks import Ranks


def blackout(z_target: Tensor, rounds: Rounds, ranks: Ranks) -> Objectives:
    """J (G, M) with its derivatives by the targets' z and by this rank's columns."""
    peak, rest, own_top, left = rounds.one()
    peaks, sums, tops, targets = gathered(ranks, peak, rest, own_top, z_target)
    z_i, z_top = largest(targets), largest(tops)
    leader = torch.stack(tops).argmax(0)
    leads = leader == ranks.rank
    others = [x.masked_fill(leader == rank, -math.inf) for rank, x in enumerate(tops)]
    without = Total.of((z_i, 1.0), *zip(peaks, sums, strict=True), *[(x, 1.0) for x in others])
    full = Total.of(without, (z_top, 1.0))
    p_i, p_top, top_ratio = full.share(z_i), full.share(z_top), without.share(z_i)
    log_miss_top = (without.maximum - full.maximum) + (without.total / full.total).log()

    # e is relative to the peak; where there is no rest, it is 0
    to_p, to_share = full.share(peak), without.share(peak) * p_top
    odds, miss = rounds.two(to_p)
    p_own = full.share(own_top).masked_fill(leads & (left == 0), 0)  # of a copy in the rest
    own_odds = p_own / (1 - p_own)
    alone = left == 0
    # the sums have all copies of the own top but where it is alone, when they have none
    too_few = torch.where(alone & ~leads, 1.0, 0.0) - torch.where(~alone & leads, 1.0, 0.0)
    here = torch.stack([odds + too_few * own_odds, -miss - too_few * torch.log1p(own_odds)])
    odds_sum, log_misses = ranks.sum_in_order(here, "round two").unbind(0)

    in_rest = left + torch.where(leads, 0.0, 1.0)
    share = torch.where(in_rest > 0, without.share(own_top), 0.0) * p_top
    d_top = torch.where(in_rest > 0, in_rest * (p_own * (odds_sum - own_odds - 2) + share), 0.0)
    d_top = d_top + torch.where(leads, p_top * (odds_sum - 2), 0.0)
    value = full.log_share(z_i) + log_miss_top + log_misses
    d_target = 1 - p_i + p_i * odds_sum + top_ratio * p_top
    return Objectives(value, d_target, rounds.three(to_p, odds_sum, to_share, d_top))
