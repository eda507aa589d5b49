"""Samples drawn stratum by stratum: as many from each for every block, so that ranks share evenly.

Word w lies in stratum w mod S. Stratum r has K_r places, fixed numbers, each filled from Q
restricted to the stratum, Q_r; a draw is a pure function of (seed, step, group, stratum, place), so
that a rank draws for its own strata only and line-ups are the same for every number of ranks.

The true word of an example takes the last place of its own stratum: with it there, the chance of a
line-up with the truth w at a place of stratum r is p(w) / (K_r Q_r(w)) times the Q of all places,
and the softmax of u - log(K_r Q_r) is the exact posterior of which one is true. Were the true word
added to K_r draws instead, the counts would give its stratum away. NCE keeps all draws: there the
noise for w is K_r Q_r(w).

>>> proposal = StrataProposal(torch.tensor([5, 2, 1, 1, 3]), alpha=1.0, samples=4, strata=2)
>>> proposal.places  # by mass: words 0, 2, 4 have 9 of 12
tensor([3, 1])
>>> proposal.draw_strata(7, 0, groups=2, strata=range(2)) % 2
tensor([[0, 0, 0, 1],
        [0, 0, 0, 1]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.ops.reference.sampling import random_bits_at
from blackout.proposals.contract import Groups
from blackout.proposals.unigram import UnigramProposal, alias_table

Places = Literal["mass", "equal"]


class StrataProposal(UnigramProposal):
    """Q_alpha in ``strata`` strata that share ``samples`` places.

    ``log_q`` (V,) is log(K_r Q_r) of each word. ``by``: places by the strata's mass, one each at
    least, or equal numbers.
    """

    tables: ClassVar[dict[str, torch.dtype]] = {**UnigramProposal.tables, "places": torch.int64}

    def __init__(
        self, counts: Tensor, alpha: float, samples: int, strata: int, by: Places = "mass"
    ) -> None:
        super().__init__(counts, alpha)
        if not strata <= min(samples, self.n_words):
            raise UserError(
                f"{strata} strata need as many samples and words, there are {samples} and "
                f"{self.n_words}"
            )
        q = self.log_q.exp()
        self.strata = strata
        mass = torch.stack([q[s::strata].sum() for s in range(strata)])
        self.places = shares(mass if by == "mass" else torch.ones_like(mass), samples)
        for s in range(strata):
            within = q[s::strata] / mass[s]
            threshold, alias = alias_table(within)
            self.log_q[s::strata] = (within * self.places[s]).log()
            self.threshold[s::strata] = threshold
            self.alias[s::strata] = alias * strata + s

    def draw_strata(self, seed: int, step: Scalar, groups: int, strata: Sequence[int]) -> Tensor:
        """(groups, places) words of some strata, one stratum after another."""
        device = self.alias.device
        some = torch.tensor(list(strata), device=device)
        stratum = some.repeat_interleave(self.places[some])  # of each place
        first = self.places[some].cumsum(0) - self.places[some]
        within = torch.arange(len(stratum), device=device)
        within -= first.repeat_interleave(self.places[some])
        bits = random_bits_at(seed, step, groups, (stratum << 25) + within)
        size = (self.n_words - stratum + self.strata - 1) // self.strata  # words of the stratum
        position = bits.double() * (size * 2.0**-53)
        column = torch.minimum(position.long(), size - 1)
        word = column * self.strata + stratum
        return torch.where(position - column < self.threshold[word], word, self.alias[word])

    def last_places(self, strata: Sequence[int]) -> Tensor:
        """Where in :meth:`draw_strata` the last place of each of these strata is."""
        return self.places[torch.tensor(list(strata), device=self.places.device)].cumsum(0) - 1

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        return self.draw_strata(seed, step, len(groups.target), range(self.strata))

    def marginal(self) -> Tensor:
        return self.log_q.exp() / int(self.places.sum())


def shares(mass: Tensor, total: int) -> Tensor:
    """``total`` in whole parts, one each at least, as near to ``mass`` as that allows.

    >>> shares(torch.tensor([8.0, 1.0, 0.1]), 10)
    tensor([8, 1, 1])
    """
    exact = mass.double() / mass.sum() * total
    parts = exact.long().clamp(min=1)
    while (left := total - int(parts.sum())) != 0:
        missing = exact - parts
        if left > 0:
            parts[missing.argsort(descending=True, stable=True)[:left]] += 1
        else:
            parts[missing.masked_fill(parts == 1, torch.inf).argmin()] -= 1
    return parts
