"""Exact log-probabilities over ranks: every rank scores all states against its own rows.

The sum over the vocabulary is that of the ranks' parts, added in rank order; a target's logit comes
from the owner of its row. All ranks call together, with states of their own, as many as they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.output.divided.block import Block
from blackout.output.exact import LOGITS, TILE, Scores
from blackout.output.results import TopK, best_of_tiles, whole
from blackout.ranks import Division, Ranks
from blackout.ranks.division import division_of
from blackout.tables import Table

_PARTITION, _TARGET, _TILES, _TOP = range(10, 14)


class DividedScores(NamedTuple):
    """The logits of a table of which this rank has some rows."""

    here: Scores
    ranks: Ranks
    division: Division

    def gathered(self, states: Tensor, doing: int) -> tuple[Block, Tensor]:
        """The states of all ranks (N, h), and where this rank's are among them."""
        block = Block(self.ranks, 1, len(states), doing)
        return block, block.gather(states[None], "states")[0]

    def partition(self, states: Tensor) -> Tensor:
        """log of the sum of exp(u) over all classes, (N,); no gradients."""
        block, every = self.gathered(states, _PARTITION)
        part = self.here.partition(every)
        parts = self.ranks.exchange(
            part.split(block.columns), [len(states)] * self.ranks.size, "partitions"
        )
        return torch.stack(parts).logsumexp(0)

    def of(self, rows: Tensor | slice) -> DividedScores:
        """Those of some of the states: the same, there being nothing of histories in it."""
        return self

    def partition_with_gradients(self, states: Tensor) -> Tensor:
        raise AssertionError("a divided layer evaluates without gradients")

    def target_logit(self, states: Tensor, target: Tensor) -> Tensor:
        """u of each target, (N,); no gradients."""
        block, every = self.gathered(states, _TARGET)
        words = block.gather(target[None], "targets")[0]
        own = (self.division.owner(words) == self.ranks.rank).nonzero()[:, 0]
        logit = torch.zeros(len(words), dtype=every.dtype, device=every.device)
        found = self.here.target_logit(every[own], self.division.local(words[own]))
        logit[own] = found.to(every.dtype)
        return block.add_mine(logit[None], "target logits")[0]

    def logit_tiles(self, states: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(first class, logits (N, n)), tile by tile, on all ranks in step; no gradients."""
        block, every = self.gathered(states, _TILES)
        n_rows, strata = self.division.n_rows, self.division.strata
        size = max(strata, TILE // strata * strata)
        for first in range(0, n_rows, size):
            end = min(first + size, n_rows)
            with torch.no_grad():
                yield first, self._tile(block, every, first, end)

    def _tile(self, block: Block, every: Tensor, first: int, end: int) -> Tensor:
        """The logits (N, end - first) of this rank's states, each rank's columns in their place."""
        parts = [self.division.of(rank) for rank in range(self.ranks.size)]
        mine = slice(self.division.before(first), self.division.before(end))
        rows = self.here.geometry.vectors(self.here.weight[mine])
        bias = None if self.here.bias is None else self.here.bias[mine]
        logits = self.here.engine.logits(every, rows, bias).contiguous()
        own = block.columns[self.ranks.rank]
        widths = [part.before(end) - part.before(first) for part in parts]
        flat = [part.reshape(-1) for part in logits.split(block.columns)]
        found = self.ranks.exchange(flat, [own * width for width in widths], "tiles")
        whole = logits.new_empty(own, end - first)
        for part, width, piece in zip(parts, widths, found, strict=True):
            columns = part.rows(part.before(first), part.before(end)) - first
            whole[:, columns.to(whole.device)] = piece.view(own, width)
        return whole


def divided_top_logits(scores: DividedScores, states: Tensor, k: int) -> TopK:
    """The k largest logits (N, k) and their classes: the best of each rank's best."""
    division = scores.division
    if whole(k) > division.n_rows:
        raise UserError(f"k is {k}, more than there are classes")
    block, every = scores.gathered(states, _TOP)
    most = min(k, division.length)
    some = max(1, LOGITS // min(TILE, division.length))
    best = [best_of_tiles(scores.here.logit_tiles(part), most) for part in every.split(some)]
    values, local = (torch.cat(parts) for parts in zip(*best, strict=True))
    values, words = (
        torch.cat(_widths(part, block, division, k, name), 1)
        for part, name in ((values, "best logits"), (division.whole(local), "best classes"))
    )
    order = words.argsort(1)  # of equal logits the first class, whatever the number of ranks
    values, words = values.gather(1, order), words.gather(1, order)
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return TopK(values.gather(1, order), words.gather(1, order))


def _widths(part: Tensor, block: Block, division: Division, k: int, name: str) -> list[Tensor]:
    """What each rank found for this rank's states, (N, min(k, its rows))."""
    ranks, own = block.ranks, block.columns[block.ranks.rank]
    widths = [min(k, division.of(rank).length) for rank in range(ranks.size)]
    flat = [piece.reshape(-1) for piece in part.split(block.columns)]
    found = ranks.exchange(flat, [own * width for width in widths], name)
    return [piece.view(own, width) for piece, width in zip(found, widths, strict=True)]


def require_same_division(table: Table, division: Division, divided: bool) -> None:
    """Refuses to tie a divided layer to a whole table, or the other way round."""
    found = division_of(table.weight)
    if divided and found is None:
        raise UserError("tied_to is a whole table: with process_group it must be a ShardedTable")
    if found is not None and (not divided or found != division):
        raise UserError("tied_to is a divided table: give the layer its process_group and strata")
