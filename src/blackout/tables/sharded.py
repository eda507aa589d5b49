"""A table of word vectors divided over ranks: each holds the rows of its strata only.

The same table as :class:`~blackout.tables.Table` on one process, row for row and bit for bit, in
another place: a row's initial value follows seed, number and column. Lookup sends each word once to
its owner, whose row comes back; gradients take the same way in reverse and are added at the owner,
in rank order.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from blackout.ops.autograd import first_derivatives_only
from blackout.ops.engine import Engine
from blackout.ranks import Division, Ranks, divide
from blackout.ranks.division import mark_divided
from blackout.tables.local import Table


class ShardedTable(Table):
    """This rank's rows of a table of ``n_rows`` rows of ``size`` numbers (None: one number).

    All ranks make it, look it up and go back through it together. ``weight`` holds the rows
    ``owned``, ascending: those of the rank's strata (:class:`~blackout.ranks.Division`).
    ``strata``: how many there are; None for what ``n_rows`` asks for. Of a lookup each rank gets
    its own rows, and the gradient that an owner adds up is **divided by R**, the number of ranks,
    as DistributedDataParallel does: that of the mean of the ranks' losses.
    """

    def __init__(
        self,
        n_rows: int,
        size: int | None,
        ranks: Ranks,
        *,
        strata: int | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self.ranks, self.division = ranks, divide(n_rows, ranks, strata)
        super().__init__(self.division.length, size, seed=seed, **options)
        self.num_embeddings = n_rows
        mark_divided(self.weight, ranks, self.division)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        mark_divided(self.weight, self.ranks, self.division)  # copies of parameters forget

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.division.length} rows on {self.ranks}"

    @property
    def owned(self) -> Tensor:
        return self.division.rows().to(self.weight.device)

    def of_owned(self, values: Tensor) -> Tensor:
        return values[self.division.rows().to(values.device)]

    def reset_parameters(self, seed: int | None = None) -> None:
        """Gives all rows their initial values; without a seed, rank 0 chooses."""
        if seed is None:
            seed = self.ranks.same_seed(int(torch.randint(2**63 - 1, (), device="cpu")))
        super().reset_parameters(seed)

    def forward(self, words: Tensor) -> Tensor:
        """Rows of these words, of whatever rank, (..., size), float32 or wider."""
        if self.weight.dtype == torch.bfloat16:
            self.keep_product_gradients()  # sums over ranks are not rounded once more
        known = self.ranks.known
        told = None if known is None or known.inputs[self.ranks.rank] is not words else known.inputs
        rows: Tensor = _Lookup.apply(self.weight, words, self, self._engine(), told)
        return rows

    @torch.no_grad()
    def set_row(self, row: int, values: ArrayLike) -> None:
        """Puts numbers into one row of the whole table, where it is held."""
        place = torch.tensor(row)
        if int(self.division.owner(place)) == self.ranks.rank:
            self.weight[int(self.division.local(place))] = torch.as_tensor(values)


class _Lookup(torch.autograd.Function):
    """Distinct words to their owners, rows back; gradients of those rows in reverse."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        words: Tensor,
        table: ShardedTable,
        engine: Engine,
        told: list[Tensor] | None,
    ) -> Tensor:
        ranks, division = table.ranks, table.division
        distinct, places = _checked(words, division.n_rows).unique(return_inverse=True)
        owner, order = division.owner(distinct).sort(stable=True)
        asked = owner.bincount(minlength=ranks.size).tolist()
        if told is None:
            wanted = ranks.exchange_numbers(asked)
            parts = ranks.exchange(distinct[order].split(asked), wanted, "input words")
        else:
            parts = _wanted_here(told, distinct, division)
            wanted = [len(part) for part in parts]
        local = division.local(torch.cat(parts))
        found = engine.lookup(weight, local, weight.dtype)
        rows = torch.cat(ranks.exchange(found.split(wanted), asked, "input rows"))
        at = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)).to(order))
        ctx.save_for_backward(at[places], local)
        ctx.table, ctx.asked, ctx.wanted, ctx.row = table, asked, wanted, weight.shape[1:]
        ctx.dtype = weight.dtype
        wide = torch.promote_types(weight.dtype, torch.float32)
        return rows.to(wide)[at[places]].view(*words.shape, *ctx.row)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        places, local = ctx.saved_tensors
        table, ranks = ctx.table, ctx.table.ranks
        values = grad.reshape(len(places), *ctx.row).to(ctx.dtype)  # as a table on one process has
        sums = grad.new_zeros(sum(ctx.asked), *ctx.row).index_add_(0, places, values.to(grad))
        parts = ranks.exchange(sums.split(ctx.asked), ctx.wanted, "input gradients")
        found = torch.cat(parts) / ranks.size
        return table.row_gradient(local, found.to(table.gradient_dtype(found.dtype))), *[None] * 4


def _wanted_here(told: list[Tensor], distinct: Tensor, division: Division) -> list[Tensor]:
    """The distinct words of each rank whose rows are here, where all ranks' words are known."""
    found = []
    for rank, words in enumerate(told):
        theirs = distinct if rank == division.rank else words.reshape(-1).unique()
        found.append(theirs[division.owner(theirs) == division.rank])
    return found


def _checked(words: Tensor, n_rows: int) -> Tensor:
    words = words.reshape(-1)
    if words.device.type == "cpu" and words.numel():
        low, high = (int(x) for x in words.aminmax())
        if low < 0 or high >= n_rows:
            raise IndexError(f"row {low if low < 0 else high} is not in 0 … {n_rows - 1}")
    return words
