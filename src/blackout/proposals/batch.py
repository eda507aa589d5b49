"""In-batch negatives: samples are targets of the block itself.

Targets come as the text has them, so a random one of them is a draw from the unigram
distribution: that is the log Q correction, exact on average over blocks. No word is drawn that is
not a row of the block already.

>>> proposal = BatchProposal(torch.ones(9), alpha=0.4)
>>> target = torch.tensor([[3, 3, 5], [3, 7, 7]])
>>> samples = proposal.draw(seed=1, step=0, target=target, samples=50).samples
>>> samples.shape, samples.unique()
(torch.Size([2, 50]), tensor([3, 5, 7]))
"""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.ops.engine import Scalar
from blackout.ops.reference import random_below, random_bits
from blackout.proposals.contract import Groups
from blackout.proposals.unigram import UnigramProposal


class BatchProposal(UnigramProposal):
    """Draws from the block's targets, with replacement; ``alpha`` has no meaning here."""

    def __init__(self, counts: Tensor, alpha: float = 1.0) -> None:
        super().__init__(counts, 1.0)

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        return draw_targets(pool_of(groups), seed, step, len(groups.target), samples)


def pool_of(groups: Groups) -> Tensor:
    """The targets of a block that count, (N,); all of them where none does."""
    target, mask = groups.target, groups.mask
    pool = target.flatten()
    if mask is not None and bool(mask.any()):
        pool = pool[mask.flatten()]
    return pool


def draw_targets(pool: Tensor, seed: int, step: Scalar, groups: int, samples: int) -> Tensor:
    """(G, K) of a block's targets (N,), drawn with replacement; of a block without any, word 0."""
    if not pool.numel():
        return pool.new_zeros(groups, samples)
    bits = random_bits(seed, step, groups, samples, pool.device)
    return torch.take(pool, random_below(bits, len(pool)))
