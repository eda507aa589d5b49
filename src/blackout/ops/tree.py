"""A tree over words as arrays: the way from a word up to the root, a choice at every node.

    p(w | s) = product over the nodes above w of p(the child that leads to w | node, s)

A node with a children has a - 1 vectors, one for each child but the first, whose logit is 0:

    p(child j | node, s) = exp(u_j) / (1 + sum_i exp(u_i)),   u_j = <v_j, s>

With two children that is sigma(u) and sigma(-u). So V words take V - 1 vectors, whatever the tree.

Leaves are the words 0 … V-1. Inner nodes are numbered from the root, 0, downwards, no node before
the one above it; there are at most V - 1 of them, and arrays have room for as many.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Tree(NamedTuple):
    """Words and the nodes above them, int32."""

    up: Tensor  # (2 V - 1,): of each word, then of each inner node: the node above; -1: none
    place: Tensor  # (2 V - 1,): which child of the node above it is
    first: Tensor  # (V,): node i has the vectors first[i] … first[i + 1] - 1

    @property
    def words(self) -> int:
        return len(self.first)


class Steps(NamedTuple):
    """The P choices on the ways of N words, from the leaves upwards."""

    word: Tensor  # (P,): whose way
    node: Tensor  # (P,)
    place: Tensor  # (P,): the child that is taken


def steps_of(tree: Tree, target: Tensor) -> Steps:
    """All choices that lead to these words (N,), int64."""
    found: list[Steps] = []
    word, at = torch.arange(len(target), device=target.device), target
    while len(word):
        node = tree.up[at].long()
        found.append(Steps(word, node, tree.place[at].long()))
        at = tree.words + node
        on = tree.up[at] >= 0
        word, at = word[on], at[on]
    if not found:
        return Steps(word, word, word)
    return Steps(*(torch.cat(parts) for parts in zip(*found, strict=True)))
