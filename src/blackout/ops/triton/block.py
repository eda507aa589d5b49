"""One training block on the device, from words to new weights, without the host.

What :class:`blackout.train.step.ComposedStep` makes of a recurrent network, a sampled loss and
RMSProp, with three differences of order, not of meaning: derivatives are those of the sum of J, and
the divisor joins the factor of clipping; a row's gradient stays in the type of the products; equal
samples of a set are one column where that pays. Work that does not wait for each other goes to two
streams: samples, their rows and their sorting beside the recurrence; row gradients beside the way
back through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from blackout.ops.engine import BlockShape, RmsProp, Rounding
from blackout.ops.plan import NetworkPlan, OutputPlan
from blackout.ops.triton import recurrent
from blackout.ops.triton.cells import SIMPLE
from blackout.ops.triton.dropout import drop
from blackout.ops.triton.finish import finish
from blackout.ops.triton.objective import objective_in_place
from blackout.ops.triton.rows import Sums, order_rows, square_slots, sum_rows
from blackout.ops.triton.sampled import add_target_gradient
from blackout.ops.triton.sampling import capacity, draw_samples, merge_into
from blackout.ops.triton.tables import gather
from blackout.ops.triton.update import (
    BY_NUMBER,
    BY_STEPS,
    BY_TABLE,
    Aging,
    dense_slots,
    dense_squares,
    update_dense,
    update_rows,
)

_WORTH_MERGING = 0.95  # columns for each draw
_MANY_STREAMS = 512


class Told(NamedTuple):
    """What the host tells the device about a block."""

    inputs: Tensor  # (T, B)
    targets: Tensor  # (T, B)
    counts: Tensor  # (T, B), 0 where there is no word
    keep: Tensor  # (T, B), 0 where the state is forgotten
    steps: Tensor  # (P,), of each parameter
    rates: Tensor  # (P, 3), of each parameter: lr, damping, shrink
    keys: Tensor  # (L + 1,), of dropout: of the inputs and of what each layer gives; or none
    live: Tensor  # (1,), 0 where no weight may change
    slot: Tensor  # (1,), where the outcome goes


class Weight:
    """A parameter, its optimiser's state, and a copy of a matrix in the type of the products."""

    def __init__(self, number: int, p: nn.Parameter, group: Any, state: Any, dtype: Any) -> None:
        self.number, self.parameter, self.group, self.state = number, p, group, state
        self.moment: Tensor = state["moment"]
        self.copy = None if p.dtype == dtype or dtype is None else torch.empty_like(p, dtype=dtype)
        self.version = -1

    @property
    def operand(self) -> Tensor:
        """The matrix as products take it."""
        return self.parameter.detach() if self.copy is None else self.copy

    def refresh(self) -> None:
        """Copies a matrix that somebody else has changed."""
        if self.copy is not None and self.version != self.parameter._version:
            self.copy.copy_(self.parameter.detach())
            self.version = self.parameter._version

    def update(self, told: Told, factor: Tensor) -> RmsProp:
        rates = told.rates[self.number]
        rounding = Rounding(self.group["seed"], self.number, told.steps[self.number])
        return RmsProp(factor, rates[0], self.group["beta"], rates[1], rounding, rates[2])

    def aging(self) -> Aging:
        """How the rows of a table age."""
        beta, touched = self.group["beta"], self.state["touched"]
        if self.group["decay"] == "exact":
            return Aging(BY_STEPS, touched=touched, beta=beta)
        if self.group["decay"] == "none":
            return Aging(BY_NUMBER, beta, touched=touched)
        rate = self.group["update_rate"].to(touched.device).double()
        return Aging(BY_TABLE, factors=(beta ** (1 / rate)).float(), touched=touched)


class Layer(NamedTuple):
    """A recurrent layer; ``input`` is None where the inputs are rows of the word table."""

    cell: str
    input: Weight | None
    recurrent: Weight


class Network(NamedTuple):
    """All weights of a model by what they do."""

    embedding: Weight
    layers: list[Layer]
    output: Weight
    log_z: Weight | None

    @property
    def dense(self) -> list[Weight]:
        found = [
            w for layer in self.layers for w in (layer.input, layer.recurrent) if w is not None
        ]
        return found if self.log_z is None else [*found, self.log_z]


class Block:
    """The arithmetic of a block; :meth:`run` may be captured into a graph."""

    def __init__(self, network: Network, plan: NetworkPlan, shape: BlockShape) -> None:
        assert isinstance(plan.output, OutputPlan)  # trees have no graph
        self.network, self.plan, self.output, self.shape = network, plan, plan.output, shape
        self.dtype = plan.product_dtype
        weight = network.embedding.parameter
        self.device, self.size = weight.device, weight.shape[1]
        self.words = shape.steps * shape.streams
        self.groups = shape.steps if self.output.sharing == "step" else 1
        self.draws = self.output.samples
        room = capacity(self.output.log_q.exp(), self.draws)
        self.merged = room < _WORTH_MERGING * self.draws
        # rows of products must begin at multiples of 16 bytes, or they are slow
        self.columns = room if self.merged else 8 * ((self.draws + 7) // 8)
        spare = self.columns - self.draws
        self.copies = None
        if not self.merged and spare:
            self.copies = torch.ones(self.groups, self.columns, device=self.device)
            self.copies[:, self.draws :] = 0
        self.aside = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.agings = {id(w): w.aging() for w in (network.embedding, network.output)}
        self._make_squares()
        self.factor = torch.zeros(1, device=self.device)

    def _make_squares(self) -> None:
        """Room for the partial sums of squares of all gradients, side by side."""
        drawn = self.groups * self.columns
        lengths = [
            square_slots(drawn + self.words, self.size),
            square_slots(self.words, self.size),
            *[dense_slots(w.parameter.numel()) for w in self.network.dense],
        ]
        self.squares = torch.zeros(sum(lengths), device=self.device)
        self.of_output, self.of_input, *self.of_dense = self.squares.split(lengths)

    # ------------------------------------------------------------------ streams

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Work that begins after all that was launched so far, on the second stream."""
        if self.aside is None:
            yield
            return
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            yield

    def _mark(self) -> Any:
        """What was launched on this stream so far, to be waited for."""
        return None if self.aside is None else torch.cuda.current_stream().record_event()

    def _after(self, mark: Any) -> None:
        if mark is not None:
            torch.cuda.current_stream().wait_event(mark)

    def _meet(self) -> None:
        if self.aside is not None:
            torch.cuda.current_stream().wait_stream(self.aside)

    # ------------------------------------------------------------------ the block

    def run(
        self, told: Told, state: Tensor, divisor: Tensor, clip: Tensor, outcomes: Tensor
    ) -> None:
        """Trains on the block that was told; ``state`` (L, S, B, h) goes on from block to block.

        Everything made on one stream and used on the other stays alive to the end.
        """
        network, output = self.network, self.output
        log_z = output.log_z.detach() if isinstance(output.log_z, Tensor) else output.log_z
        with self._beside():
            drawn = self._draw()
            words, copies = self._columns(drawn)
            rows, log_q = gather(network.output.parameter.detach(), words, self.dtype, output.log_q)
            log_q_target = self._target_log_q(told.targets)
            gathered = self._mark()
            targets = told.targets.reshape(-1)
            output_order = order_rows(torch.cat([words.reshape(-1), targets]), told.live)
            input_order = order_rows(told.inputs.reshape(-1), told.live)
            ordered = self._mark()
        hidden, passes = self._forward(told, state)
        self._after(gathered)
        grouped = hidden.view(self.groups, -1, self.size)
        shape = grouped.shape[:2]
        logits = torch.bmm(grouped, rows.mT)
        d_log_z = torch.empty(shape, device=self.device) if network.log_z is not None else None
        value, d_target = objective_in_place(
            logits, grouped, network.output.parameter.detach(), None, log_z,
            (told.targets.view(shape), words, copies, log_q_target.view(shape), log_q),
            output.objective, output.keep_copies, self.draws,
            told.counts.view(shape), d_log_z,
        )  # fmt: skip
        with self._beside():
            row_values = torch.bmm(logits.mT, grouped).view(-1, self.size)
            output_sums = sum_rows(
                output_order, row_values, hidden.view(-1, self.size), d_target.view(-1),
                self.of_output,
            )  # fmt: skip
        d_hidden = torch.bmm(logits, rows)
        table = network.output.parameter.detach()
        missing = None
        simple = network.layers[-1].cell in SIMPLE and not self.plan.dropout
        if simple and self.shape.streams >= _MANY_STREAMS:
            # its way back adds it on the way; with few streams each step would wait for the rows
            missing = recurrent.Targets(told.targets, table, d_target.view(told.targets.shape))
        else:
            add_target_gradient(d_hidden, grouped, table, told.targets, d_target)
        d_inputs, gradients = self._backward(told, passes, d_hidden.view(hidden.shape), missing)
        self._after(ordered)
        input_sums = sum_rows(input_order, d_inputs, squares=self.of_input)
        if d_log_z is not None:
            gradients.append(d_log_z.sum().view(1))
        for gradient, squares in zip(gradients, self.of_dense, strict=True):
            dense_squares(gradient, squares)
        self._meet()
        finish(self.squares, value, divisor, clip, self.factor, outcomes, told.slot)
        with self._beside():
            self._change_dense(gradients, told)
            self._change(network.embedding, input_sums, told)
        self._change(network.output, output_sums, told)
        output.step.add_(told.live[0])
        self._meet()

    def _draw(self) -> Tensor:
        plan = self.output
        return draw_samples(
            plan.threshold, plan.alias, plan.seed, plan.step, self.groups, self.draws
        )

    def _columns(self, drawn: Tensor) -> tuple[Tensor, Tensor | None]:
        """The words of the products (G, C) and their multiplicity."""
        if self.merged:
            return merge_into(drawn, self.columns)
        if self.columns == self.draws:
            return drawn, self.copies
        whole, rest = divmod(self.columns, self.draws)  # what is left over holds samples again
        return torch.cat([*[drawn] * whole, drawn[:, :rest]], 1), self.copies

    def _target_log_q(self, targets: Tensor) -> Tensor:
        if self.output.target_one:
            return torch.zeros(targets.shape, dtype=torch.float64, device=self.device)
        return self.output.log_q[targets]

    # ------------------------------------------------------------------ the network

    def _forward(self, told: Told, state: Tensor) -> tuple[Tensor, list[Any]]:
        """Hidden states (T, B, h), and what the way back needs of each layer."""
        keep = told.keep if self.plan.forget else None
        table = self.network.embedding.parameter.detach()
        values: Tensor | None = None
        if self.plan.dropout:
            looks_up = self.network.layers[0].input is None
            values, _ = gather(table, told.inputs, torch.float32 if looks_up else self.dtype)
            values = self._dropped(values, told, 0)
        passes = []
        for number, layer in enumerate(self.network.layers):
            words = None
            if layer.input is None:
                inputs, words = (table, told.inputs) if values is None else (values, None)
            else:
                if values is None:
                    values, _ = gather(table, told.inputs, self.dtype)
                flat = torch.mm(values.view(self.words, -1), layer.input.operand.mT)
                inputs = flat.view(*told.inputs.shape, -1)
            outputs, last_cells, saved = recurrent.forward(
                layer.cell, inputs, state[number], layer.recurrent.operand, None, keep,
                self.dtype, words,
            )  # fmt: skip
            passes.append((layer, values, saved))
            state[number, 0].copy_(outputs[-1])
            if last_cells is not None:
                state[number, 1].copy_(last_cells)
            values = self._dropped(outputs, told, number + 1)
        assert values is not None
        return values, passes

    def _dropped(self, values: Tensor, told: Told, place: int) -> Tensor:
        """Dropout, there and back; ``place``: 0 for the inputs, n for what the n-th layer gives."""
        return drop(values, told.keys[place], self.plan.dropout) if self.plan.dropout else values

    def _backward(
        self, told: Told, passes: list[Any], grad: Tensor, missing: recurrent.Targets | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Gradients by the rows of the input words (N, h) and by the matrices, in their order."""
        found: list[Tensor] = []
        for number, (layer, values, saved) in reversed(list(enumerate(passes, 1))):
            grad = self._dropped(grad, told, number)
            deltas, products, _ = recurrent.backward(layer.cell, saved, grad, self.dtype, missing)
            missing = None
            flat, multiplied = deltas.flatten(0, 1), products.flatten(0, 1)
            of_layer = [torch.mm(multiplied.mT, saved.operands.flatten(0, 1))]
            grad = deltas
            if layer.input is not None:
                of_layer.insert(0, torch.mm(flat.mT, values.view(self.words, -1)))
                grad = torch.mm(flat, layer.input.operand).view(*deltas.shape[:2], -1)
            found = of_layer + found
        return self._dropped(grad, told, 0).flatten(0, 1), found

    # ------------------------------------------------------------------ new weights

    def _change(self, table: Weight, gradient: Sums, told: Told) -> None:
        update_rows(
            table.parameter.detach(), table.moment, gradient, self.agings[id(table)],
            table.update(told, self.factor),
        )  # fmt: skip

    def _change_dense(self, gradients: list[Tensor], told: Told) -> None:
        for weight, gradient in zip(self.network.dense, gradients, strict=True):
            update_dense(
                weight.parameter.detach(), weight.moment, gradient, weight.group["beta"],
                weight.update(told, self.factor), weight.copy, told.live,
            )  # fmt: skip
