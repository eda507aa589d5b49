"""One training step: the words of a block in, new weights out.

:func:`make_step` asks the engine for a step that it provides whole (one native call, one graph on a
GPU) and otherwise composes one from autograd, which any model has. All mean the same: the loss of a
block is the sum over its words divided by B·T, so that a word weighs the same in every block. As a
plain mean, the few words of an epoch's last blocks would weigh hundreds of times more and throw
RMSProp off its scale.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from blackout.models.language_model import LanguageModel
from blackout.models.state import State
from blackout.ops.dispatch import engine_for
from blackout.ops.engine import BlockShape, Scalar, StepResult
from blackout.optim import RowSparseOptimizer
from blackout.text.streams import Block
from blackout.train.divided_step import DividedStep

__all__ = ["BlockShape", "ComposedStep", "StepResult", "TrainingStep", "make_step"]

GPU_INTERVAL = 16  # blocks; reading a loss makes the host wait for all work given to the device


class TrainingStep(Protocol):
    """Takes blocks of one shape and changes a model's weights."""

    state: State
    """The network's state, carried from block to block; may be replaced, or filled in place."""
    interval: int
    """After so many blocks at most, :meth:`results` should be asked for."""

    def train(self, block: Block) -> None:
        """Trains on one block; need not wait for what the device makes of it."""

    def results(self) -> list[StepResult]:
        """What the blocks since the last call came to, in their order."""


def make_step(
    model: LanguageModel, optimizer: RowSparseOptimizer, shape: BlockShape
) -> TrainingStep:
    """The fastest step there is for this model and blocks of this shape."""
    if model.ranks.size > 1:
        return DividedStep(model, optimizer, shape, _interval(model.device))
    engine = engine_for(model.impl, model.device, model.embedding.weight.dtype)
    whole: TrainingStep | None = engine.whole_step(model, optimizer, shape)
    return whole or ComposedStep(model, optimizer, shape)


def _interval(device: torch.device) -> int:
    return 1 if device.type == "cpu" else GPU_INTERVAL


class ComposedStep:
    """Network, loss, gradients and update one after another, by autograd: for any model."""

    def __init__(
        self, model: LanguageModel, optimizer: RowSparseOptimizer, shape: BlockShape
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.divisor = shape.steps * shape.streams
        self.state = model.initial_state(shape.streams)
        self.device = model.device
        self.interval = _interval(model.device)
        self._unread: list[tuple[Scalar, Scalar]] = []

    def train(self, block: Block) -> None:
        read = self.model.read(self._moved(block.inputs), self.state)
        # only where streams come to their end is there anything to leave out
        mask = self._moved(block.mask) if block.words < block.mask.size else None
        targets = self._moved(block.targets)
        _, loss = self.model.output(read.hidden, targets, mask, read.history, self.divisor)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.state = read.state
        self._unread.append((loss.detach(), self.optimizer.last_norm))

    def _moved(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def results(self) -> list[StepResult]:
        unread, self._unread = self._unread, []
        return [StepResult(float(loss), float(norm)) for loss, norm in unread]
