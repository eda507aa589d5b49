"""The proposal Q_alpha(w) proportional to p_uni(w)^alpha (paper eq. 11), drawn from in O(1).

Tables are built and kept in float64: a float32 cumulative table over a million words would leave
many words that can never be drawn.

>>> proposal = UnigramProposal(torch.tensor([1, 2, 4]), alpha=1.0)
>>> proposal.log_q.exp()
tensor([0.1429, 0.2857, 0.5714], dtype=torch.float64)
>>> samples, log_q_samples, log_q_target = proposal.draw(
...     seed=1, step=0, target=torch.tensor([[0, 2, 1], [2, 2, 0]]), samples=5)
>>> samples.shape, log_q_target.exp()[0]
(torch.Size([2, 5]), tensor([0.1429, 0.5714, 0.2857], dtype=torch.float64))
"""

from __future__ import annotations

from typing import ClassVar, SupportsFloat

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Scalar
from blackout.proposals.contract import Groups, Proposal


class UnigramProposal(Proposal):
    """Q_alpha of word counts, with its alias table."""

    tables: ClassVar[dict[str, torch.dtype]] = {
        "log_q": torch.float64,
        "threshold": torch.float64,
        "alias": torch.int64,
    }
    one_a_word = frozenset(tables)

    def __init__(self, counts: Tensor, alpha: float) -> None:
        if not isinstance(alpha, SupportsFloat) or not 0 <= float(alpha) <= 1:
            raise UserError(f"alpha is {alpha!r}, must be between 0 and 1")
        counts = torch.as_tensor(counts, device="cpu").double()  # whatever the default device
        if counts.ndim != 1 or len(counts) == 0:
            raise UserError("counts must be a vector with one entry for each word")
        if not bool((counts > 0).all() & counts.isfinite().all()):
            word = int((~((counts > 0) & counts.isfinite())).nonzero()[0])
            raise UserError(f"the count of word {word} is {counts[word]}, must be above 0")
        super().__init__(len(counts))
        powers = counts**alpha
        q = powers / powers.sum()
        threshold, alias = alias_table(q)
        self.alpha = alpha
        self.log_q = q.log()  # (V,)
        self.threshold = threshold  # (V,)
        self.alias = alias  # (V,)

    def extra_repr(self) -> str:
        return f"{len(self)}, alpha={self.alpha}"

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        return self.words(seed, step, len(groups.target), samples, impl)

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        return self.log_q[words]

    def marginal(self) -> Tensor:
        return self.log_q.exp()

    def words(
        self, seed: int, step: Scalar, groups: int, samples: int, impl: str = "auto"
    ) -> Tensor:
        """(groups, samples) words of Q_alpha, drawn with replacement."""
        engine = engine_for(impl, self.alias.device)
        return engine.draw_samples(self.threshold, self.alias, seed, step, groups, samples)


def alias_table(q: Tensor) -> tuple[Tensor, Tensor]:
    """Thresholds and aliases (V,) of probabilities ``q`` (float64), without a loop over words.

    Scale so that the mean is 1. Words below 1 lack something, words above have something to give.
    Laid end to end, what is lacking and what is given are two divisions of the same length: a
    lacking word is filled by the giver in whose piece its own begins, and a giver whose piece ends
    inside a lacking word's is itself short by the overhang and filled by the next giver.
    """
    weight = q * len(q)
    threshold = weight.clamp(max=1.0)
    alias = torch.arange(len(q), device=q.device)
    lacking = (weight < 1).nonzero()[:, 0]
    giving = (weight >= 1).nonzero()[:, 0]
    if len(lacking) == 0 or len(giving) == 0:  # uniform up to rounding
        return torch.ones_like(threshold), alias
    lack_end = (1 - weight[lacking]).cumsum(0)
    give_end = (weight[giving] - 1).cumsum(0)

    lack_start = torch.cat([lack_end.new_zeros(1), lack_end[:-1]])
    giver = torch.searchsorted(give_end, lack_start).clamp(max=len(giving) - 1)
    alias[lacking] = giving[giver]

    filled = torch.searchsorted(lack_end, give_end, right=True)  # first piece that ends later
    short = filled < len(lacking)
    short[-1] = False  # the last giver has no successor: what is missing there is rounding
    overhang = lack_end[filled[short]] - give_end[short]
    threshold[giving[short]] = (1 - overhang).clamp(0, 1)
    alias[giving[:-1][short[:-1]]] = giving[1:][short[:-1]]
    return threshold, alias
