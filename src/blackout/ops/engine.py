"""What an engine is: the arithmetic under layers, cells and optimiser, in one version of it.

:mod:`blackout.ops.reference` is plain PyTorch, the truth for every other; :mod:`blackout.ops.cpu`
is native code. Both are modules with the functions named here, and type checking holds them to it
(:mod:`blackout.ops.dispatch`); ``tests/ops/test_engines.py`` holds them to the same results.

Words of a block come in G groups of M words; the words of a group share K samples. One group per
time step is the paper's layout (G = T, M = B); one group for the block (G = 1) and one for each
word (M = 1) are the two extremes. Shapes: hidden (G, M, h), target (G, M), samples (G, K).

A :data:`Scalar` is a number or a tensor of one number. Nothing in the contract asks an engine to
bring one back from its device: steps, norms, factors and learning rates may stay where they are.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

Scalar = float | Tensor
Objective = Literal["blackout", "blackout-noise", "sampled", "nce"]
Saved = Any
"""What a backward pass needs: a tuple of tensors, each engine's own."""


class SampledGradients(NamedTuple):
    """Gradients of the sampled output layer; row i of the table's belongs to word ``rows[i]``."""

    hidden: Tensor  # (G, M, h)
    rows: Tensor  # (G*K + G*M,)
    row_values: Tensor  # (G*K + G*M, h)
    bias_values: Tensor | None  # (G*K + G*M,), if asked for
    log_z: Tensor | None  # (), if asked for


class SoftmaxGradients(NamedTuple):
    """Gradients of the exact softmax: every row of the table has one."""

    hidden: Tensor  # (N, h)
    weight: Tensor  # (V, h)
    bias: Tensor | None  # (V,)


class RecurrenceGradients(NamedTuple):
    """Gradients of the recurrence over a block."""

    inputs: Tensor  # (T, B, G*h)
    state: Tensor | None  # (S, B, h), if asked for
    weight: Tensor  # (G*h, h)
    bias: Tensor | None  # (G*h,)


class Rounding(NamedTuple):
    """The random bits with which a step rounds a bfloat16 table: a pure function of these."""

    seed: int
    table: int
    step: Scalar


class RmsProp(NamedTuple):
    """What an update takes besides weight, moment, gradient and aging."""

    factor: Scalar  # of the gradient
    lr: Scalar
    beta: float
    damping: float
    rounding: Rounding


class RowGradient(Protocol):
    """A row-sparse gradient, collected by :meth:`Engine.collect_rows` and given back to it."""

    @property
    def rows(self) -> Tensor:
        """The distinct rows, ascending (U,)."""


class BlockShape(NamedTuple):
    """What does not change from block to block of a run."""

    steps: int  # T
    streams: int  # B


class Engine(Protocol):
    """The operations. Tables are (V, h), biases (V,) or None, products run in ``product_dtype``."""

    @property
    def name(self) -> str: ...

    # ------------------------------------------------------------------ tables

    def fill_uniform(self, table: Tensor, limit: float, key: int, rows: Tensor | None) -> None:
        """Fills a table with U(-limit, limit), a pure function of key, row and column.

        ``rows`` are the numbers of its rows in the whole table; None where it is the whole.
        """

    def lookup(self, table: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """``table[rows]`` in ``dtype``; a row that the table has not is refused."""

    # ------------------------------------------------------------------ sampled losses

    def draw_samples(
        self, threshold: Tensor, alias: Tensor, seed: int, step: Scalar, groups: int, samples: int
    ) -> Tensor:
        """(G, K) words from an alias table, a pure function of seed, step, group and place."""

    def sampled_forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_z: Scalar,
        target: Tensor,
        samples: Tensor,
        log_q_target: Tensor,
        log_q_samples: Tensor,
        objective: Objective,
        keep_copies: bool,
        product_dtype: torch.dtype,
    ) -> tuple[Tensor, Saved]:
        """J (G, M) of the words of a block, and what :meth:`sampled_backward` needs."""

    def sampled_backward(
        self,
        saved: Saved,
        target: Tensor,
        samples: Tensor,
        grad: Tensor,
        logit_sums: bool,
        row_dtype: torch.dtype,
    ) -> SampledGradients:
        """The gradients of sum(grad * J); bias and log Z only with ``logit_sums``.

        ``row_dtype``: the type wanted of ``row_values``; a wider one is no fault.
        """

    # ------------------------------------------------------------------ the exact softmax

    def softmax_forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        product_dtype: torch.dtype,
    ) -> tuple[Tensor, Saved]:
        """log p(target | hidden) (N,) for training, and what :meth:`softmax_backward` needs."""

    def softmax_backward(self, saved: Saved, target: Tensor, grad: Tensor) -> SoftmaxGradients:
        """The gradients of sum(grad * log p)."""

    def target_logit(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor
    ) -> Tensor:
        """u of each target, (N,)."""

    def log_partition(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, product_dtype: torch.dtype
    ) -> Tensor:
        """log of the sum of exp(u) over all words, (N,), in bounded memory."""

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """u of all words, (N, V), in the type of the hidden states; with gradients.

        No copy of the table is made.
        """

    def root_mean_square_prob(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, log_partition: Tensor
    ) -> Tensor:
        """sqrt(mean over hidden states (N, h) of p(w | s)²), (V,), in bounded memory."""

    # ------------------------------------------------------------------ recurrences

    def recurrence_forward(
        self,
        cell: str,
        inputs: Tensor,
        state: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        keep: Tensor | None,
        product_dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor | None, Saved]:
        """Outputs (T, B, h), the LSTM's cells (B, h) after the block, and what the way back needs.

        ``inputs`` (T, B, G*h) are what the step adds to ``weight`` (G*h, h) times the state before:
        G = 1 for the simple cells, 4 for the LSTM (i, f, g, o) and 3 for the GRU (r, z, n), in
        PyTorch's order. ``bias`` (G*h,) stands beside that product, where the GRU wants it.
        ``keep`` (T, B, 1) is 0 where the state before the step must not be used, else 1.
        """

    def recurrence_backward(
        self, cell: str, saved: Saved, grad: Tensor, state_gradient: bool
    ) -> RecurrenceGradients:
        """The gradients of sum(grad * outputs)."""

    # ------------------------------------------------------------------ updates

    def collect_rows(self, rows: Tensor, values: Tensor, length: int) -> RowGradient:
        """The gradient of a table with ``length`` rows; rows may repeat, their values add up."""

    def sum_duplicates(self, rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct rows, ascending, and for each the sum of its values."""

    def squared_norm(self, gradient: Any) -> Scalar:
        """The sum of the squares of a gradient: a tensor, or of :meth:`collect_rows`."""

    def exact_aging(self, touched: Tensor, rows: Tensor, step: Scalar, beta: float) -> Tensor:
        """beta^(steps since the last update) of each row, (U,); marks the rows as updated."""

    def rmsprop_rows(
        self, weight: Tensor, moment: Tensor, gradient: Any, aging: Tensor | float, update: RmsProp
    ) -> None:
        """Updates the touched rows of ``weight`` and ``moment`` in place."""

    def rmsprop_dense(
        self,
        weight: Tensor,
        moment: Tensor,
        gradient: Tensor,
        aging: Tensor | float,
        update: RmsProp,
    ) -> None:
        """Updates all of ``weight`` and ``moment`` in place."""

    # ------------------------------------------------------------------ a whole block

    def whole_step(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, shape: BlockShape
    ) -> Any:
        """A training step for blocks of this shape, from words to new weights, or None.

        None where the engine has none for this model: then the step is composed of the other
        operations (:mod:`blackout.train.step`, which also says what such an object does).
        """
