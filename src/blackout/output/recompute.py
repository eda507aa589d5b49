"""Activation checkpointing: a forward pass that is made again has the samples of the first time.

``torch.utils.checkpoint`` throws away what a forward pass has kept and makes it again inside the
backward pass. Drawn anew, samples would be others then, and the gradient that of another loss. So
a layer remembers its latest draws, and inside a backward pass takes the one for the same targets.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from blackout.errors import UserError

_MOST = 1 << 22  # targets and samples that are remembered; the latest draw always is …
_CALLS = 256  # … and no more of them than this


class _Words(Protocol):
    """Targets and what was drawn for them."""

    @property
    def target(self) -> Tensor: ...

    @property
    def samples(self) -> Tensor: ...


class _Latest:
    """The latest draws of a layer."""

    def __init__(self) -> None:
        self.draws: deque[_Words] = deque()
        self.size = 0

    def append(self, words: _Words) -> None:
        self.draws.append(words)
        self.size += _size(words)
        while len(self.draws) > 1 and (self.size > _MOST or len(self.draws) > _CALLS):
            self.size -= _size(self.draws.popleft())


def _size(words: _Words) -> int:
    return words.target.numel() + words.samples.numel()


_LATEST: WeakKeyDictionary[nn.Module, _Latest] = WeakKeyDictionary()
"""Beside the layers, not in them: a copy or a pickle of a layer has no business with it."""


def inside_backward() -> bool:
    """Whether this forward pass is one that is made again."""
    return torch._C._current_graph_task_id() != -1


def remember(layer: nn.Module, words: _Words) -> None:
    """Keeps the samples that were drawn for targets, and forgets the oldest."""
    _LATEST.setdefault(layer, _Latest()).append(words)


def drawn_before(layer: nn.Module, target: Tensor) -> Any:
    """What was drawn for these targets when the forward pass was made the first time."""
    latest = _LATEST.get(layer, _Latest())
    for words in reversed(latest.draws):
        if words.target.shape == target.shape and torch.equal(words.target, target):
            return words
    raise UserError(
        "the layer is called inside a backward pass, with targets it has not seen lately: with "
        "activation checkpointing give it samples=layer.draw(target), drawn outside"
    )
