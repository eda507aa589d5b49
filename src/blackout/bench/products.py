"""The matrix products that a block of training cannot do without, to run them alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from blackout import losses
from blackout.config import Config


class BlockProducts:
    """The six kinds of products of a block, on arrays of their own.

    Recurrence: W s of each step, its transpose in the backward pass, one product for W's gradient.
    Output: logits, hidden gradient and row gradients of each sample set.
    """

    def __init__(
        self,
        config: Config,
        vocab_size: int,
        device: torch.device | None = None,
        columns: int | None = None,
    ) -> None:
        """``columns``: of a sample set, where they are not one for each sample."""
        steps, batch = config.run.bptt, config.run.batch
        h, loss = config.model.hidden, config.loss
        kind = losses.find(loss.loss)
        columns = columns or round(kind.trained_rows(loss, vocab_size))
        sharing = loss.sharing if "sharing" in kind.options else "block"
        groups = {"step": steps, "block": 1, "word": steps * batch}[sharing]
        words = steps * batch // groups
        made: Any = {"device": device, "dtype": product_type(config, device)}
        self.states = torch.rand(steps, batch, h, **made)
        self.matrix, self.d_matrix = torch.rand(h, h, **made), torch.empty(h, h, **made)
        self.new_states = torch.empty(steps, batch, h, **made)
        self.hidden = torch.rand(groups, words, h, **made)
        self.rows = torch.rand(groups, columns, h, **made)
        self.logits = torch.empty(groups, words, columns, **made)
        self.d_hidden, self.d_rows = torch.empty_like(self.hidden), torch.empty_like(self.rows)
        self.flops = 2 * steps * batch * 3 * (h * h + columns * h)

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return sum(a.nbytes for a in vars(self).values() if isinstance(a, torch.Tensor))

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
    """The product of exact evaluation: hidden states by a tile of the word table."""

    def __init__(
        self,
        hidden: int,
        rows: int,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        on_gpu = device is not None and device.type == "cuda"
        words, tile = (8192, min(8192, rows)) if on_gpu else (1024, min(2048, rows))
        made: Any = {"device": device, "dtype": dtype}
        self.states, self.rows = torch.rand(words, hidden, **made), torch.rand(tile, hidden, **made)
        self.logits = torch.empty(words, tile, **made)
        self.flops = 2 * words * tile * hidden

    def run(self) -> None:
        torch.mm(self.states, self.rows.mT, out=self.logits)


def product_type(config: Config, device: torch.device | None) -> torch.dtype:
    """What bare products are made of: float32 on a CPU, on a GPU what the run multiplies."""
    on_gpu = device is not None and device.type == "cuda"
    return torch.bfloat16 if on_gpu and config.run.precision == "bf16" else torch.float32


def seconds(
    function: Callable[[], object], repeats: int = 1, wait: Callable[[], None] = lambda: None
) -> float:
    """Mean time of a call: of one thread its processor time, which other work hardly disturbs.

    ``wait`` returns when a device has done what it was given.
    """
    on_gpu = torch.cuda.is_initialized()
    clock = time.process_time if torch.get_num_threads() == 1 and not on_gpu else time.perf_counter
    wait()
    start = clock()
    for _ in range(repeats):
        function()
    wait()
    return (clock() - start) / repeats
