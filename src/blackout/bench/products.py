"""The matrix products that a block of training cannot do without, to run them alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from blackout import losses
from blackout.config import Config


class BlockProducts:
    """The six kinds of float32 products of a block, on arrays of their own.

    Recurrence: W s of each step, its transpose in the backward pass, one product for W's gradient.
    Output: logits, hidden gradient and row gradients of each sample set.
    """

    def __init__(self, config: Config, vocab_size: int) -> None:
        steps, batch = config.run.bptt, config.run.batch
        h, loss = config.model.hidden, config.loss
        kind = losses.find(loss.loss)
        columns = round(kind.trained_rows(loss, vocab_size))
        sharing = loss.sharing if "sharing" in kind.options else "block"
        groups = {"step": steps, "block": 1, "word": steps * batch}[sharing]
        words = steps * batch // groups
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

    def __init__(self, hidden: int, rows: int, words: int = 1024, tile: int = 2048) -> None:
        tile = min(tile, rows)
        self.states, self.rows = torch.rand(words, hidden), torch.rand(tile, hidden)
        self.logits = torch.empty(words, tile)
        self.flops = 2 * words * tile * hidden

    def run(self) -> None:
        torch.mm(self.states, self.rows.mT, out=self.logits)


def seconds(function: Callable[[], object], repeats: int = 1) -> float:
    """Mean time of a call: of one thread its processor time, which other work hardly disturbs."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(repeats):
        function()
    return (clock() - start) / repeats
