"""The words of all ranks in one call: (T, B), of which each rank brings some columns.

Ranks may bring different numbers of columns, none too: the last batch of an epoch is no exception.
"""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ranks import Ranks
from blackout.ranks.group import add
from blackout.ranks.known import Factors, Known

TRAINING = SAMPLED, FULL = 1, 2
"""What ranks do with the words that they train on."""


class Block:
    """(steps, columns) words of this rank among those of all.

    ``doing``: what this rank is about to do with them, a number; ranks that do different things at
    the same time would wait for each other for ever or mix up their numbers, and are refused.
    """

    def __init__(self, ranks: Ranks, steps: int, columns: int, doing: int) -> None:
        self.ranks, self.steps = ranks, steps
        self.columns = [columns]
        self.known: Known | None = None
        if ranks.size == 1:
            return
        known = ranks.known if doing in TRAINING else None
        self.known = known
        if known is not None:
            self.columns = known.columns(steps)
            assert self.columns[ranks.rank] == columns, "not the block that the ranks were told"
            return
        told = ranks.gather_numbers([steps, columns, doing])
        for rank, (others, _, does) in enumerate(told):
            if does != told[0][2]:
                raise UserError(f"rank {rank} calls the layer for another purpose than rank 0")
            if others != told[0][0]:
                raise UserError(f"rank {rank} has {others} time steps, rank 0 has {told[0][0]}")
        self.columns = [columns for _, columns, _ in told]

    @property
    def width(self) -> int:
        """B, the columns of all ranks."""
        return sum(self.columns)

    @property
    def lengths(self) -> list[int]:
        """How many words each rank brings."""
        return [self.steps * columns for columns in self.columns]

    def gather(self, part: Tensor, name: str) -> Tensor:
        """From this rank's (T, b, ...) to all ranks' (T, B, ...)."""
        flat = part.reshape(-1, *part.shape[2:])
        parts = self.ranks.gather_uneven(flat, self.lengths, name)
        shaped = zip(parts, self.columns, strict=True)
        return torch.cat([p.view(self.steps, b, *part.shape[2:]) for p, b in shaped], 1)

    def factors(self, grad: Tensor) -> Factors:
        """The gradients of all ranks' objectives, ``grad`` (T, b) being this rank's."""
        if self.known is not None:
            return self.known.factors(self.steps, grad.dtype)
        return Factors(self.gather(grad, "factors"))

    def mine(self, whole: Tensor) -> Tensor:
        """This rank's columns (T, b, ...) of (T, B, ...)."""
        return whole.split(self.columns, 1)[self.ranks.rank]

    def add_mine(self, whole: Tensor, name: str) -> Tensor:
        """The sum over ranks of this rank's columns (T, b, ...) of their (T, B, ...)."""
        parts = self.ranks.exchange(
            [part.reshape(-1, *whole.shape[2:]) for part in whole.split(self.columns, 1)],
            [self.lengths[self.ranks.rank]] * self.ranks.size,
            name,
        )
        return add(parts).view(self.steps, self.columns[self.ranks.rank], *whole.shape[2:])
