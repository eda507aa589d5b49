"""What a proposal is: where the samples of a training step come from, and with which chance.

A proposal draws K words for each group of a block and says log Q of any word in such a draw. The
losses subtract log Q from the logits, so every proposal whose densities are right trains the same
model; a good one does it with fewer samples.

One of your own is a subclass with three methods:

>>> class Uniform(Proposal):
...     def sample(self, seed, step, groups, samples, impl):
...         bits = random_bits(seed, step, len(groups.target), samples, groups.target.device)
...         return random_below(bits, self.n_words)
...     def log_density(self, words, groups):
...         return torch.full(words.shape, -math.log(self.n_words), dtype=torch.float64)
...     def marginal(self):
...         return torch.full((self.n_words,), 1 / self.n_words, dtype=torch.float64)
>>> from blackout.ops.reference import random_below, random_bits
>>> drawn = Uniform(9).draw(seed=1, step=0, target=torch.tensor([[3, 5]]), samples=4)
>>> drawn.samples.shape, drawn.log_q_target.exp()
(torch.Size([1, 4]), tensor([[0.1111, 0.1111]], dtype=torch.float64))
"""

from __future__ import annotations

import math  # noqa: F401  (the example above)
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout.ops.engine import Scalar


class Groups(NamedTuple):
    """The words of a block in G groups of M; the words of a group share a sample set."""

    target: Tensor  # (G, M)
    history: Tensor | None = None  # (G, M, n), the words before each target, the latest first
    mask: Tensor | None = None  # (G, M), False where there is no word


class Draw(NamedTuple):
    """A sample set for each group, and log Q of the words in it and of the targets."""

    samples: Tensor  # (G, K)
    log_q_samples: Tensor  # (G, K)
    log_q_target: Tensor  # (G, M)


class Proposal(nn.Module, ABC):
    """Draws are a pure function of (seed, step, group, place).

    So they are the same whatever the threads, devices and ranks, and a resumed run goes on with
    the same sequence. Tables are plain attributes, no buffers: a layer that is cast to float32
    keeps them as they are.
    """

    history_words = 0
    """Words before each target that it looks at."""
    reads_text = False
    """Whether :meth:`read_text` wants the training text before the first draw."""
    follows_model = False
    """Whether :meth:`adapt` wants to see the model from time to time."""

    def __init__(self, n_words: int) -> None:
        super().__init__()
        self.n_words = n_words
        self._device = torch.device("cpu")

    def __len__(self) -> int:
        return self.n_words

    @abstractmethod
    def sample(self, seed: int, step: Scalar, groups: Groups, samples: int, impl: str) -> Tensor:
        """(G, samples) words, drawn with replacement."""

    @abstractmethod
    def log_density(self, words: Tensor, groups: Groups) -> Tensor:
        """log of the chance of words (G, n) in a draw for their group."""

    @abstractmethod
    def marginal(self) -> Tensor:
        """How often a draw is expected to be each word (V,), whatever the group."""

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        """Takes the pairs of a text: ``follower`` (N,) comes after ``context`` (N,)."""

    def adapt(self, root_mean_square: Tensor) -> None:
        """Takes the model's sqrt(mean p²) (V,) over some hidden states, up to a factor."""

    def follow(self, device: torch.device) -> None:
        """Moves the tables to where the layer computes."""
        if self._device != device:
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, value.to(device))
            self._device = device

    def draw(
        self,
        seed: int,
        step: Scalar,
        target: Tensor,
        samples: int,
        *,
        history: Tensor | None = None,
        mask: Tensor | None = None,
        always: tuple[int, ...] = (),
        impl: str = "auto",
    ) -> Draw:
        """Sample sets of ``samples`` words and those of ``always``, for targets (G, M)."""
        groups = Groups(target, history, mask)
        words = self.sample(seed, step, groups, samples, impl)
        if always:
            words = torch.cat([words, words.new_tensor(always).expand(len(target), -1)], 1)
        return Draw(words, self.log_density(words, groups), self.log_density(target, groups))
