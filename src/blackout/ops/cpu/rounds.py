"""BlackOut against the columns of one rank, in three rounds of native code around two exchanges.

:mod:`blackout.output.divided.native` makes the exchanges and says what the numbers between mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import buffer, floats, integers, numbers


class Rounds:
    """The logits (G, M, C) of words against columns; they become derivatives where they lie.

    ``offset`` and ``copies`` (G, C): log Q - bias, and how often a column counts. ``replaced``
    (G, M): a column of which one copy less counts for a word, -1 for none.
    """

    def __init__(
        self, logits: Tensor, offset: Tensor, copies: Tensor, replaced: Tensor | None
    ) -> None:
        self.logits = logits
        self.offset, self.copies = offset.float().contiguous(), copies.float().contiguous()
        self.replaced = None if replaced is None else replaced.contiguous()
        half = logits.dtype == torch.bfloat16
        self.e = buffer(tuple(logits.shape), torch.float32) if half else logits
        self._new = lambda: torch.empty(logits.shape[:2], dtype=torch.float32)

    def one(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maximum and sum of the rest, z of the top and copies left of it, (G, M) each."""
        found = tuple(self._new() for _ in range(4))
        self.top = torch.empty(self.logits.shape[:2], dtype=torch.int64)
        self._run(1, found, (self.top,))
        peak, rest, top_z, left = found
        return peak, rest, top_z, left

    def two(self, to_p: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of odds p / (1 - p) and of -log(1 - p), (G, M), with p = e · ``to_p``."""
        odds, miss = self._new(), self._new()
        self._run(2, (), (), (to_p, odds, miss))
        return odds, miss

    def three(self, to_p: Tensor, odds_sum: Tensor, to_share: Tensor, d_top: Tensor) -> Tensor:
        """Derivatives (G, M, C), in the type of the logits; ``d_top``: that by the top's column."""
        self._run(3, (), (self.top,), (to_p, None, None, odds_sum, to_share, d_top))
        return self.logits

    def _run(
        self,
        number: int,
        found: tuple[Tensor, ...],
        top: tuple[Tensor, ...],
        given: tuple[Tensor | None, ...] = (),
    ) -> None:
        groups, words, columns = self.logits.shape
        told = [*given, *[None] * (6 - len(given))]
        _native.rounds(
            number,
            words,
            groups * words,
            columns,
            *numbers(self.logits),
            floats(self.offset),
            floats(self.copies),
            0 if self.replaced is None else integers(self.replaced),
            floats(self.e),
            *(floats(x) for x in found),
            *[0] * (4 - len(found)),
            integers(top[0]) if top else 0,
            *(0 if x is None else floats(x) for x in told),
            numbers(self.logits)[0],
            torch.get_num_threads(),
        )
