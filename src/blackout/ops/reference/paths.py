"""Log-probabilities along the paths of a tree (:mod:`blackout.ops.tree`), in plain PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.ops.engine import PathGradients
from blackout.ops.tree import Tree, steps_of

_NUMBERS = 1 << 24  # of gathered rows at a time
_WORDS = 1024  # scored together


class PathSaved(NamedTuple):
    """What the way back needs; an entry is a vector of a node on the path of an example."""

    hidden: Tensor  # (N, h)
    weight: Tensor  # (V - 1, h)
    example: Tensor  # (E,)
    row: Tensor  # (E,)
    derivative: Tensor  # (E,): dJ/du


def path_forward(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, tree: Tree, target: Tensor
) -> tuple[Tensor, PathSaved]:
    """log p(target | hidden) (N,) for training, and what :func:`path_backward` needs."""
    steps = steps_of(tree, target)
    begin = tree.first[steps.node].long()
    count = tree.first[steps.node + 1].long() - begin
    end = count.cumsum(0)
    step = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)  # (E,)
    row = (begin - end + count)[step] + torch.arange(len(step), device=step.device)
    example = steps.word[step]
    parts = [
        (hidden[example[some]] * weight[row[some]].to(hidden.dtype)).sum(1)
        for some in _pieces(len(row), hidden.shape[1])
    ]
    u = torch.cat(parts) if parts else hidden.new_zeros(0)
    if bias is not None:
        u = u + bias[row]
    most = u.new_zeros(len(count)).scatter_reduce(0, step, u, "amax")  # that of the first child: 0
    e = torch.exp(u - most[step])
    total = torch.exp(-most).index_add(0, step, e)
    taken = (end - count + steps.place - 1)[steps.place > 0]  # entries
    log_p = (-most - total.log()).index_add(0, step[taken], u[taken])
    derivative = (-e / total[step]).index_add(0, taken, torch.ones_like(u[taken]))
    value = u.new_zeros(len(target)).index_add(0, steps.word, log_p)
    return value, PathSaved(hidden, weight, example, row, derivative)


def path_backward(saved: PathSaved, grad: Tensor) -> PathGradients:
    """The gradients of sum(grad * log p)."""
    hidden, weight, example, row, derivative = saved
    factor = derivative * grad[example]
    rows, at = row.unique(return_inverse=True)
    d_hidden, values = torch.zeros_like(hidden), hidden.new_zeros(len(rows), hidden.shape[1])
    for some in _pieces(len(row), hidden.shape[1]):
        part = factor[some, None]
        d_hidden.index_add_(0, example[some], part * weight[row[some]].to(hidden.dtype))
        values.index_add_(0, at[some], part * hidden[example[some]])
    return PathGradients(
        d_hidden, rows, values, factor.new_zeros(len(rows)).index_add(0, at, factor)
    )


def path_log_prob(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, tree: Tree, target: Tensor
) -> Tensor:
    """log p(target | hidden), (N,), in bounded memory."""
    parts = [
        path_forward(states, weight, bias, tree, words)[0]
        for states, words in zip(hidden.split(_WORDS), target.split(_WORDS), strict=True)
    ]
    return torch.cat(parts)


def _pieces(n: int, size: int) -> Iterator[slice]:
    """0 … n-1 in pieces whose gathered rows are not too many numbers."""
    each = max(1, _NUMBERS // max(size, 1))
    return (slice(first, first + each) for first in range(0, n, each))
