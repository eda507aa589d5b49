"""What ranks need not ask each other: each is given the whole block and knows the others' part.

Without it a layer exchanges how many examples each rank has, their targets, the words to look up,
and the gradients of their objectives; the toolkit's step tells all that to its ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    """What the objectives of words (steps, N) count in the loss: ``each`` times ``scale``.

    Apart, so that products of matrices can take the common part along. Where ``each`` is 0 or 1
    nothing is rounded.
    """

    each: Tensor
    scale: float = 1.0

    def whole(self) -> Tensor:
        """Their product."""
        return self.each * self.scale


class Known(NamedTuple):
    """The block under way, the same on every rank."""

    inputs: list[Tensor]
    """(T, b) of each rank: the words that it looks up in one call."""
    targets: list[Tensor]
    """(T, b) of each rank, -1 where there is none."""
    divisor: float
    """By which each rank divides the sum of its objectives for its loss."""

    def columns(self, steps: int) -> list[int]:
        """How many columns each rank brings where its words are laid into so many steps."""
        return [part.numel() // steps for part in self.targets]

    def words(self, steps: int) -> Tensor:
        """The targets of all ranks side by side, (steps, N)."""
        shaped = (part.reshape(steps, part.numel() // steps) for part in self.targets)
        return torch.cat(list(shaped), 1)

    def factors(self, steps: int, dtype: torch.dtype) -> Factors:
        """The gradients of the objectives of all ranks, (steps, N)."""
        return Factors((self.words(steps) >= 0).to(dtype), -1 / self.divisor)
