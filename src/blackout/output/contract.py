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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, SupportsIndex, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from blackout.errors import UserError
from blackout.ops.engine import Scalar
from blackout.ops.plan import OutputPlan, TreePlan
from blackout.output.labels import Labels, checked_labels
from blackout.output.options import require_one_of, require_whole
from blackout.output.results import (
    OutputWithLoss,
    Reduction,
    TopK,
    best_of_all,
    best_of_tiles,
    columns_of_tiles,
    reduced,
)
from blackout.output.surroundings import undisturbed
from blackout.output.targets import (
    by_state,
    check_shapes,
    check_states,
    checked_classes,
    checked_examples,
    require_tensor,
)
from blackout.proposals import Draw
from blackout.tables import tables_of


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
    words: Sequence[str] | None = None
    """The texts of the classes, for a layer whose settings name words or files of them; None where
    there are none, and where a saved state will say what they would."""

    @property
    def n_classes(self) -> int:
        return len(self.counts)


class OutputLayer(nn.Module, ABC):
    """A distribution over ``n_classes`` classes for each hidden state of ``in_features``."""

    history_words = 0
    """Words before each target that the layer looks at besides the hidden state."""
    reads_text = False
    """Whether :meth:`read_text` wants the training text before training begins."""
    takes_samples = False
    """Whether :meth:`forward` may be given the samples to train with."""
    self_normalised = False
    """Whether training draws the normaliser to a constant: :meth:`unnormalised_log_prob`."""
    divisible = False
    """Whether ``process_group`` may divide its tables over ranks."""
    follows_states = False
    """Whether :meth:`follow_states` wants some hidden states from time to time."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        ignore_index: int | None = -100,
        reduction: Reduction = "mean",
    ) -> None:
        """``ignore_index``: a target that says: this example counts for nothing; None for none.
        ``reduction``: what ``loss`` is, the "mean" over the examples that count, their "sum", or
        "none", the loss of each.
        """
        super().__init__()
        require_whole("in_features", in_features, 1)
        require_whole("n_classes", n_classes, 2)
        require_one_of("reduction", reduction, get_args(Reduction))
        if ignore_index is not None and not isinstance(ignore_index, SupportsIndex):
            raise UserError(f"ignore_index is {ignore_index!r}, must be a whole number or None")
        self.in_features = in_features
        self.n_classes = n_classes
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction

    @classmethod
    def from_spec(cls, spec: LayerSpec) -> Self:
        """The layer of a language model over a vocabulary."""
        return cls(spec.in_features, spec.n_classes, **spec.settings, **spec.common)

    # ------------------------------------------------------------------ training

    @undisturbed
    def forward(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
        divisor: Scalar | None = None,
        *,
        weights: Tensor | None = None,
        samples: Tensor | Draw | None = None,
    ) -> OutputWithLoss:
        """The objective of each example and the loss.

        ``hidden`` (N, h), (T, B, h) or, one example, (h,); ``target`` (N,), (T, B) or (). Examples
        whose target is ``ignore_index``, or where ``mask``, shaped like the target, is False,
        count for nothing, whatever their states hold. ``weights``, of that shape too: how much
        each example counts; the mean is then the weighted one. ``history`` (..., n): the words
        before each target, the latest first; where one is enough, shaped like ``target``.
        ``divisor``: what the sum is divided by for the mean, instead of what counts.

        ``target`` (N, L) or (T, B, L): several true classes an example, filled up with
        ``ignore_index``; its objective is the mean over them, and none is a negative of another.

        ``samples``: those to train with instead of drawn ones, classes (K,) or one set for each
        group (G, K), or what :meth:`SamplingLayer.draw` gave.
        """
        require_tensor("target", target)
        if hidden.ndim == 1 and target.ndim == 0:
            mask, history, weights = (
                None if x is None else x[None] for x in (mask, history, weights)
            )
            output, loss = self.forward(
                hidden[None], target[None], mask, history, divisor, weights=weights, samples=samples
            )
            return OutputWithLoss(output[0], loss[0] if self.reduction == "none" else loss)
        if samples is not None and not self.takes_samples:
            raise UserError(f"{type(self).__name__} draws no samples: samples= has no meaning")
        more: dict[str, Any] = {} if samples is None else {"samples": samples}
        if target.ndim == hidden.ndim > 1:
            output, mask = self._labelled(hidden, target, mask, history, more)
            return reduced(output, mask, weights, divisor, self.reduction)
        given = checked_examples(
            hidden,
            target,
            mask,
            history,
            n_classes=self.n_classes,
            in_features=self.in_features,
            ignore_index=self.ignore_index,
        )
        if self.training:
            output = self.objective(*given, **more)
        else:
            flat, past = self._flat(given.hidden, given.history)
            output = self.exact(flat, None, given.target.reshape(-1), past).view(target.shape)
        return reduced(output, given.mask, weights, divisor, self.reduction)

    def _labelled(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None,
        history: Tensor | None,
        more: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """The objectives of examples with several classes, and which of them count."""
        lead = hidden.shape[:-1]
        check_shapes(hidden, target.sum(-1), mask, history, self.in_features)
        if history is not None and history.ndim == len(lead):
            history = history[..., None]
        labels = checked_labels(
            target.reshape(lead.numel(), target.shape[-1]),
            None if mask is None else mask.reshape(-1),
            self.n_classes,
            self.ignore_index,
        )
        flat, past = self._flat(hidden, history)
        if self.training:
            states, before = flat[labels.row], None if past is None else past[labels.row]
            values = self.objective_of_labels(states, labels, before, **more)
        else:
            flat = flat.masked_fill(~labels.counted[:, None], 0)  # whatever those states hold
            values = self.exact(flat, labels.row, labels.target, past)
        return labels.mean(values).view(lead), labels.counted.view(lead)

    @abstractmethod
    def objective(
        self,
        hidden: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        history: Tensor | None = None,
    ) -> Tensor:
        """J of each example, with gradients; what training maximises.

        What it is given is checked: ``target`` int64, each a class, ``mask`` bool or None.
        """

    def objective_of_labels(
        self, hidden: Tensor, labels: Labels, history: Tensor | None = None
    ) -> Tensor:
        """J of each pair (P,) of an example and one of its classes, for the states (P, h) of pairs.

        A layer that looks at some negatives only leaves the example's other classes out of them.
        """
        return self.objective(hidden, labels.target, None, history)

    def plan(self) -> OutputPlan | TreePlan | None:
        """What :meth:`objective` does, for engines that provide a whole training step."""
        return None

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

    def unnormalised_log_prob(
        self, hidden: Tensor, row: Tensor | None, target: Tensor, history: Tensor | None = None
    ) -> Tensor:
        """log p(target | hidden[row]) without the sum over the vocabulary, O(h) a word.

        Off by how far log Z lies from what training draws it to; for layers that do.
        """
        raise UserError(
            f"{type(self).__name__} does not normalise itself: its scores without the sum over "
            "the vocabulary mean nothing; those of losses self-normalised and nce do"
        )

    def exact(
        self,
        hidden: Tensor,
        row: Tensor | None,
        target: Tensor,
        history: Tensor | None = None,
    ) -> Tensor:
        """As :meth:`pair_log_prob`, one target a state where ``row`` is None: for evaluation.

        With gradients where a layer can give them.
        """
        if row is None:
            return self.target_log_prob(hidden, target, history)
        return self.pair_log_prob(hidden, row, target, history)

    @undisturbed
    def log_prob(
        self, hidden: Tensor, classes: Tensor | None = None, history: Tensor | None = None
    ) -> Tensor:
        """Exact log-probabilities of all classes, (..., n_classes), or of some, (..., n).

        ``classes`` (n,): the same for all states, or (..., n): those of each. They are normalised
        over all classes, as if the others had been asked for too.
        """
        flat, past = self._flat(hidden, history)
        if classes is None:
            parts = [part for _, part in self.log_prob_tiles(flat, past)]
            return torch.cat(parts, 1).view(*hidden.shape[:-1], self.n_classes)
        classes = checked_classes(classes, hidden.shape[:-1], self.n_classes)
        wanted = by_state(classes).expand(len(flat), -1)
        found = columns_of_tiles(self.log_prob_tiles(flat, past), wanted)
        return found.view(*hidden.shape[:-1], classes.shape[-1])

    @undisturbed
    @torch.no_grad()
    def topk(
        self,
        hidden: Tensor,
        k: int,
        classes: Tensor | None = None,
        history: Tensor | None = None,
    ) -> TopK:
        """The k most probable classes with their log-probabilities, in bounded memory.

        Like ``torch.topk``. ``classes``: look among these only, as in :meth:`log_prob`.
        """
        if classes is None:
            flat, past = self._flat(hidden, history)
            best = best_of_tiles(self.log_prob_tiles(flat, past), k)
            return TopK(*(part.view(*hidden.shape[:-1], k) for part in best))
        return best_of_all(self.log_prob(hidden, classes, history), k, classes)

    def predict(
        self, hidden: Tensor, classes: Tensor | None = None, history: Tensor | None = None
    ) -> Tensor:
        """The most probable class of each example, without holding all probabilities at once."""
        return self.topk(hidden, 1, classes, history).indices[..., 0]

    def _flat(self, hidden: Tensor, history: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Hidden states (N, h) and their histories (N, n)."""
        check_states(hidden, self.in_features)
        past = None if history is None else history.reshape(-1, history.shape[-1])
        return hidden.reshape(-1, self.in_features), past

    # ------------------------------------------------------------------ what training may ask

    def reset_parameters(self) -> None:
        """Gives the tables their initial values; what else a layer has it resets itself."""
        for table in tables_of(self):
            table.reset_parameters()

    def state_was_loaded(self) -> None:
        """Called when the tensors of the state were filled from a file: refuses a wrong one."""

    def expect_blocks(self, unigram: Tensor, steps: int, streams: int) -> None:
        """Tells the tables how often a block of T × B words will touch their rows (paper eq. 19).

        ``unigram`` (V,): how probable each class is as a target.
        """

    def set_rate(self, rate: float) -> None:
        """Tells a layer that learns by itself, in ``backward``, how fast."""

    def read_text(self, context: ArrayLike, follower: ArrayLike) -> None:
        """Takes the pairs of the training text: ``follower`` (N,) comes after ``context`` (N,)."""

    def follow_states(self, hidden: Tensor) -> None:
        """Looks at the model where it stands now, at some hidden states (N, h) of the text."""
