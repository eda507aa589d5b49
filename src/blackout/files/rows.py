"""Which rows of a table a tensor holds, where a table is divided into strata.

Row w of a table is in stratum w mod ``strata``. Whoever holds a part of a table holds whole strata;
in files rows are addressed by their stratum, so that any division can be read by any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Rows", "Slab"]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table of ``n_rows``: all of them, or ``owned``, ascending numbers.

    >>> rows = Rows(10, strata=4, owned=torch.tensor([1, 3, 5, 7, 9]))
    >>> rows.held
    [1, 3]
    >>> rows.places(1).tolist()  # of rows 1, 5 and 9 in the tensor that holds them
    [0, 2, 4]
    """

    n_rows: int
    strata: int
    owned: Tensor | None = None

    @cached_property
    def held(self) -> list[int]:
        """The strata that are here."""
        return [s for s in range(self.strata) if len(self.places(s))]

    def places(self, stratum: int) -> Tensor:
        """Where the rows of a stratum are in the tensor, in ascending order of their numbers."""
        if self.owned is None:
            return torch.arange(stratum, self.n_rows, self.strata)
        return self._by_stratum[stratum]

    @cached_property
    def _by_stratum(self) -> tuple[Tensor, ...]:
        assert self.owned is not None
        stratum = self.owned.cpu() % self.strata
        order = stratum.argsort(stable=True)
        sizes: list[int] = stratum.bincount(minlength=self.strata).tolist()
        return order.split(sizes)

    def between(self, first: int, last: int) -> tuple[slice, Tensor]:
        """The rows first … last - 1 that are here: their places, and their numbers from first."""
        if self.owned is None:
            return slice(first, last), torch.arange(last - first)
        numbers = self.owned.cpu()
        begin, end = torch.searchsorted(numbers, torch.tensor([first, last])).tolist()
        return slice(begin, end), numbers[begin:end] - first


class Slab:
    """The rows of one stratum of a tensor, which are put together when they are asked for."""

    def __init__(self, tensor: Tensor, places: Tensor) -> None:
        self.tensor, self.places = tensor, places

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.places), *self.tensor.shape[1:]))

    def put_together(self) -> Tensor:
        return self.tensor.detach()[self.places.to(self.tensor.device)]
