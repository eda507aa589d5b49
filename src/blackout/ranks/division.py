"""Which rank owns which rows of a table: whole strata, interleaved.

Row w lies in stratum w mod S, and stratum s belongs to rank s mod R. Contiguous ranges would give
the first of eight ranks 86 % of the draws, since words are numbered by falling count. S is fixed at
a run's start, R is not: rows move between ranks by whole strata, and what is drawn by strata is the
same for every number of ranks.

>>> half = Division(n_rows=10, strata=4, rank=1, size=2)
>>> half.rows(), half.length
(tensor([1, 3, 5, 7, 9]), 5)
>>> words = torch.tensor([7, 2, 9])
>>> half.owner(words), half.local(torch.tensor([7, 9]))
(tensor([1, 0, 1]), tensor([3, 4]))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ranks.group import Ranks

MOST_STRATA = 64


def strata_for(n_rows: int, samples: int | None = None) -> int:
    """How many strata: 64, or the largest power of two that rows (and samples) can fill.

    >>> strata_for(1_000_000, 500), strata_for(1_000_000, 50), strata_for(20)
    (64, 32, 16)
    """
    most = min(MOST_STRATA, n_rows, MOST_STRATA if samples is None else samples)
    return 1 << (most.bit_length() - 1)


class Division(NamedTuple):
    """The rows of a table of ``n_rows`` that rank ``rank`` of ``size`` owns, in ascending order."""

    n_rows: int
    strata: int
    rank: int
    size: int

    @property
    def own_strata(self) -> range:
        """The strata of this rank: row i of the rank's part lies in number ``i % len`` of them."""
        return range(self.rank, self.strata, self.size)

    @property
    def length(self) -> int:
        """How many rows the rank owns."""
        return self.before(self.n_rows)

    def before(self, word: int) -> int:
        """How many of the rank's rows come before that row of the whole table."""
        periods, rest = divmod(word, self.strata)
        return periods * len(self.own_strata) + sum(s < rest for s in self.own_strata)

    def rows(self, first: int = 0, end: int | None = None) -> Tensor:
        """The numbers in the whole table of local rows ``first`` … ``end - 1``, ascending."""
        local = torch.arange(first, self.length if end is None else end)
        return self.whole(local)

    def whole(self, local: Tensor) -> Tensor:
        """From rows of this rank's part to rows of the whole table."""
        own = len(self.own_strata)
        return local // own * self.strata + local % own * self.size + self.rank

    def owner(self, words: Tensor) -> Tensor:
        """The rank that owns each row."""
        return words % self.strata % self.size

    def local(self, words: Tensor) -> Tensor:
        """Where each row lies in its owner's part."""
        owner = words % self.strata % self.size
        shares = torch.tensor([len(self.of(r).own_strata) for r in range(self.size)])
        own = shares.to(words.device)[owner]
        return words // self.strata * own + words % self.strata // self.size

    def of(self, rank: int) -> Division:
        """The part of another rank."""
        return self._replace(rank=rank)


def divide(n_rows: int, ranks: Ranks, strata: int | None = None) -> Division:
    """A table of ``n_rows`` divided over ranks; those without a stratum to own are refused."""
    strata = strata_for(n_rows) if strata is None else strata
    if ranks.size > strata:
        raise UserError(f"{ranks.size} ranks cannot share {strata} strata of {n_rows} rows")
    return Division(n_rows, strata, ranks.rank, ranks.size)


class _Shared(NamedTuple):
    """What a parameter is to the group: a rank's rows, or a copy whose gradient is complete."""

    ranks: Ranks
    division: Division | None


_NAME = "_blackout_shared"


def mark_divided(parameter: nn.Parameter, ranks: Ranks, division: Division) -> None:
    """Says that a parameter holds this rank's rows only."""
    setattr(parameter, _NAME, _Shared(ranks, division))


def mark_complete(parameter: nn.Parameter, ranks: Ranks) -> None:
    """Says that every rank has this parameter, and gets its gradient over all ranks by itself."""
    setattr(parameter, _NAME, _Shared(ranks, None))


def division_of(parameter: Tensor) -> Division | None:
    """How a parameter is divided; None where every rank has all of it."""
    shared: _Shared | None = getattr(parameter, _NAME, None)
    return None if shared is None else shared.division


def is_complete(parameter: Tensor) -> bool:
    """Whether a gradient needs no adding up over ranks: rows at their owner, or a layer's own."""
    return getattr(parameter, _NAME, None) is not None


def ranks_of(parameters: Iterable[Tensor]) -> Ranks | None:
    """The ranks that parameters are divided over; None where none is divided."""
    shared = (getattr(p, _NAME, None) for p in parameters)
    return next((s.ranks for s in shared if s is not None and s.division is not None), None)
