"""Several true classes an example: targets (N, L) for states (N, h), padded with ``ignore_index``.

An example's objective is the mean over its classes, each against the samples without the others:
what is true of an example is no negative of it. A class that is named twice counts once; examples
without any class count for nothing.

>>> found = checked_labels(torch.tensor([[4, 7], [5, 5], [-1, -1]]), None, 9, ignore_index=-1)
>>> found.row, found.target, found.counted
(tensor([0, 0, 1]), tensor([4, 7, 5]), tensor([ True,  True, False]))
>>> found.mean(torch.tensor([1.0, 3.0, 5.0]))
tensor([2., 5., 0.])
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.output.targets import whole_numbers

_NONE = -1  # no class, in a table of labels


class Labels(NamedTuple):
    """The P pairs of an example and one of its classes."""

    row: Tensor  # (P,), the number of the example
    target: Tensor  # (P,)
    table: Tensor  # (N, L), the classes of each example, -1 where there is none

    @property
    def counted(self) -> Tensor:
        """The examples that have a class, (N,)."""
        return (self.table != _NONE).any(1)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the classes of each example, (N,), of values (P,)."""
        total = values.new_zeros(len(self.table)).index_add(0, self.row, values)
        return total / (self.table != _NONE).sum(1).clamp(min=1)

    def without_others(self, log_p: Tensor) -> Tensor:
        """log p (P,) over all classes but the example's others: log p - log(1 - their sum)."""
        p = log_p.exp()
        others = p.new_zeros(len(self.table)).index_add(0, self.row, p)[self.row] - p
        return log_p - torch.log1p(-others.clamp(0, 1 - torch.finfo(p.dtype).eps))

    def others(self, samples: Tensor, groups: int) -> Tensor:
        """Which samples (G, K) are another true class, for the pairs in G groups: (G, P / G, K)."""
        members = len(self.row) // groups if groups else 1
        table = self.table[self.row].view(groups, members, self.table.shape[1])
        found = torch.zeros(
            (*table.shape[:2], samples.shape[1]), dtype=torch.bool, device=samples.device
        )
        for one in table.unbind(2):  # (G, M) at a time: all of them would be L times as much
            found |= samples[:, None, :] == one[:, :, None]
        return found & (samples[:, None, :] != self.target.view(groups, members)[:, :, None])


def checked_labels(
    target: Tensor, mask: Tensor | None, n_classes: int, ignore_index: int | None
) -> Labels:
    """The classes of N examples, from targets (N, L) and a mask (N,)."""
    target = whole_numbers(target)
    true = torch.ones_like(target, dtype=torch.bool)
    if ignore_index is not None:
        true = target != ignore_index
    if mask is not None:
        true &= mask[:, None]
    wrong = true & ((target < 0) | (target >= n_classes))
    if bool(wrong.any()):
        raise UserError(
            f"target {int(target[wrong][0])} is not a class: 0 … {n_classes - 1}; "
            f"targets (N, L) are filled up with ignore_index, which is {ignore_index}"
        )
    true &= ~_named_before(target.masked_fill(~true, _NONE))
    row, place = true.nonzero(as_tuple=True)
    return Labels(row, target[row, place], target.masked_fill(~true, _NONE))


def _named_before(table: Tensor) -> Tensor:
    """Which classes (N, L) their example has in an earlier place too."""
    ordered, place = table.sort(dim=1, stable=True)
    same = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(table, dtype=torch.bool).scatter_(1, place[:, 1:], same)
