"""All words of a tree, a tile of them at a time: each node above the tile's words once.

Log-probabilities go down the tree level by level, from the root, where it is 0, to the words.
Neighbours in a vocabulary are near each other in Huffman's tree, so the tiles share little but the
nodes at the top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from blackout.ops.tree import Tree


class _Level(NamedTuple):
    """Choices at nodes of one depth, and what they lead to at the next."""

    row: Tensor  # (k,): vectors of the nodes
    node: Tensor  # (k,): whose, as places in this level
    width: int  # nodes of this level
    child_node: Tensor  # (c,): of the children that are wanted: their node in this level …
    child_place: Tensor  # … and their vector, as a place in ``row``; k where the logit is 0


class Tile(NamedTuple):
    """Some words of a tree and the nodes above them."""

    levels: list[_Level]
    order: Tensor  # (n,): the words among the children of all levels, then the inner nodes
    below: list[Tensor]  # of each level: those children that are the nodes of the next one

    @classmethod
    def of(cls, tree: Tree, first: int, last: int) -> Tile:
        """The words first … last-1."""
        device = tree.up.device
        up, place, begin = (part.cpu().numpy().astype(np.int64) for part in tree)
        n = tree.words
        above = _nodes_above(up, n, first, last)  # rising: no node before the one above it
        depth = np.zeros(len(above), np.int64)
        parent = np.searchsorted(above, up[n + above[1:]])
        for i, above_i in enumerate(parent.tolist(), 1):
            depth[i] = depth[above_i] + 1
        words = np.arange(first, last)
        word_depth = depth[np.searchsorted(above, up[words])]
        levels, below, places, offset = [], [], np.empty(last - first, np.int64), 0
        for level in range(int(depth.max(initial=0)) + 1):
            nodes = above[depth == level]
            count = begin[nodes + 1] - begin[nodes]
            start = count.cumsum() - count
            node = np.repeat(np.arange(len(nodes)), count)
            row = begin[nodes][node] + np.arange(len(node)) - start[node]
            here = word_depth == level
            children = np.concatenate([words[here], n + above[depth == level + 1]])
            of = np.searchsorted(nodes, up[children])
            slot = np.where(place[children] > 0, start[of] + place[children] - 1, len(row))
            arrays = (torch.from_numpy(x).to(device) for x in (row, node, of, slot))
            row_t, node_t, of_t, slot_t = arrays
            levels.append(_Level(row_t, node_t, len(nodes), of_t, slot_t))
            places[here] = offset + np.arange(here.sum())
            below.append(torch.arange(int(here.sum()), len(children), device=device))
            offset += len(children)
        return cls(levels, torch.from_numpy(places).to(device), below)

    @property
    def rows(self) -> Tensor:
        """The vectors that are needed, level by level."""
        return torch.cat([level.row for level in self.levels])

    def log_prob(self, logits: Tensor) -> Tensor:
        """(N, n) of the words, from the logits (N, k) of :attr:`rows`; with gradients."""
        so_far, found = logits.new_zeros(len(logits), 1), []
        parts = logits.split([len(level.row) for level in self.levels], 1)
        for level, u, below in zip(self.levels, parts, self.below, strict=True):
            shape = (len(u), level.width)
            at = level.node.expand(len(u), -1)
            most = u.new_zeros(shape).scatter_reduce(1, at, u.detach(), "amax")
            e = torch.exp(u - most.gather(1, at))
            total = torch.exp(-most).index_add(1, level.node, e)
            base = so_far - most - total.log()  # of the child whose logit is 0
            with_zero = torch.cat([u, u.new_zeros(len(u), 1)], 1)
            children = base[:, level.child_node] + with_zero[:, level.child_place]
            found.append(children)
            so_far = children[:, below]
        return torch.cat(found, 1)[:, self.order]


def _nodes_above(up: np.ndarray, n: int, first: int, last: int) -> np.ndarray:
    """All nodes above the words first … last-1, each once, rising."""
    found = [np.unique(up[first:last])]
    while True:
        higher = np.unique(up[n + found[-1]])
        higher = higher[higher >= 0]
        if not len(higher):
            return np.unique(np.concatenate(found))
        found.append(higher)
