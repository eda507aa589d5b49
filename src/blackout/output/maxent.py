"""Hashed n-gram features beside a flat softmax (Mikolov et al. 2011).

    u_w = <theta_w, s> + sum over n = 1 … N of D[(hash of the last n words + w) mod 2^bits]

D is one table of numbers. The features of a history lie side by side, a window of the table from
where its hash points to, so that those of all words are read as they lie in memory. Different
histories may share numbers; :func:`count_shared` says how many do. Their derivatives are those of
the logits: a block touches the features of its targets and samples alone, and those of samples only
where the number is no longer 0. What is still 0 no target has had: it belongs to n-grams that do
not occur, of which samples would fill the table.

>>> features = Features(order=2, bits=10)
>>> features.starts(torch.tensor([[7, 3], [7, 9]])).shape
torch.Size([2, 2])
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.memory import Need, free_memory, require
from blackout.ops.autograd import SampledWords, all_features, sampled_features
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import Added, Engine, Windows
from blackout.ops.reference import mix64
from blackout.ops.reference.sampling import GOLDEN
from blackout.tables import Table

MOST_ORDER, MOST_BITS = 16, 40


class Features(nn.Module):
    """D, and where in it the features of a history begin."""

    def __init__(
        self,
        order: int,
        bits: int,
        *,
        sparse: bool = True,
        impl: str = "auto",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= order <= MOST_ORDER:
            raise UserError(f"maxent is {order}, must be 0, for none, to {MOST_ORDER}")
        if not 1 <= bits <= MOST_BITS:
            raise UserError(f"maxent_bits is {bits}, must be 1 to {MOST_BITS}")
        self.order, self.bits, self.impl = order, bits, impl
        size = dtype.itemsize << bits
        if device is None or torch.device(device).type == "cpu":
            table = Need(f"maxent_bits {bits}", {"features": size}, ("a smaller maxent_bits",))
            require(table, free_memory())
        self.table = Table(
            2**bits, None, init_range=0.0, storage=dtype, sparse=sparse, impl=impl, device=device
        )

    def extra_repr(self) -> str:
        return f"order={self.order}, bits={self.bits}"

    @property
    def numbers(self) -> nn.Parameter:
        """D, (2^bits,)"""
        return self.table.weight

    def starts(self, history: Tensor | None) -> Tensor:
        """Where the windows of histories (..., n), the latest word first, begin: (..., order)."""
        return keys(_long_enough(history, self.order), self.order) & (2**self.bits - 1)

    def windows(self, history: Tensor | None) -> Windows:
        """The features of histories (N, n)."""
        return Windows(self.numbers, self.starts(history))

    def at(self, history: Tensor | None, words: Tensor) -> Tensor:
        """The features of words shaped (..., n) or (...) like histories (..., order); gradients."""
        start = self.starts(history)
        start = start if words.ndim < start.ndim else start[..., None, :]
        return self.table((start + words[..., None]) & (2**self.bits - 1)).sum(-1)

    def of_samples(self, history: Tensor | None, words: SampledWords) -> Added:
        """The features of a block's words after histories (G, M, n), with gradients."""
        gradient = self.table.row_gradient
        return sampled_features(self.numbers, self.starts(history), words, self._engine(), gradient)

    def of_all(self, history: Tensor | None, words: int) -> Tensor:
        """The features of the words 0 … words - 1 after histories (N, n), with gradients."""
        return all_features(self.numbers, self.starts(history), words, self._engine())

    def _engine(self) -> Engine:
        return engine_for(self.impl, self.numbers.device, self.numbers.dtype)


def keys(history: Tensor, order: int) -> Tensor:
    """64 bits of hash (..., order) of the last 1, 2, … words of histories, the latest first."""
    key = torch.zeros_like(history[..., 0])
    found = []
    for n in range(order):
        key = mix64(key + (history[..., n] + 1) * GOLDEN)
        found.append(key)
    return torch.stack(found, -1)


def _long_enough(history: Tensor | None, order: int) -> Tensor:
    there = 0 if history is None else history.shape[-1]
    if history is None or there < order:
        raise UserError(
            f"maxent {order} looks at the {order} words before each target: history= has {there}"
        )
    return history


class Shared(NamedTuple):
    """How crowded D is."""

    features: int
    """Different n-grams of a text, each of which has a feature."""
    shared: int
    """Those whose number is another's too."""
    counted: float
    """The share of D in which they were counted; what stands above is an estimate below 1."""


def count_shared(
    text: Iterable[tuple[Tensor, Tensor]], words: int, bits: int, most: int = 1 << 22
) -> Shared:
    """Counts the n-grams of a text and those that share a number.

    ``text``: pieces of it, histories (N, order) and targets (N,), of about ``words`` n-grams in
    all. Where these are more than ``most``, they are counted in a part of D that has so many.
    """
    thinned = min(bits, max(0, math.ceil(math.log2(max(words, 1) / most))))
    chosen = 2**thinned - 1
    found, places = [], []
    for history, target in text:
        key = keys(history, history.shape[-1])
        place = (key + target[:, None]) & (2**bits - 1)
        kept = (mix64(place) & chosen) == 0
        found.append(mix64(key + (target[:, None] + 1) * GOLDEN)[kept])
        places.append(place[kept])
    features, number = torch.cat(found).unique(return_inverse=True)
    place_of = torch.empty_like(features).scatter_(0, number, torch.cat(places))
    _, times = place_of.unique(return_counts=True)
    shared = int(times[times > 1].sum())
    return Shared(len(features) << thinned, shared << thinned, 2.0**-thinned)
