"""The proposal Q_alpha(w) proportional to p_uni(w)^alpha (paper eq. 11), drawn from in O(1).

Tables are built and kept in float64: a float32 cumulative table over a million words would leave
many words that can never be drawn.

>>> proposal = Proposal(torch.tensor([1, 2, 4]), alpha=1.0)
>>> proposal.log_q.exp()
tensor([0.1429, 0.2857, 0.5714], dtype=torch.float64)
>>> samples, log_q_samples, log_q_target = proposal.draw(
...     seed=1, step=0, target=torch.tensor([[0, 2, 1], [2, 2, 0]]), samples=5)
>>> samples.shape, log_q_target.exp()[0]
(torch.Size([2, 5]), tensor([0.1429, 0.5714, 0.2857], dtype=torch.float64))
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.dispatch import operations


class Groups(NamedTuple):
    """The words of a block in G groups of M; the words of a group share a sample set."""

    target: Tensor  # (G, M)
    context: Tensor | None = None  # (G, M), the input word before each target
    mask: Tensor | None = None  # (G, M), False where there is no word


class Draw(NamedTuple):
    """A sample set for each group, and log Q of the words in it and of the targets."""

    samples: Tensor  # (G, K)
    log_q_samples: Tensor  # (G, K)
    log_q_target: Tensor  # (G, M)


class Proposal(nn.Module):
    """Q_alpha of word counts, with its alias table.

    Draws are a pure function of (seed, step, group): the same whatever the threads and devices,
    and a resumed run goes on with the same sequence.

    Another proposal is a subclass with its own :meth:`sample`, :meth:`log_density` and
    :meth:`marginal`. The tables are no buffers: a layer that is cast to float32 keeps them.
    """

    def __init__(self, counts: Tensor, alpha: float) -> None:
        super().__init__()
        if not 0 <= alpha <= 1:
            raise UserError(f"alpha is {alpha}, must be between 0 and 1")
        counts = torch.as_tensor(counts).double().cpu()
        if counts.ndim != 1 or len(counts) == 0:
            raise UserError("counts must be a vector with one entry for each word")
        if not bool((counts > 0).all() & counts.isfinite().all()):
            word = int((~((counts > 0) & counts.isfinite())).nonzero()[0])
            raise UserError(f"the count of word {word} is {counts[word]}, must be above 0")
        powers = counts**alpha
        q = powers / powers.sum()
        threshold, alias = alias_table(q)
        self.alpha = alpha
        self.log_q = q.log()  # (V,)
        self.threshold = threshold  # (V,)
        self.alias = alias  # (V,)

    def __len__(self) -> int:
        return len(self.log_q)

    def extra_repr(self) -> str:
        return f"{len(self)}, alpha={self.alpha}"

    def follow(self, device: torch.device) -> None:
        """Moves the tables to where the layer computes."""
        if self.log_q.device != device:
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, value.to(device))

    def draw(
        self,
        seed: int,
        step: int,
        target: Tensor,
        samples: int,
        *,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        always: tuple[int, ...] = (),
        impl: str = "auto",
    ) -> Draw:
        """Sample sets of ``samples`` words and those of ``always``, for targets (G, M)."""
        groups = Groups(target, context, mask)
        words = self.sample(seed, step, groups, samples, impl)
        if always:
            words = torch.cat([words, words.new_tensor(always).expand(len(target), -1)], 1)
        return Draw(words, self.log_density(words, groups), self.log_density(target, groups))

    def sample(self, seed: int, step: int, groups: Groups, samples: int, impl: str) -> Tensor:
        """(G, samples) words, drawn with replacement."""
        return self.words(seed, step, len(groups.target), samples, impl)

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        """log of the chance of words (G, n) in a draw for their group."""
        return self.log_q[words]

    def marginal(self) -> Tensor:
        """How often a draw is expected to be each word (V,), whatever the group."""
        return self.log_q.exp()

    def words(self, seed: int, step: int, groups: int, samples: int, impl: str = "auto") -> Tensor:
        """(groups, samples) words of Q_alpha, drawn with replacement."""
        ops = operations(impl, self.alias.device)
        drawn: Tensor = ops.draw_samples(self.threshold, self.alias, seed, step, groups, samples)
        return drawn


def alias_table(q: Tensor) -> tuple[Tensor, Tensor]:
    """Thresholds and aliases (V,) of probabilities ``q`` (float64), without a loop over words.

    Scale so that the mean is 1. Words below 1 lack something, words above have something to give.
    Laid end to end, what is lacking and what is given are two divisions of the same length: a
    lacking word is filled by the giver in whose piece its own begins, and a giver whose piece ends
    inside a lacking word's is itself short by the overhang and filled by the next giver.
    """
    weight = q * len(q)
    threshold = weight.clamp(max=1.0)
    alias = torch.arange(len(q))
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
