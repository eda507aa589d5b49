"""A whole training block as one native call (csrc/step), for networks that describe themselves.

Nothing of a block is a PyTorch tensor but the parameters, the optimiser's state and the network's
state, which native code changes where they lie: checkpoints are the same as the composed step's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import array, floats, integers, numbers
from blackout.ops.cpu.recurrent import ACTIVATIONS
from blackout.ops.cpu.sampled import OBJECTIVES
from blackout.ops.engine import BlockShape
from blackout.ops.plan import NetworkPlan, OutputPlan, TreePlan
from blackout.ops.reference.dropout import draw_key, kept_of

_CELLS = {**ACTIVATIONS, "lstm": 3, "gru": 4}
_DECAYS = {"exact": 0, "paper": 1, "none": 2}
_TABLE_TYPES = (torch.float32, torch.bfloat16)


class Result(NamedTuple):
    """What a block came to: its loss and the norm of its gradient before clipping."""

    loss: float
    norm: float


class WholeStep:
    """Blocks of one shape in, new weights out."""

    interval = 1  # results are there when a block is done

    def __init__(self, model: Any, optimizer: Any, plan: NetworkPlan, shape: BlockShape) -> None:
        self.optimizer, self.plan, self.shape = optimizer, plan, shape
        self._state = model.initial_state(shape.streams)
        # dropout: of the inputs, and of what each layer gives
        self._drops = 1 + len(plan.layers) if plan.dropout else 0
        self._native: Any = None
        self._groups: list[dict[str, Any]] = []
        self._unread: list[Result] = []
        optimizer.register_load_state_dict_post_hook(self._forget)

    @property
    def state(self) -> Any:
        """The network's state; native code takes it on in place."""
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state.layers.copy_(state.layers)

    def train(self, block: Any) -> None:
        if self._native is None:
            self._bind()
        output = self.plan.output
        step = None if isinstance(output, TreePlan) else output.step
        self._native.train(
            block.inputs.ctypes.data,
            block.targets.ctypes.data,
            block.mask.ctypes.data if block.words < block.mask.size else 0,
            self._state.layers.data_ptr(),
            [draw_key() for _ in range(self._drops)],
            0 if step is None else int(step),
            [float(group["lr"]) for group in self._groups],
            torch.get_num_threads(),
        )
        if step is not None:
            step += 1

    def results(self) -> list[Result]:
        unread, self._unread = self._unread, []
        return unread + ([Result(*one) for one in self._native.results()] if self._native else [])

    def _forget(self, *_: Any) -> None:
        """The optimiser has a new state: its addresses are others."""
        self._unread = self.results()
        self._native = None

    def _bind(self) -> None:
        """Gives native code the addresses of everything, which stay from now on."""
        plan, output = self.plan, self.plan.output
        settings = self.optimizer.plan()
        self._groups = [group for _, group in settings]
        tables = {id(plan.embedding), id(output.weight), id(output.bias)}
        bound = {
            id(p): _parameter(self.optimizer, number, p, group, id(p) in tables)
            for number, (p, group) in enumerate(settings)
        }

        def of(p: Tensor | float | None) -> Any:
            return bound.get(id(p))

        self._native = _native.TrainStep(
            _network(plan, self.shape, self.optimizer.clip),
            _output(output, self.shape),
            _tables(output),
            of(plan.embedding),
            [tuple(of(p) for p in layer) for layer in plan.layers],
            of(output.weight),
            of(output.bias),
            of(output.log_z),
        )


def whole_step(model: Any, optimizer: Any, shape: BlockShape) -> WholeStep | None:
    """The native step, where model and optimiser are nothing but what their plans say."""
    describe = getattr(model, "plan", None), getattr(optimizer, "plan", None)
    if None in describe:
        return None
    plan, settings = (make() for make in describe)  # type: ignore[misc]
    if plan is None or settings is None or not _computes(plan, settings, model):
        return None
    return WholeStep(model, optimizer, plan, shape)


def _computes(plan: NetworkPlan, settings: list[Any], model: Any) -> bool:
    tables = (plan.embedding, plan.output.weight)
    dense = [p for layer in plan.layers for p in layer if p is not None]
    dense += [p for p in (plan.output.bias, plan.output.log_z) if isinstance(p, Tensor)]
    everything = {id(p) for p in (*tables, *dense)}
    return (
        all(p.dtype in _TABLE_TYPES and p.is_contiguous() for p in tables)
        and all(p.dtype == torch.float32 and p.is_contiguous() for p in dense)
        and plan.product_dtype in _TABLE_TYPES
        and {id(p) for p, _ in settings} == {id(p) for p in model.parameters()} == everything
    )


def _network(plan: NetworkPlan, shape: BlockShape, clip: float) -> Any:
    return _native.StepNetwork(
        steps=shape.steps,
        streams=shape.streams,
        size=plan.embedding.shape[1],
        vocab=len(plan.embedding),
        cell=_CELLS[plan.cell],
        layers=len(plan.layers),
        forget=plan.forget,
        half=plan.product_dtype == torch.bfloat16,
        clip=clip,
        dropout=plan.dropout,
        kept=kept_of(plan.dropout),
    )


def _output(plan: OutputPlan | TreePlan, shape: BlockShape) -> Any:
    words = shape.steps * shape.streams
    if isinstance(plan, TreePlan):
        return _native.StepOutput(
            objective=0,
            keep_copies=False,
            merge=False,
            target_one=False,
            groups=1,
            group_words=words,
            samples=0,
            size=plan.weight.shape[1],
            vocab=plan.tree.words,
            always=[],
            seed=0,
        )
    groups = {"step": shape.steps, "block": 1, "word": words}[plan.sharing]
    return _native.StepOutput(
        objective=OBJECTIVES[plan.objective],
        keep_copies=plan.keep_copies,
        merge=plan.merge,
        target_one=plan.target_one,
        groups=groups,
        group_words=words // groups,
        samples=plan.samples,
        size=plan.weight.shape[1],
        vocab=len(plan.weight),
        always=list(plan.always),
        seed=plan.seed % 2**64,
    )


def _tables(plan: OutputPlan | TreePlan) -> Any:
    weight, half = numbers(plan.weight.detach())
    if isinstance(plan, TreePlan):
        up, place, first = (array(part, torch.int32) for part in plan.tree)
        return _native.StepTables(
            weight=weight,
            half=half,
            bias=0 if plan.bias is None else floats(plan.bias),
            log_z=0,
            constant_log_z=0.0,
            threshold=0,
            alias=0,
            log_q=0,
            words=plan.tree.words,
            up=up,
            place=place,
            first=first,
        )
    learned = isinstance(plan.log_z, Tensor)
    return _native.StepTables(
        weight=weight,
        half=half,
        bias=0 if plan.bias is None else floats(plan.bias),
        log_z=floats(plan.log_z) if isinstance(plan.log_z, Tensor) else 0,
        constant_log_z=0.0 if learned else float(plan.log_z),
        threshold=array(plan.threshold, torch.float64),
        alias=integers(plan.alias),
        log_q=array(plan.log_q, torch.float64),
        words=0,
        up=0,
        place=0,
        first=0,
    )


def _parameter(optimizer: Any, number: int, p: Tensor, group: dict[str, Any], sparse: bool) -> Any:
    state = optimizer.init_state(p, sparse)
    rate = group["update_rate"] if sparse else None
    weight, half = numbers(p.detach())
    return _native.StepParameter(
        weight=weight,
        half=half,
        rows=len(p) if sparse else 1,
        size=(p[:1].numel() if sparse else p.numel()),
        moment=floats(state["moment"]),
        row_moment=state["moment"].shape != p.shape,
        touched=array(state["touched"], torch.int32) if sparse else 0,
        step=integers(state["step"]),
        update_rate=0 if rate is None else array(rate, torch.float64),
        decay=_DECAYS[group["decay"]],
        beta=group["beta"],
        damping=group["damping"],
        weight_decay=group["weight_decay"],
        correct_bias=group["correct_bias"],
        seed=group["seed"] % 2**64,
        number=number,
    )
