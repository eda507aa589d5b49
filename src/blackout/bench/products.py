"""The matrix products that a block of training cannot do without, and how fast they run alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from blackout.config import Config

_GATES = {"sigmoid": 1, "tanh": 1, "relu": 1, "gru": 3, "lstm": 4}


def flops_per_word(config: Config, vocab_size: int) -> int:
    """Operations in the matrix products for one trained word, forward and backward.

    6h² for each square matrix of the recurrence (the first layer of a simple cell has one, its
    input matrix being the word table) and 6Kh for the output layer, V instead of K when exact.

    >>> flops_per_word(Config.from_dict({"model": {"hidden": 256}}), 64000)
    1161216
    """
    model, loss = config.model, config.loss
    simple = _GATES[model.cell] == 1
    matrices = _GATES[model.cell] * (2 * model.layers - (1 if simple else 0))
    size = model.projection or model.hidden
    words = vocab_size if loss.loss == "full" else loss.samples
    return 6 * (matrices * model.hidden**2 + model.projection * model.hidden + words * size)


class BlockProducts:
    """The six kinds of float32 products of a block, on arrays of their own.

    Recurrence: W s of each step, its transpose in the backward pass, one product for W's gradient.
    Output: logits, hidden gradient and row gradients of each sample set.
    """

    def __init__(self, config: Config, vocab_size: int) -> None:
        steps, batch = config.run.bptt, config.run.batch
        h, loss = config.model.hidden, config.loss
        if loss.loss == "full":
            groups, words, columns = 1, steps * batch, vocab_size
        else:
            groups = {"step": steps, "block": 1, "word": steps * batch}[loss.sharing]
            words, columns = steps * batch // groups, loss.samples
        self.states = torch.rand(steps, batch, h)
        self.matrix, self.d_matrix = torch.rand(h, h), torch.empty(h, h)
        self.new_states = torch.empty(steps, batch, h)
        self.hidden = torch.rand(groups, words, h)
        self.rows = torch.rand(groups, columns, h)
        self.logits = torch.empty(groups, words, columns)
        self.d_hidden, self.d_rows = torch.empty_like(self.hidden), torch.empty_like(self.rows)
        self.flops = 2 * steps * batch * 3 * (h * h + columns * h)

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return sum(a.numel() * 4 for a in vars(self).values() if isinstance(a, torch.Tensor))

    def run(self) -> None:
        for t, states in enumerate(self.states):
            torch.mm(states, self.matrix.mT, out=self.new_states[t])
        for t, states in enumerate(self.states):
            torch.mm(states, self.matrix, out=self.new_states[t])
        flat = self.states.view(-1, len(self.matrix))
        torch.mm(flat.mT, self.new_states.view(flat.shape), out=self.d_matrix)
        torch.bmm(self.hidden, self.rows.mT, out=self.logits)
        torch.bmm(self.logits, self.rows, out=self.d_hidden)
        torch.bmm(self.logits.mT, self.hidden, out=self.d_rows)


class EvaluationProducts:
    """The float32 product of exact evaluation: hidden states by a tile of the word table."""

    def __init__(self, hidden: int, vocab_size: int, words: int = 1024, tile: int = 2048) -> None:
        tile = min(tile, vocab_size)
        self.states, self.rows = torch.rand(words, hidden), torch.rand(tile, hidden)
        self.logits = torch.empty(words, tile)
        self.flops = 2 * words * tile * hidden

    def run(self) -> None:
        torch.mm(self.states, self.rows.mT, out=self.logits)


def seconds(function: Callable[[], object], repeats: int = 1) -> float:
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats
