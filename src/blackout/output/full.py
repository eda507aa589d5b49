"""The exact softmax as a training loss: what the sampled ones are measured against."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from blackout.ops.autograd import softmax_objective
from blackout.output.divided.full import Settings, softmax_value
from blackout.output.divided.layer import require_outside_ddp
from blackout.output.flat import FlatSoftmax
from blackout.output.labels import Labels
from blackout.output.options import require_number, takes_options_of


class Full(FlatSoftmax):
    """J = log softmax(u)_i over all classes. Its gradient touches every row: O(V h) a word."""

    divisible = True

    @takes_options_of(FlatSoftmax)
    def __init__(
        self, in_features: int, n_classes: int, *, label_smoothing: float = 0.0, **options: Any
    ) -> None:
        """``label_smoothing``: the part of the target's weight that is spread over all classes, as
        for ``torch.nn.CrossEntropyLoss``; in training only.
        """
        super().__init__(in_features, n_classes, **{**options, "sparse": False})
        self.table.sparse = False  # a table that is somebody else's too
        if self.biases is not None:
            self.biases.sparse = False
        if self.features is not None:
            self.features.table.sparse = False
        fits = "0 or more and below 1"
        require_number("label_smoothing", label_smoothing, lambda x: 0 <= x < 1, fits)
        self.label_smoothing = label_smoothing
        self.ranks.require_same({"label_smoothing": label_smoothing})

    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        words = target.reshape(-1)
        past = None if history is None else history.reshape(len(words), -1)
        value = self._log_softmax(hidden, words, past)
        return self._smoothed(value, hidden, words, past).view(target.shape)

    def objective_of_labels(
        self, hidden: Tensor, labels: Labels, history: Tensor | None = None
    ) -> Tensor:
        """The softmax over all classes but the example's others."""
        value = labels.without_others(self._log_softmax(hidden, labels.target, history))
        return self._smoothed(value, hidden, labels.target, history)

    def _log_softmax(self, hidden: Tensor, target: Tensor, history: Tensor | None) -> Tensor:
        states = self.states(hidden)
        vectors, dtype = self.geometry.vectors(self.weight), self.product_dtype
        if self.divided:
            require_outside_ddp(self)
            how = Settings(self.ranks, self.division, self.label_smoothing, dtype)
            return softmax_value(states, vectors, self.bias, target, how)
        engine = self.engine(states)
        added = None
        if self.features is not None:
            added = self.features.of_all(history, self.n_classes)
        return softmax_objective(states, vectors, self.bias, target, dtype, engine, added)

    def _smoothed(
        self, value: Tensor, hidden: Tensor, target: Tensor, history: Tensor | None
    ) -> Tensor:
        """(1 - e) log p_i + e mean_w log p_w = log p_i - e (u_i - mean_w u_w)."""
        if self.label_smoothing == 0 or self.divided:  # which has it in its softmax
            return value
        states, vectors = self.states(hidden), self.geometry.vectors(self.weight)
        above = (states * (vectors[target] - vectors.mean(0))).sum(1)
        if self.bias is not None:
            above = above + self.bias[target] - self.bias.mean()
        if self.features is not None:
            every = self.features.of_all(history, self.n_classes)
            above = above + every.gather(1, target[:, None])[:, 0] - every.mean(1)
        return value - self.label_smoothing * above
