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

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from blackout.ops.tree import Tree

Scalar = float | Tensor
Objective = Literal["blackout", "blackout-noise", "sampled", "nce"]
Saved = Any
"""What a backward pass needs: a tuple of tensors, each engine's own."""


class SampledGradients(NamedTuple):
    """Gradients of the sampled output layer; row i of the table's belongs to word ``rows[i]``."""

    hidden: Tensor  # (G, M, h)
    rows: Tensor  # (G*C + G*M,)
    row_values: Tensor  # (G*C + G*M, h)
    bias_values: Tensor | None  # (G*C + G*M,), if asked for
    log_z: Tensor | None  # (), if asked for


class SoftmaxGradients(NamedTuple):
    """Gradients of the exact softmax: every row of the table has one."""

    hidden: Tensor  # (N, h)
    weight: Tensor  # (V, h)
    bias: Tensor | None  # (V,)
    logits: Tensor | None  # (N, V), where something was added to them


class Added(NamedTuple):
    """What is added to the logits of a block besides products and biases."""

    target: Tensor  # (G, M)
    samples: Tensor  # (G, M, K)


class Windows(NamedTuple):
    """Hashed features of N histories: word w has the sum of numbers[(start + w) mod n] added.

    The n numbers, a power of two, lie in a ring; each history has some windows of it.
    """

    numbers: Tensor  # (n,)
    start: Tensor  # (N, orders), int64

    def of(self, rows: Tensor | slice) -> Windows:
        """Those of some of the histories."""
        return Windows(self.numbers, self.start[rows])


class PathGradients(NamedTuple):
    """Gradients of a tree's log-probabilities: those of the vectors of nodes on the paths."""

    hidden: Tensor  # (N, h)
    rows: Tensor  # (U,), distinct
    row_values: Tensor  # (U, h)
    bias_values: Tensor  # (U,)


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
    whole: Callable[[Tensor], Tensor] | None = None
    """From rows of the table to their numbers in the whole one, of which it is a part."""

    def numbers(self, rows: Tensor) -> Tensor:
        """The numbers by which rows are rounded, whoever holds them."""
        return rows if self.whole is None else self.whole(rows)


class RmsProp(NamedTuple):
    """What an update takes besides weight, moment, gradient and aging."""

    factor: Scalar  # of the gradient
    lr: Scalar
    beta: float
    damping: Scalar
    rounding: Rounding
    shrink: Scalar = 0.0  # of the weight, before the step


class RowGradient(Protocol):
    """A row-sparse gradient, collected by :meth:`Engine.collect_rows` and given back to it."""

    @property
    def rows(self) -> Tensor:
        """The distinct rows, ascending (U,); an engine may fill them up with the last one."""

    @property
    def distinct(self) -> Scalar:
        """How many there are, those that fill up left out."""


class StepResult(NamedTuple):
    """What a block came to."""

    loss: float
    """The sum of its words' losses, divided by B·T."""
    norm: float
    """The norm of its gradient before clipping; 0 where nothing is clipped."""


class BlockShape(NamedTuple):
    """What does not change from block to block of a run."""

    steps: int  # T
    streams: int  # B


class Engine(Protocol):
    """The operations. Tables are (V, h), biases (V,) or None, products run in ``product_dtype``."""

    @property
    def name(self) -> str: ...

    def matrix_product(self, left: Tensor, right: Tensor) -> Tensor:
        """``left @ right`` of matrices (…, n, k) and (…, k, m) of one type, in that type."""

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

    def merge_copies(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Words (G, C) and how often each was drawn (G, C), float32, C <= K: each word once.

        A group with fewer words has columns with multiplicity 0, which hold one of its words, so
        that no row is touched that was not drawn. The order and C are the engine's choice.
        """

    def sampled_forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_z: Scalar,
        target: Tensor,
        samples: Tensor,
        multiplicity: Tensor | None,
        log_q_target: Tensor,
        log_q_samples: Tensor,
        objective: Objective,
        keep_copies: bool,
        product_dtype: torch.dtype,
        added: Added | None = None,
    ) -> tuple[Tensor, Saved]:
        """J (G, M) of the words of a block, and what :meth:`sampled_backward` needs.

        ``samples`` (G, K) as they were drawn, or merged (G, C) with their ``multiplicity``. The
        result is the same to rounding; C then stands for K in all shapes. What is saved has
        ``d_target`` (G, M) and ``d_samples`` (G, M, K), the derivatives by the logits.
        """

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

    # ------------------------------------------------------------------ hashed features

    def window_values(
        self, numbers: Tensor, start: Tensor, target: Tensor, samples: Tensor
    ) -> Added:
        """The features of a block's words after histories with these ``start`` (G, M, orders)."""

    def window_gradient(
        self, numbers: Tensor, start: Tensor, target: Tensor, samples: Tensor, d: Added
    ) -> tuple[Tensor, Tensor]:
        """Which of the numbers are touched, ascending, and their gradients, by ``d``.

        Targets touch theirs, samples those that are no longer 0: a target has had them. A
        derivative of 0 touches as any other does, as in tables of words: lazy moments move with
        every touch, and rounding decides whether a derivative is 0 or next to it.
        """

    def add_windows(self, logits: Tensor, windows: Windows, first: int) -> None:
        """Adds to logits (N, C) of the words first, first + 1, … their features; no gradients."""

    def add_window_gradient(
        self, d_logits: Tensor, start: Tensor, first: int, d_numbers: Tensor
    ) -> None:
        """Adds derivatives by such logits to those by the numbers."""

    # ------------------------------------------------------------------ the exact softmax

    def softmax_forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        product_dtype: torch.dtype,
        added: Tensor | None = None,
    ) -> tuple[Tensor, Saved]:
        """log p(target | hidden) (N,) for training, and what :meth:`softmax_backward` needs.

        ``added`` (N, V): to the logits.
        """

    def softmax_backward(self, saved: Saved, target: Tensor, grad: Tensor) -> SoftmaxGradients:
        """The gradients of sum(grad * log p)."""

    def target_logit(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor
    ) -> Tensor:
        """u of each target, (N,)."""

    def log_partition(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        product_dtype: torch.dtype,
        windows: Windows | None = None,
        first: int = 0,
    ) -> Tensor:
        """log of the sum of exp(u) over all words, (N,), in bounded memory.

        ``first``: the word of the table's first row, where it is a part of another.
        """

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """u of all words, (N, V), in the type of the hidden states; with gradients.

        No copy of the table is made.
        """

    def root_mean_square_prob(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, log_partition: Tensor
    ) -> Tensor:
        """sqrt(mean over hidden states (N, h) of p(w | s)²), (V,), in bounded memory."""

    # ------------------------------------------------------------------ paths of a tree

    def path_forward(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, tree: Tree, target: Tensor
    ) -> tuple[Tensor, Saved]:
        """log p(target | hidden) (N,) for training, and what :meth:`path_backward` needs.

        ``weight`` (V - 1, h): the vectors of the nodes, of which the path of a word names some.
        """

    def path_backward(self, saved: Saved, grad: Tensor) -> PathGradients:
        """The gradients of sum(grad * log p)."""

    def path_log_prob(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, tree: Tree, target: Tensor
    ) -> Tensor:
        """log p(target | hidden), (N,), in bounded memory."""

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

    def adam_rows(
        self,
        weight: Tensor,
        mean: Tensor,
        moment: Tensor,
        gradient: Any,
        momentum: Tensor | float,
        aging: Tensor | float,
        update: RmsProp,
    ) -> None:
        """Updates the touched rows of ``weight``, ``mean`` and ``moment`` in place.

        ``momentum`` and ``aging`` are the factors of the old mean and of the old moment: numbers,
        or one for each row (U, 1).
        """

    def adam_dense(
        self,
        weight: Tensor,
        mean: Tensor,
        moment: Tensor,
        gradient: Tensor,
        momentum: Tensor | float,
        aging: Tensor | float,
        update: RmsProp,
    ) -> None:
        """Updates all of ``weight``, ``mean`` and ``moment`` in place."""

    # ------------------------------------------------------------------ a whole block

    def whole_step(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, shape: BlockShape
    ) -> Any:
        """A training step for blocks of this shape, from words to new weights, or None.

        None where the engine has none for this model: then the step is composed of the other
        operations (:mod:`blackout.train.step`, which also says what such an object does).
        """
