"""Log-probabilities along the paths of a tree: native code goes up each word's path once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import (
    array,
    buffer,
    converted,
    floats,
    integers,
    numbers,
    words_below,
)
from blackout.ops.engine import PathGradients
from blackout.ops.tree import Tree


class PathSaved(NamedTuple):
    """What the way back needs; an entry is a vector of a node on the path of an example."""

    hidden: Tensor  # (N, h)
    up: Tensor
    place: Tensor
    first: Tensor
    node: Tensor  # (P,), of each choice
    example: Tensor  # (P,)
    entry: Tensor  # (P,): the first one
    derivative: Tensor  # (E,): dJ/du
    d_hidden: Tensor  # (N, h)


def path_forward(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, tree: Tree, target: Tensor
) -> tuple[Tensor, PathSaved]:
    """log p(target | hidden) (N,) for training, and what :func:`path_backward` needs."""
    states, words = converted(hidden, torch.float32), words_below(target, tree.words, "target")
    start = words.new_empty(2, len(words) + 1)
    steps, entries, longest = _native.path_sizes(
        *_tree(tree), integers(words), len(words), integers(start[0]), integers(start[1])
    )
    node, entry = words.new_empty(steps), words.new_empty(steps)
    example = torch.empty(steps, dtype=torch.int32)
    derivative = buffer((entries,), torch.float32)
    d_hidden = buffer(tuple(states.shape), torch.float32)
    more = (start[0], start[1], node, example, entry, derivative, d_hidden)
    value = _run(states, weight, bias, tree, words, longest, *(part.data_ptr() for part in more))
    return value, PathSaved(states, *tree, node, example, entry, derivative, d_hidden)


def path_backward(saved: PathSaved, grad: Tensor) -> PathGradients:
    """The gradients of sum(grad * log p)."""
    hidden, up, place, first, node, example, entry, derivative, d_hidden = saved
    tree, count, size = Tree(up, place, first), len(node), hidden.shape[1]
    factor = converted(grad, torch.float32)
    nodes, start = node.new_empty(count), node.new_empty(count + 1)
    order = torch.empty(count, dtype=torch.int32)
    distinct = _native.collect_rows(
        integers(node), count, integers(nodes), integers(start), order.data_ptr()
    )
    row_start = node.new_empty(distinct + 1)
    found = _native.node_rows(*_tree(tree), integers(nodes), distinct, integers(row_start), 0)
    rows = node.new_empty(found)
    _native.node_rows(*_tree(tree), integers(nodes), distinct, 0, integers(rows))
    values = buffer((found, size), torch.float32)
    bias_values = hidden.new_empty(found)
    _native.path_rows(
        size,
        *(floats(part) for part in (hidden, factor)),
        integers(start),
        array(order, torch.int32),
        integers(row_start),
        array(example, torch.int32),
        integers(entry),
        *(floats(part) for part in (derivative, values, bias_values)),
        distinct,
        torch.get_num_threads(),
    )
    return PathGradients(d_hidden * factor[:, None], rows, values, bias_values)


def path_log_prob(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, tree: Tree, target: Tensor
) -> Tensor:
    """log p(target | hidden), (N,): nothing but the numbers of one path is kept."""
    states, words = converted(hidden, torch.float32), words_below(target, tree.words, "target")
    *_, longest = _native.path_sizes(*_tree(tree), integers(words), len(words), 0, 0)
    return _run(states, weight, bias, tree, words, longest, *[0] * 7)


def _run(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tree: Tree,
    words: Tensor,
    longest: int,
    *for_gradients: int,
) -> Tensor:
    value = states.new_empty(len(words))
    weight = weight.detach().contiguous()
    biases = None if bias is None else converted(bias.detach(), torch.float32)
    _native.paths(
        states.shape[1],
        floats(states),
        *numbers(weight),
        0 if biases is None else floats(biases),
        *_tree(tree),
        integers(words),
        len(words),
        longest,
        floats(value),
        *for_gradients,
        torch.get_num_threads(),
    )
    return value


def _tree(tree: Tree) -> tuple[Any, ...]:
    return (tree.words, *(array(part, torch.int32) for part in tree))
