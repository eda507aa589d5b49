"""A mixture of proposals: each draw is from one of them, by chance.

    Q(w) = sum_i share_i Q_i(w)

Popularity alone hardly ever draws a rare word, uniform draws hardly ever a common one; some of
each sees both:

>>> from blackout.proposals import UnigramProposal
>>> counts = torch.tensor([97.0, 1.0, 1.0, 1.0])
>>> popular, uniform = UnigramProposal(counts, alpha=1.0), UnigramProposal(counts, alpha=0.0)
>>> mixture = MixtureProposal([popular, uniform], [0.8, 0.2])
>>> mixture.marginal()
tensor([0.8260, 0.0580, 0.0580, 0.0580], dtype=torch.float64)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsFloat

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.ops.reference import random_bits
from blackout.proposals.contract import Groups, Proposal

_APART = 0x5851F42D4C957F2D  # between the seeds of the parts


class MixtureProposal(Proposal):
    """``proposals`` over the same words, drawn from by their ``shares``, which add up to 1."""

    def __init__(self, proposals: Sequence[Proposal], shares: Sequence[float]) -> None:
        for part in proposals:
            if not isinstance(part, Proposal):
                raise UserError(f"a part of a mixture is a {type(part).__name__}, no Proposal")
        if len(proposals) != len(shares) or not proposals:
            raise UserError(f"{len(proposals)} proposals have {len(shares)} shares")
        if len({len(part) for part in proposals}) > 1:
            raise UserError("the proposals of a mixture must be over the same words")
        numbers = all(isinstance(share, SupportsFloat) for share in shares)
        if not numbers or any(not s > 0 for s in shares) or not math.isclose(sum(shares), 1):
            raise UserError(f"the shares {list(shares)} must be above 0 and add up to 1")
        super().__init__(len(proposals[0]))
        self.parts = nn.ModuleList(proposals)
        self.shares = [float(share) for share in shares]
        self.history_words = max(part.history_words for part in proposals)
        self.reads_text = any(part.reads_text for part in proposals)
        self.looks_at_states = any(part.looks_at_states for part in proposals)
        self.follows_model = any(part.follows_model for part in proposals)

    def _proposals(self) -> list[Proposal]:
        return [part for part in self.parts if isinstance(part, Proposal)]

    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        seeds = [(seed + (i + 1) * _APART) % 2**63 for i in range(len(self.parts))]
        drawn = torch.stack(
            [
                part.sample(own, step, groups, samples, impl)
                for own, part in zip(seeds, self._proposals(), strict=True)
            ]
        )
        bits = random_bits(seed, step, len(groups.target), samples, groups.target.device)
        ends = torch.tensor(self.shares, dtype=torch.float64).cumsum(0)[:-1].to(bits.device)
        which = torch.bucketize(bits.double() * 2.0**-53, ends, right=True)  # (G, K)
        return drawn.gather(0, which[None])[0]

    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        parts = [
            part.log_density(words, groups) + math.log(share)
            for part, share in zip(self._proposals(), self.shares, strict=True)
        ]
        return torch.stack(parts).logsumexp(0)

    def marginal(self) -> Tensor:
        parts = zip(self._proposals(), self.shares, strict=True)
        return torch.stack([share * part.marginal() for part, share in parts]).sum(0)

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        for part in self._proposals():
            part.read_text(context, follower)

    def adapt(self, root_mean_square: Tensor) -> None:
        self._distinct.clear()
        for part in self._proposals():
            part.adapt(root_mean_square)

    def see_rows(self, weight: Tensor, step: Scalar) -> None:
        for part in self._proposals():
            part.see_rows(weight, step)

    def follow(self, device: torch.device) -> None:
        for part in self._proposals():
            part.follow(device)

    def save_what_is_learned(self) -> None:
        for part in self._proposals():
            part.save_what_is_learned()
