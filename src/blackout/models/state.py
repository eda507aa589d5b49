"""What a language model carries from word to word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from blackout.text.vocab import EOS


class State(NamedTuple):
    """The state of B streams after some words."""

    layers: Tensor  # (layers, S, B, h), the recurrence; S is 2 for the LSTM, else 1
    words: Tensor  # (n, B), the last words but the input word, the latest last; mostly n = 0

    @classmethod
    def joined(cls, states: Sequence[State]) -> State:
        """The streams of several states, side by side."""
        return cls(
            torch.cat([state.layers for state in states], 2),
            torch.cat([state.words for state in states], 1),
        )

    def of_streams(self, index: Tensor) -> State:
        """The states of some of the streams; one may be there several times."""
        return State(self.layers[:, :, index], self.words[:, index])

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The parts by the names they have in a file."""
        parts = {name: self.layers}
        return parts | {f"{name}.words": self.words} if len(self.words) else parts


def histories(inputs: Tensor, words: Tensor, length: int, forget: bool) -> Tensor:
    """The ``length`` words before each target (T, B, length), the latest first.

    ``inputs`` (T, B) are the words right before the targets, ``words`` (length - 1, B) those before
    the block. Where ``forget``, nothing before the last sentence end is seen: it reads as more of
    them.

    >>> inputs = torch.tensor([[5], [0], [7], [8]])
    >>> histories(inputs, torch.tensor([[3], [4]]), 3, forget=True)[:, 0].tolist()
    [[5, 4, 3], [0, 0, 0], [7, 0, 0], [8, 7, 0]]
    """
    joined = torch.cat([words, inputs])
    steps = len(inputs)
    past = torch.stack([joined[length - 1 - i : length - 1 - i + steps] for i in range(length)], -1)
    if forget:
        past = past.masked_fill((past == EOS).cumsum(-1) > 0, EOS)
    return past
