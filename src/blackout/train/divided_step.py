"""One training step of several ranks: each has its streams, the tables' owners have the rows.

A rank reads its streams of the block through the replicated body; the output layer exchanges what
the loss needs. Row gradients arrive at their owners by themselves; those of the body are added up
here, in float32 and in rank order, together with the loss and with what ranks wish to happen next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from blackout.models.language_model import LanguageModel
from blackout.models.state import State
from blackout.ops.engine import BlockShape, Scalar, StepResult
from blackout.optim import RowSparseOptimizer
from blackout.ranks.division import is_complete
from blackout.ranks.known import Known
from blackout.ranks.memory import keep_freed_memory
from blackout.text.streams import Block, columns_of

__all__ = ["DividedStep", "Wishes"]


_MANY = 2**16  # numbers of a parameter that are worth an exchange of their own


class Wishes(NamedTuple):
    """What a rank wants after a block, or what any of them wanted."""

    stop: bool = False
    save: bool = False


class DividedStep:
    """Network, loss, gradients and update; every rank is given the whole block."""

    def __init__(
        self,
        model: LanguageModel,
        optimizer: RowSparseOptimizer,
        shape: BlockShape,
        interval: int = 1,
    ) -> None:
        self.model, self.optimizer, self.ranks = model, optimizer, model.ranks
        self.streams, self.device = shape.streams, model.device
        self.first, self.last = self._columns(self.ranks.rank)
        model.dropout.streams = (self.first, self.streams)
        self.body: list[nn.Parameter] = [p for p in model.parameters() if not is_complete(p)]
        # the layer's gradients are means over ranks, and so will the body's be
        self.divisor = shape.steps * shape.streams / self.ranks.size
        self.interval = interval
        self.wishes = self.granted = Wishes()
        self._unread: list[tuple[Tensor, Scalar]] = []
        self._keeps_memory = False
        self._own: State  # of this rank's streams
        self.state = model.initial_state(shape.streams)

    def train(self, block: Block) -> None:
        own, count = block.share(self.ranks.rank, self.ranks.size), self.last - self.first
        mask, targets = (self._moved(x)[:, :count] for x in (own.mask, own.targets))
        self.optimizer.zero_grad(set_to_none=True)
        self.ranks.known = known = self._known(block)
        try:
            read = self.model.read(known.inputs[self.ranks.rank], self._own)
            hidden = read.hidden[:, :count]
            history = None if read.history is None else read.history[:, :count]
            _, loss = self.model.output(hidden, targets, mask, history, self.divisor)
            loss.backward()
        finally:
            self.ranks.known = None
        result = self._add_up(loss.detach())
        self.optimizer.step()
        if not self._keeps_memory and self.device.type == "cpu":
            keep_freed_memory()  # only now: tables and moments, all made, stay as they are
            self._keeps_memory = True
        self._own = read.state
        self._unread.append((result, self.optimizer.last_norm))

    def _known(self, block: Block) -> Known:
        """All ranks' shares of the block, each as the one that trains on it has it."""
        shares = [block.share(rank, self.ranks.size) for rank in range(self.ranks.size)]
        inputs = [self._moved(share.inputs) for share in shares]
        targets = self._moved(np.where(block.mask, block.targets, -1))
        parts = (slice(*self._columns(rank)) for rank in range(self.ranks.size))
        return Known(inputs, [targets[:, part] for part in parts], self.divisor)

    def _add_up(self, loss: Tensor) -> Tensor:
        """Makes the body's gradients those of all ranks; gives the loss and the wishes of all."""
        said = torch.tensor([float(wish) for wish in self.wishes], device=loss.device)
        few = [p for p in self.body if p.numel() < _MANY]
        for p in self.body:
            if p.numel() >= _MANY:  # not copied, what is large
                p.grad = self._mean(_gradient(p)).to(p.dtype)
        numbers = [*(_gradient(p).view(-1) for p in few), loss.float().view(1), said]
        *parts, result = self._mean(torch.cat(numbers)).split(
            [*(p.numel() for p in few), 1 + len(said)]
        )
        for p, part in zip(few, parts, strict=True):
            p.grad = part.view_as(p).to(p.dtype)
        return result

    def _mean(self, part: Tensor) -> Tensor:
        return self.ranks.sum_in_order(part, "body gradients").div_(self.ranks.size)

    def agree(self, wishes: Wishes) -> Wishes:
        """Sends a rank's wishes with the next block; gives those of all that were sent so far.

        Every rank is told the same after the same block, without an exchange of their own.
        """
        granted, self.granted, self.wishes = self.granted, Wishes(), wishes
        return granted

    def results(self) -> list[StepResult]:
        unread, self._unread = self._unread, []
        found = [(result.tolist(), float(norm)) for result, norm in unread]
        for (_, stop, save), _ in found:
            self.granted = Wishes(self.granted.stop or stop > 0, self.granted.save or save > 0)
        return [StepResult(numbers[0], norm) for numbers, norm in found]

    def _moved(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    # ------------------------------------------------------------------ the state of all streams

    @property
    def state(self) -> State:
        """The network's state in all streams of a block; all ranks ask for it together."""
        parts = (self._columns(rank) for rank in range(self.ranks.size))
        lengths, count = [last - first for first, last in parts], self.last - self.first
        found = []
        for dim, values in ((2, self._own.layers), (1, self._own.words)):
            whole = values.new_empty(*values.shape[:dim], self.streams, *values.shape[dim + 1 :])
            if values.numel():
                own = values.narrow(dim, 0, count).movedim(dim, 0).contiguous()
                whole = torch.cat(self.ranks.gather_uneven(own, lengths, "state")).movedim(0, dim)
            found.append(whole.contiguous())
        return State(*found)

    @state.setter
    def state(self, state: State) -> None:
        # a rank without a stream carries one of nothing
        columns = torch.arange(self.first, max(self.last, self.first + 1)).clamp(
            max=self.streams - 1
        )
        self._own = state.of_streams(columns.to(state.layers.device))

    def _columns(self, rank: int) -> tuple[int, int]:
        return columns_of(self.streams, rank, self.ranks.size)


def _gradient(p: nn.Parameter) -> Tensor:
    """Its gradient in float32; 0 where it has none."""
    grad = torch.zeros_like(p) if p.grad is None else p.grad
    return grad.float().contiguous()
