"""Exact log-probabilities of a flat softmax, a tile of the vocabulary at a time.

    log p(w | s) = u_w - log sum_v exp(u_v)

Without gradients the engine adds up the whole table (:meth:`Engine.log_partition`). With them each
tile is computed again on the way back, so that no more than one tile of logits is there at a time;
what the gradient itself takes, a number for each of the table, is unavoidable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from blackout.ops.engine import Engine, Windows
from blackout.ops.half import half_product
from blackout.output.geometry import Geometry

TILE = 8192  # classes whose logits are made together …
LOGITS = 1 << 24  # … for so many hidden states that there are this many at a time


class Scores(NamedTuple):
    """The logits of a table: all that exact scoring needs to know of a layer."""

    weight: Tensor  # (V, h)
    bias: Tensor | None  # (V,)
    geometry: Geometry
    product_dtype: torch.dtype
    engine: Engine
    windows: Windows | None = None  # features of the N states' histories

    def tiles(self) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """(first class, its vectors and those after it, their biases)."""
        for first in range(0, len(self.weight), TILE):
            rows = self.geometry.vectors(self.weight[first : first + TILE])
            yield first, rows, None if self.bias is None else self.bias[first : first + TILE]

    def partition(self, states: Tensor) -> Tensor:
        """log of the sum of exp(u) over all classes, (N,); no gradients."""
        whole, dtype = self.engine.log_partition, self.product_dtype
        if not self.geometry.normalize:
            return whole(states, self.weight, self.bias, dtype, self.windows)
        total = states.new_full((len(states),), -torch.inf)
        for first, rows, bias in self.tiles():
            part = whole(states, rows, bias, dtype, self.windows, first)
            total = torch.logaddexp(total, part)
        return total

    def partition_with_gradients(self, states: Tensor) -> Tensor:
        """The same, (N,), with gradients by states, table and biases."""
        if not len(states):
            return states.sum(1)
        size = max(1, min(TILE, LOGITS // len(states)))
        table = [self.weight] if self.bias is None else [self.weight, self.bias]
        tiles = zip(*(part.split(size) for part in table), strict=True)
        shared = [] if self.windows is None else [self.windows.numbers]
        parts = [
            _Again.apply(partial(self._tile_partition, number * size), states, *shared, *tile)
            for number, tile in enumerate(tiles)
        ]
        return torch.stack(parts).logsumexp(0)

    def _tile_partition(self, first: int, states: Tensor, *given: Tensor) -> Tensor:
        features = None
        if self.windows is not None:
            numbers, *given = given  # type: ignore[assignment]
            features = all_window_values(Windows(numbers, self.windows.start), first, len(given[0]))
        rows, *bias = given
        dtype = self.product_dtype
        logits = linear(states.to(dtype), self.geometry.vectors(rows).to(dtype)).to(states.dtype)
        logits = logits + bias[0] if bias else logits
        return (logits if features is None else logits + features).logsumexp(1)

    def target_logit(self, states: Tensor, target: Tensor) -> Tensor:
        """u of each target, (N,); no gradients."""
        if not self.geometry.normalize:
            logit = self.engine.target_logit(states, self.weight, self.bias, target)
        else:
            logit = (states * self.geometry.vectors(self.weight[target])).sum(1)
            logit = logit if self.bias is None else logit + self.bias[target]
        if self.windows is None:
            return logit
        numbers, start = self.windows
        return logit + numbers[(start + target[:, None]) & (len(numbers) - 1)].sum(1)

    def of(self, rows: Tensor | slice) -> Scores:
        """Those of some of the states."""
        return self if self.windows is None else self._replace(windows=self.windows.of(rows))

    def logit_tiles(self, states: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(first class, logits (N, n)), tile by tile, with gradients."""
        # a GPU multiplies bfloat16 an order of magnitude faster, and the sums stay in float32
        wanted = self.product_dtype == torch.bfloat16 and not torch.is_grad_enabled()
        halves = wanted and states.is_cuda
        for first, rows, bias in self.tiles():
            if halves:
                logits = half_product(states, rows)
                logits = logits if bias is None else logits + bias
            else:
                logits = self.engine.logits(states, rows, bias)
            if self.windows is not None and torch.is_grad_enabled():
                logits = logits + all_window_values(self.windows, first, len(rows))
            elif self.windows is not None:
                self.engine.add_windows(logits, self.windows, first)
            yield first, logits


def all_window_values(windows: Windows, first: int, words: int) -> Tensor:
    """The features (N, words) of the words first, first + 1, …, with gradients of any order."""
    numbers, start = windows
    asked = torch.arange(first, first + words, device=start.device)
    mask = len(numbers) - 1
    return torch.stack([numbers[(one[:, None] + asked) & mask] for one in start.unbind(1)]).sum(0)


class _Again(torch.autograd.Function):
    """A function of tensors that is computed again on the way back: nothing in it is kept."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *given: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*given)
        return function(*given)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted, given = ctx.needs_input_grad[1:], ctx.saved_tensors
        again = torch.is_grad_enabled()  # with create_graph=True: of these, not of copies
        if not again:
            pairs = zip(given, wanted, strict=True)
            given = [part.detach().requires_grad_(want) for part, want in pairs]
        with torch.enable_grad():
            value = ctx.function(*given)
        leaves = [part for part, want in zip(given, wanted, strict=True) if want]
        found = iter(torch.autograd.grad(value, leaves, grad, create_graph=again))
        return None, *(next(found) if want else None for want in wanted)
