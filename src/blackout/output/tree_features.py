"""Paths of a tree whose logits have hashed n-gram features: plain PyTorch, with gradients.

    u_r = <v_r, s> + b_r + sum over n of D[hash of the last n words, r]

for each vector r on the path: a few dozen numbers a word, where a flat layer has one for each
sample. :mod:`blackout.output.maxent` has the features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.ops.tree import Tree, steps_of
from blackout.output.maxent import Features
from blackout.tables import Table


def log_prob_of_paths(
    states: Tensor,
    target: Tensor,
    history: Tensor | None,
    tree: Tree,
    table: Table,
    biases: Table | None,
    features: Features,
) -> Tensor:
    """log p(target | state, history) (N,) along the paths of the targets."""
    word, node, place = steps_of(tree, target)
    first = tree.first.long()
    counts = first[node + 1] - first[node]  # vectors of each node
    step = torch.arange(len(node), device=node.device).repeat_interleave(counts)
    begin = counts.cumsum(0) - counts
    row = first[node][step] + torch.arange(len(step), device=node.device) - begin[step]
    of = word[step]
    u = (table(row) * states[of]).sum(1)
    if biases is not None:
        u = u + biases(row)
    u = u + features.at(None if history is None else history[of], row)
    # of each node log(1 + sum of exp(u)), against the largest of u and 0
    most = u.new_zeros(len(node)).scatter_reduce(0, step, u.detach(), "amax")
    total = torch.exp(-most).index_add(0, step, torch.exp(u - most[step]))
    taken = torch.cat([u, u.new_zeros(1)])[torch.where(place > 0, begin + place - 1, len(u))]
    return u.new_zeros(len(target)).index_add(0, word, taken - most - total.log())
