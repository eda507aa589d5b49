"""In-batch negatives without counts: how frequent a class is, is learned as classes come.

The correction needs Q(w), the share of w among the targets. Where nobody has counted them it is
estimated from the gaps between the occurrences of a class (Yi et al. 2019): a class that comes on
average every g targets has a share of 1/g. Here g is the mean of all gaps so far while these are
few, and a running mean with memory of about ``1 / rate`` of them later, so that it follows
frequencies that change. What a step costs follows the batch, not the number of classes.

>>> proposal = InBatchProposal(1000)
>>> target = torch.tensor([[3, 3, 5, 3]])
>>> for step in range(50):
...     drawn = proposal.draw(seed=1, step=step, target=target, samples=2)
>>> drawn.samples.unique(), drawn.log_q_target.exp()
(tensor([3]), tensor([[0.7500, 0.7500, 0.2500, 0.7500]], dtype=torch.float64))
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.proposals.batch import draw_targets, pool_of
from blackout.proposals.contract import Groups, Proposal


class InBatchProposal(Proposal):
    """Draws from the block's targets; their frequencies are estimated on the way, and saved.

    ``rate``: the weight of a new gap in the mean, once there are more than ``1 / rate`` of them.
    A class that was never seen is taken for one of ``n_words`` equally frequent ones.
    """

    tables: ClassVar[dict[str, torch.dtype]] = {
        "gap": torch.float64,
        "seen": torch.int64,
        "last": torch.int64,
        "now": torch.int64,
    }
    learned = frozenset(tables)

    def __init__(self, n_words: int, rate: float = 0.01) -> None:
        if not 0 < rate < 1:
            raise UserError(f"rate is {rate}, must be between 0 and 1")
        super().__init__(n_words)
        self.rate = rate
        self.gap = torch.full((n_words,), float(n_words), dtype=torch.float64, device="cpu")  # (V,)
        self.seen = torch.zeros(n_words, dtype=torch.int64, device="cpu")  # (V,), occurrences
        self.last = torch.zeros(n_words, dtype=torch.int64, device="cpu")  # (V,), when it came
        self.now = torch.zeros((), dtype=torch.int64, device="cpu")  # (), targets so far

    def extra_repr(self) -> str:
        return f"{len(self)}, rate={self.rate}"

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        pool = pool_of(groups)
        if pool.numel():
            self.observe(pool)
        return draw_targets(pool, seed, step, len(groups.target), samples)

    def observe(self, targets: Tensor) -> None:
        """Takes in the targets (N,) of a block, as if each class came evenly spread over it."""
        words, times = targets.unique(return_counts=True)
        self.now += targets.numel()
        gap = (self.now - self.last[words]).double() / times
        self.seen[words] += times
        weight = torch.maximum(times / self.seen[words].double(), 1 - (1 - self.rate) ** times)
        self.gap[words] += weight * (gap - self.gap[words])
        self.last[words] = self.now

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        return -self.gap[words].log()

    def marginal(self) -> Tensor:
        share = 1 / self.gap
        return share / share.sum()

    def distinct_share(self, samples: int) -> float:
        """Unknown, and changing; a batch is small: copies are worth a look."""
        return 0.0
