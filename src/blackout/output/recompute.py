"""Activation checkpointing: a forward pass that is made again has the samples of the first time.

``torch.utils.checkpoint`` throws away what a forward pass has kept and makes it again inside the
backward pass. Drawn anew, samples would be others then, and the gradient that of another loss. So
a layer remembers its latest draws, and inside a backward pass takes the one for the same targets.
Where there are several (two views of one batch), hidden states tell them apart, of which a few
numbers are remembered too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from blackout.errors import UserError

_MOST = 1 << 22  # targets and samples that are remembered; the latest draw always is …
_CALLS = 256  # … and no more of them than this
_STATES, _NUMBERS = 512, 4  # hidden states of a call that are looked at, and numbers of each


class _Words(Protocol):
    """Targets and what was drawn for them."""

    @property
    def target(self) -> Tensor: ...

    @property
    def samples(self) -> Tensor: ...


@dataclass
class _Call:
    """What was drawn in a call."""

    words: _Words
    seen: Tensor | None
    """Some numbers of its hidden states."""
    again: int = 0
    """How often it was made again."""


class _Latest:
    """The latest draws of a layer."""

    def __init__(self) -> None:
        self.draws: deque[_Call] = deque()
        self.size = 0

    def append(self, call: _Call) -> None:
        self.draws.append(call)
        self.size += _size(call.words)
        while len(self.draws) > 1 and (self.size > _MOST or len(self.draws) > _CALLS):
            self.size -= _size(self.draws.popleft().words)


def _size(words: _Words) -> int:
    return words.target.numel() + words.samples.numel()


_LATEST: WeakKeyDictionary[nn.Module, _Latest] = WeakKeyDictionary()
"""Beside the layers, not in them: a copy or a pickle of a layer has no business with it."""


def inside_backward() -> bool:
    """Whether this forward pass is one that is made again."""
    return torch._C._current_graph_task_id() != -1


def remember(layer: nn.Module, words: _Words, states: Tensor | None = None) -> None:
    """Keeps the samples that were drawn for targets, and forgets the oldest.

    ``states`` (..., h): the hidden states of the call.
    """
    seen = None if states is None else _some_of(states)
    _LATEST.setdefault(layer, _Latest()).append(_Call(words, seen))


def drawn_before(layer: nn.Module, target: Tensor, states: Tensor | None = None) -> Any:
    """What was drawn for these targets when the forward pass was made the first time.

    Of several calls with these targets the one whose hidden states were nearest; where they were
    the same, or are not known, each in turn, the latest first, as backward passes come.
    """
    found = [
        call
        for call in reversed(_LATEST.get(layer, _Latest()).draws)
        if call.words.target.shape == target.shape and torch.equal(call.words.target, target)
    ]
    if not found:
        raise UserError(
            "the layer is called inside a backward pass, with targets it has not seen lately: with "
            "activation checkpointing give it samples=layer.draw(target), drawn outside"
        )
    if len(found) > 1:
        now = None if states is None else _some_of(states)
        found.sort(key=lambda call: (_far(call.seen, now), call.again))
    found[0].again += 1
    return found[0].words


def _some_of(states: Tensor) -> Tensor:
    """A few numbers of hidden states (..., h)."""
    some = states.detach()[..., :: max(1, states.shape[-1] // _NUMBERS)]
    rows = some.reshape(-1, some.shape[-1])
    return rows[:: max(1, len(rows) // _STATES)].clone()


def _far(one: Tensor | None, other: Tensor | None) -> float:
    """How much numbers of two calls differ."""
    if one is None or other is None or one.shape != other.shape:
        return 0.0
    return float((one.double() - other.double()).nan_to_num().abs().sum())
