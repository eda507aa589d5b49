"""A proposal that follows the model: what it gives probability to is drawn.

Importance sampling estimates sums over the vocabulary of p(w | s) f(w). Among the distributions
that are the same for all s, the variance is least for

    Q(w) proportional to sqrt(mean over s of p(w | s)²),

here over some hidden states s of the training text, with a tenth of Q_alpha so that no word is out
of reach. Before :meth:`ModelProposal.adapt` is first called, Q is Q_alpha.

>>> proposal = ModelProposal(torch.ones(4), alpha=0.0)
>>> proposal.adapt(torch.tensor([0.6, 0.2, 0.1, 0.1]))
>>> target = torch.tensor([[0, 3]])
>>> proposal.draw(seed=1, step=0, target=target, samples=9).log_q_target.exp()
tensor([[0.5650, 0.1150]], dtype=torch.float64)
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from blackout.ops.engine import Scalar
from blackout.ops.reference import random_bits
from blackout.proposals.contract import Groups
from blackout.proposals.unigram import UnigramProposal

_ONE = 2**53
_FREE = 0.1  # the share of Q_alpha


class ModelProposal(UnigramProposal):
    """Drawn through its cumulative distribution, which is saved: resumed runs draw the same.

    The distribution is kept in units of 2**-53 as integers: word w is drawn by the numbers
    ``edges[w]`` … ``edges[w + 1] - 1``.
    """

    follows_model = True
    tables: ClassVar[dict[str, torch.dtype]] = {**UnigramProposal.tables, "edges": torch.int64}
    learned = frozenset({"edges"})

    def __init__(self, counts: Tensor, alpha: float) -> None:
        super().__init__(counts, alpha)
        self.edges = _edges(self.log_q.exp())  # (V + 1,)

    def adapt(self, root_mean_square: Tensor) -> None:
        """Takes over the model's sqrt(mean p²) (V,), up to a factor."""
        share = root_mean_square.double()
        share = (1 - _FREE) * share / share.sum() + _FREE * self.log_q.exp()
        self.edges.copy_(_edges(share))
        self._distinct.clear()

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        bits = random_bits(seed, step, len(groups.target), samples, self.edges.device)
        return torch.searchsorted(self.edges[1:], bits, right=True)

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        return ((self.edges[words + 1] - self.edges[words]).double() / _ONE).log()

    def marginal(self) -> Tensor:
        return self.edges.diff().double() / _ONE


def _edges(share: Tensor) -> Tensor:
    """Cumulative probabilities (V + 1,) of ``share`` (V,), as integers; none has nothing."""
    share = share.clamp(min=4 / _ONE)
    ends = (share.cumsum(0) / share.sum() * _ONE).round().long()
    ends[-1] = _ONE
    return torch.cat([ends.new_zeros(1), ends])
