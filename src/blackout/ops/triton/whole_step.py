"""A training step that the device runs by itself: one CUDA graph for blocks of one shape.

A block is some hundred small kernels; launched one by one they take the host longer than the GPU.
They are captured once and then replayed. What changes from block to block (words, learning rates,
the number of the step) is copied to fixed places before; losses are read back for many blocks at
once. On the CPU, for Triton's interpreter, the same code runs without a graph.

A network and an optimiser that this step is not made for get None, and are composed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from blackout.ops.engine import BlockShape, StepResult
from blackout.ops.plan import OutputPlan
from blackout.ops.reference.dropout import draw_key
from blackout.ops.triton.block import Block, Layer, Network, Told, Weight
from blackout.ops.triton.objective import MOST_COLUMNS
from blackout.ops.triton.staging import Staging

INTERVAL = 64
"""Blocks whose losses are read together: a loss that is no number is noticed after so many."""
_EOS = 0


def whole_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, shape: BlockShape
) -> GraphStep | None:
    """A step for blocks of this shape, or None where it has to be composed."""
    return GraphStep(model, optimizer, shape) if _suits(model, optimizer) else None


def _counted(block: Any) -> np.ndarray:
    """The targets, in place of those that do not count one that is there: no row is touched."""
    targets: np.ndarray = block.targets
    if block.words == targets.size or not block.words:
        return targets
    return np.where(block.mask, targets, targets[block.mask][0])


def _suits(model: Any, optimizer: Any) -> bool:
    plan, changes = model.plan(), optimizer.plan() if hasattr(optimizer, "plan") else None
    if plan is None or changes is None:
        return False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    output = plan.output
    if not isinstance(output, OutputPlan):  # a tree
        return False
    if output.bias is not None or output.always or output.sharing == "word":
        return False
    if output.samples > MOST_COLUMNS - 32:
        return False
    if any(
        layer.input_bias is not None or layer.recurrent_bias is not None for layer in plan.layers
    ):
        return False
    tables = (plan.embedding, output.weight)
    fits = all(
        p.is_contiguous() and (p.dtype == torch.float32 or any(p is table for table in tables))
        for p in model.parameters()
    )
    return fits and {id(p) for p, _ in changes} == {id(p) for p in model.parameters()}


class GraphStep:
    """What :class:`blackout.train.step.TrainingStep` says, as one graph."""

    def __init__(self, model: Any, optimizer: Any, shape: BlockShape) -> None:
        self.model, self.optimizer, self.shape = model, optimizer, shape
        self.device: torch.device = model.embedding.weight.device
        self.interval = INTERVAL if self.device.type == "cuda" else 1
        self._state = model.initial_state(shape.streams)
        words, count = shape.steps * shape.streams, len(list(model.parameters()))
        plan = model.plan()
        self._drops = 1 + len(plan.layers) if plan.dropout else 0
        wholes = 2 * words + count + self._drops + 2
        self._staging = Staging(wholes, 2 * words + 3 * count, self.device)
        self._told = self._places(words, count)
        self._divisor, self._clip = (
            torch.zeros((), dtype=torch.float64, device=self.device) for _ in range(2)
        )
        self._divisor.fill_(words)
        self._outcomes = torch.zeros(INTERVAL, 2, dtype=torch.float64, device=self.device)
        self._unread = 0
        self._read: list[StepResult] = []
        self._block: Block | None = None
        self._graph: Any = None
        self._captured: tuple[Any, ...] = ()

    def _places(self, words: int, count: int) -> Told:
        """The parts of what the host tells."""
        shape = (self.shape.steps, self.shape.streams)
        wholes, reals = self._staging.wholes, self._staging.reals
        inputs, targets, steps, keys, live, slot = wholes.split(
            [words, words, count, self._drops, 1, 1]
        )
        counts, keep, rates = reals.split([words, words, 3 * count])
        return Told(
            inputs.view(shape), targets.view(shape), counts.view(shape), keep.view(shape),
            steps, rates.view(count, 3), keys, live, slot,
        )  # fmt: skip

    # ------------------------------------------------------------------ the step's contract

    @property
    def state(self) -> Any:
        """The network's state, always in the same place."""
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        for mine, given in zip(self._state, state, strict=True):
            mine.copy_(given)

    @property
    def columns(self) -> int | None:
        """Columns of a sample set in the products, where a block has been trained."""
        return None if self._block is None else self._block.columns

    def train(self, block: Any) -> None:
        """Trains on one block; the device may be at work on it for a while."""
        if self._unread == INTERVAL:
            self._collect()
        with self._here():
            if self._addresses() != self._captured:
                self._prepare(block)
                self._captured = self._addresses()
            self._tell(block, live=1)
            for weight in self._weights():
                weight.refresh()
            self._launch()
        self._unread += 1

    def _here(self) -> AbstractContextManager[Any]:
        """Streams and events are the current device's, which need not be that of the weights."""
        on_gpu = self.device.type == "cuda"
        return torch.cuda.device(self.device) if on_gpu else nullcontext()

    def results(self) -> list[StepResult]:
        """What the blocks since the last call came to, in their order; waits for the device."""
        self._collect()
        read, self._read = self._read, []
        return read

    def _collect(self) -> None:
        if self._unread:
            rows = self._outcomes[: self._unread].tolist()
            self._read += [StepResult(loss, norm) for loss, norm in rows]
            self.optimizer.last_norm = self._read[-1].norm
            self._unread = 0

    # ------------------------------------------------------------------ a block

    def _tell(self, block: Any, live: int) -> None:
        """Copies a block and the optimiser's numbers to where the device expects them."""
        words = self.shape.steps * self.shape.streams
        wholes, reals = self._staging.begin()
        wholes[:words] = block.inputs.reshape(-1)
        wholes[words : 2 * words] = _counted(block).reshape(-1)
        reals[:words] = block.mask.reshape(-1)
        reals[words : 2 * words] = block.inputs.reshape(-1) != _EOS
        place = 2 * words
        for number, (group, p) in enumerate(self._parameters()):
            state = self.optimizer.state[p]
            if live:
                state["step"] += 1
            step = max(int(state["step"]), 1)
            wholes[place + number] = step
            reals[place + 3 * number : place + 3 * number + 3] = self.optimizer.rates(
                p, group, step
            )
        if live and self._drops:
            wholes[-2 - self._drops : -2] = [draw_key() for _ in range(self._drops)]
        wholes[-2], wholes[-1] = live, self._unread
        self._staging.send()

    def _launch(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run()

    @torch.no_grad()
    def _run(self) -> None:
        assert self._block is not None
        self._block.run(self._told, self._state.layers, self._divisor, self._clip, self._outcomes)

    # ------------------------------------------------------------------ the graph

    def _prepare(self, block: Any) -> None:
        """Makes the block's arithmetic and captures it, where there is a GPU to replay it.

        Kernels are compiled by a run that changes no weight: so that every block, also the first
        one after a resumption, is computed by the graph.
        """
        self._graph = None
        self.model.output.proposal.follow(self.device)
        self._clip.fill_(self.optimizer.clip)
        self._block = self._make_block()
        if self.device.type != "cuda":
            return
        before = [part.clone() for part in self._state]
        # what the next kernel waits for goes first: else work beside it would hold all of the GPU
        stream = torch.cuda.Stream(priority=-1)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for weight in self._weights():
                weight.refresh()
            self._tell(block, live=0)
            self._run()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            self._run()
        for mine, given in zip(self._state, before, strict=True):
            mine.copy_(given)

    def _make_block(self) -> Block:
        plan = self.model.plan()
        tables = (plan.embedding, plan.output.weight)
        found = {}
        for number, (group, p) in enumerate(self._parameters()):
            sparse = any(p is table for table in tables)
            state = self.optimizer.init_state(p, sparse)
            dtype = None if sparse or not p.ndim else plan.product_dtype
            found[id(p)] = Weight(number, p, group, state, dtype)
        layers = [
            Layer(plan.cell, found.get(id(layer.input)), found[id(layer.recurrent)])
            for layer in plan.layers
        ]
        learned = found.get(id(plan.output.log_z))
        network = Network(found[id(tables[0])], layers, found[id(tables[1])], learned)
        return Block(network, plan, self.shape)

    def _weights(self) -> list[Weight]:
        return [] if self._block is None else self._block.network.dense

    def _parameters(self) -> list[tuple[Any, nn.Parameter]]:
        return [(group, p) for group in self.optimizer.param_groups for p in group["params"]]

    def _addresses(self) -> tuple[Any, ...]:
        """Where everything lies that a graph has the address of, and what it was made for."""
        places: list[Any] = [self.optimizer.clip, self.model.output.step.data_ptr()]
        for group, p in self._parameters():
            state = self.optimizer.state[p]
            places += [p.data_ptr(), group["beta"], group["decay"]]
            places += [
                value.data_ptr()
                for name, value in state.items()
                if isinstance(value, Tensor) and name in ("moment", "touched")
            ]
        return tuple(places)
