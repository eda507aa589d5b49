"""What an output layer is: hidden states in, losses and log-probabilities out.

Shaped like ``torch.nn.AdaptiveLogSoftmaxWithLoss``: ``layer(hidden, target) → (output, loss)``,
``layer.log_prob(hidden)``, ``layer.predict(hidden)``. ``output`` is the objective of each example
and ``loss`` its negated mean. While training the objective is the layer's own; after ``.eval()``
it is the exact log-probability, whatever the training loss.

A layer of its own kind is a subclass with three methods: :meth:`OutputLayer.objective` for
training, :meth:`OutputLayer.target_log_prob` and :meth:`OutputLayer.log_prob_tiles` for scoring;
the others follow from these and may be overridden where a layer knows a shorter way. All of them
are given the history, the words before each target, of which a layer says how many it looks at
(``history_words``). Its weights, where there is one row for each word, are
:class:`~blackout.tables.Table`; what it costs a word stands in the registry,
:mod:`blackout.losses`. :mod:`blackout.output.flat` is the flat softmax, one vector for each class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.tables import tables_of


class OutputWithLoss(NamedTuple):
    """``output``: the objective of each example, shaped like the target; ``loss``: a scalar."""

    output: Tensor
    loss: Tensor


class TopK(NamedTuple):
    """The most probable classes (..., k), the best first, like ``torch.topk``."""

    values: Tensor
    indices: Tensor


@dataclass(frozen=True)
class LayerSpec:
    """What a layer for a vocabulary is made from."""

    in_features: int
    counts: Tensor  # (V,), how often each class occurs
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """The loss's own settings: those that the registry names for it."""
    common: dict[str, Any] = field(default_factory=dict)
    """What every layer takes: bias, init_range, precision, storage, impl."""

    @property
    def n_classes(self) -> int:
        return len(self.counts)


class OutputLayer(nn.Module, ABC):
    """A distribution over ``n_classes`` classes for each hidden state of ``in_features``."""

    history_words = 0
    """Words before each target that the layer looks at besides the hidden state."""
    reads_text = False
    """Whether :meth:`read_text` wants the training text before training begins."""
    follows_states = False
    """Whether :meth:`follow_states` wants some hidden states from time to time."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__()
        if n_classes < 2:
            raise UserError(f"n_classes is {n_classes}, must be at least 2")
        self.in_features = in_features
        self.n_classes = n_classes

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        """The layer of a language model over a vocabulary."""
        return cls(spec.in_features, spec.n_classes, **spec.settings, **spec.common)

    # ------------------------------------------------------------------ training

    def forward(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
        divisor: Scalar | None = None,
    ) -> OutputWithLoss:
        """The objective of each example and the loss.

        ``hidden`` (N, h) or (T, B, h); ``target`` and ``mask`` (N,) or (T, B): examples where
        ``mask`` is False count for nothing. ``history`` (..., n): the words before each target,
        the latest first; where one is enough, shaped like ``target``. ``divisor``: what the sum
        of the objectives is divided by, instead of the number of examples that count.
        """
        self._check_shapes(hidden, target, history)
        if history is not None and history.ndim == target.ndim:
            history = history[..., None]
        if self.training:
            output = self.objective(hidden, target, mask, history)
        else:
            output = self.target_log_prob(hidden, target, history)
        if mask is not None:
            output = output * mask
        if divisor is None:
            divisor = target.numel() if mask is None else mask.sum()
        return OutputWithLoss(output, output.sum() / -divisor)

    def _check_shapes(self, hidden: Tensor, target: Tensor, history: Tensor | None) -> None:
        if hidden.shape[:-1] != target.shape or hidden.shape[-1] != self.in_features:
            raise ValueError(
                f"hidden {tuple(hidden.shape)} must be target {tuple(target.shape)} "
                f"and a last dimension of {self.in_features}"
            )
        if history is not None and history.shape[: target.ndim] != target.shape:
            raise ValueError(
                f"history {tuple(history.shape)} must be target {tuple(target.shape)}, "
                "or that and the words before each"
            )

    @abstractmethod
    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        """J of each example, with gradients; what training maximises."""

    # ------------------------------------------------------------------ exact scoring

    @abstractmethod
    def target_log_prob(
        self, hidden: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """Exact log p(target | hidden), shaped like ``target``, in bounded memory; no gradients."""

    @abstractmethod
    def log_prob_tiles(
        self, hidden: Tensor, history: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Exact log-probabilities of hidden states (N, h), tile by tile: (first class, (N, n))."""

    def pair_log_prob(
        self, hidden: Tensor, row: Tensor, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """Exact log p(target | hidden[row]) of pairs (N,), for hidden states (M, h); no gradients.

        Several words may follow one state: what they share is computed once, where there is such.
        """
        return self.target_log_prob(hidden[row], target, None if history is None else history[row])

    def log_prob(self, hidden: Tensor, history: Tensor | None = None) -> Tensor:
        """Exact log-probabilities of all classes, (..., n_classes)."""
        flat, past = self._flat(hidden, history)
        parts = [part for _, part in self.log_prob_tiles(flat, past)]
        return torch.cat(parts, 1).view(*hidden.shape[:-1], self.n_classes)

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, history: Tensor | None = None) -> TopK:
        """The k most probable classes with their log-probabilities, in bounded memory."""
        flat, past = self._flat(hidden, history)
        best = best_of_tiles(self.log_prob_tiles(flat, past), k)
        return TopK(*(part.view(*hidden.shape[:-1], k) for part in best))

    def predict(self, hidden: Tensor, history: Tensor | None = None) -> Tensor:
        """The most probable class of each example, without holding all probabilities at once."""
        return self.topk(hidden, 1, history).indices[..., 0]

    def _flat(self, hidden: Tensor, history: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Hidden states (N, h) and their histories (N, n)."""
        past = None if history is None else history.reshape(-1, history.shape[-1])
        return hidden.reshape(-1, self.in_features), past

    # ------------------------------------------------------------------ what training may ask

    def reset_parameters(self) -> None:
        """Gives the tables their initial values; what else a layer has it resets itself."""
        for table in tables_of(self):
            table.reset_parameters()

    def expect_blocks(self, unigram: Tensor, steps: int, streams: int) -> None:
        """Tells the tables how often a block of T × B words will touch their rows (paper eq. 19).

        ``unigram`` (V,): how probable each class is as a target.
        """

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        """Takes the pairs of the training text: ``follower`` (N,) comes after ``context`` (N,)."""

    def follow_states(self, hidden: Tensor) -> None:
        """Looks at the model where it stands now, at some hidden states (N, h) of the text."""


def best_of_tiles(tiles: Iterable[tuple[int, Tensor]], k: int) -> TopK:
    """The k largest of tiles (first column, (N, n)), the best first."""
    best: TopK | None = None
    for first, tile in tiles:
        some = tile.topk(min(k, tile.shape[1]), 1)
        here = TopK(some.values, some.indices + first)
        if best is not None:
            here = TopK(*(torch.cat(pair, 1) for pair in zip(best, here, strict=True)))
            order = here.values.topk(min(k, here.values.shape[1]), 1).indices
            here = TopK(here.values.gather(1, order), here.indices.gather(1, order))
        best = here
    if best is None or best.values.shape[1] < k:
        raise UserError(f"k is {k}, more than there are classes")
    return best


def require_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Refuses an option that is none of those known."""
    if value not in (names := list(known)):
        raise UserError(f"{name} is {value!r}, must be one of {', '.join(names)}")
