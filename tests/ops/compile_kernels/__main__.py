"""Compiles every kernel for a GPU of compute capability 9.0 that is not there.

    python -m tests.ops.compile_kernels

Triton's interpreter takes what its compiler refuses. So the engine does here on the CPU what it
does on a GPU, and Triton compiles down to machine code; only the launch is left out, and what
kernels would have written is 0. Each launch by :func:`blackout.ops.triton.launch.launch`, which
remembers what Triton compiled, is compared with what Triton finds for the same arguments.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

os.environ.pop("TRITON_INTERPRET", None)

import numpy as np
import pytest
import torch
import triton
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from triton.backends.compiler import GPUTarget

FUNCTION, STREAM = 8, 7


class Launch:
    """In the place of Triton's: notes which kernel is to run, and with which arguments."""

    latest: ClassVar[list[tuple[Launch, tuple[Any, ...]]]] = []

    def __init__(self, source: Any, metadata: Any) -> None:
        pass

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *given: Any) -> None:
        assert (stream, function) == (STREAM, FUNCTION)
        _packed, _for_hooks, _before, _after, *values = given
        self.latest[:] = [(self, tuple(values))]


class Driver:
    """An H100 as Triton 3.6 sees it."""

    launcher_cls = Launch

    @property
    def utils(self) -> Driver:
        return self

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return STREAM

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 227 << 10}

    def load_binary(self, *_: Any) -> tuple[int, ...]:
        return 1, FUNCTION, 0, 0, 1024  # module, function, registers, spilled ones, threads


triton.runtime.driver.set_active(Driver())
torch.cuda.current_device = lambda: 0
torch._C._cuda_getCurrentRawStream = lambda device: STREAM
torch.Tensor.is_cuda, torch.Tensor.get_device = property(lambda tensor: True), lambda tensor: 0
torch.empty, torch.empty_like = torch.zeros, torch.zeros_like  # an index that is in every table
torch.Tensor.new_empty = torch.Tensor.new_zeros

import blackout  # noqa: E402
from blackout.config import Config  # noqa: E402
from blackout.models import build_model  # noqa: E402
from blackout.ops import triton as engine  # noqa: E402
from blackout.ops.engine import BlockShape, RmsProp, Rounding  # noqa: E402
from blackout.ops.triton import layer as _layer  # noqa: E402, F401
from blackout.ops.triton.launch import launch  # noqa: E402
from blackout.ops.triton.rows import order_rows, sum_rows  # noqa: E402
from blackout.text.streams import Block  # noqa: E402
from blackout.train.setup import build_optimizer  # noqa: E402
from blackout.train.step import make_step  # noqa: E402

OURS = {name: module for name, module in sys.modules.items() if name.startswith(engine.__name__)}
LAUNCHING: Any = sys.modules[launch.__module__]
REMEMBERED: list[Any] = []
F32, BF16 = torch.float32, torch.bfloat16
VOCAB, SIZE = 1000, 256


def checked(kernel: Any, grid: Any, given: Any, fixed: Any, **options: Any) -> None:
    """Launches, and asks Triton what it would have launched."""
    for parameter, value in zip(kernel.params, given, strict=False):
        never_special = parameter.do_not_specialize or isinstance(value, Tensor | float)
        assert never_special, f"{kernel.__name__}: {parameter.name} is not the same in all calls"
    launch(kernel, grid, given, fixed, **options)
    ran, values = Launch.latest.pop()
    wanted = kernel.run(*given, *fixed, grid=grid, warmup=True, **options)
    assert ran is wanted.run, f"{kernel.__name__} is remembered for other arguments"
    assert places(values) == places((*given, *fixed))
    if values[0] is not given[0]:
        REMEMBERED.append(kernel)


def places(values: tuple[Any, ...]) -> list[Any]:
    return [value.data_ptr() if isinstance(value, Tensor) else value for value in values]


# ---------------------------------------------------------------------- whole blocks

STEPS = [
    # streams enough that the way back adds the targets' rows; merged copies
    (512, {"cell": "sigmoid"}, {"samples": 2000}, {}, {}),
    (4, {"cell": "sigmoid", "storage": "bf16", "context": "stream"}, {}, {}, {"precision": "bf16"}),
    (4, {"cell": "sigmoid", "layers": 2, "dropout": 0.5}, {"negatives": "nce"}, {}, {}),
    (4, {"cell": "tanh", "layers": 2}, {"loss": "sampled"}, {"second_moment": "row"}, {}),
    # nothing is a multiple of 16, nor where it begins
    (3, {"cell": "relu", "hidden": 50}, {"collisions": "remove"}, {"decay": "paper"}, {}),
    (
        4, {"cell": "lstm", "layers": 2, "dropout": 0.5, "storage": "bf16"},
        {"loss": "nce", "sharing": "block"}, {}, {"precision": "bf16"},
    ),
    (4, {"cell": "lstm"}, {"loss": "nce", "log_z": 9.0}, {"decay": "none"}, {}),
    (4, {"cell": "gru", "context": "stream"}, {}, {}, {"precision": "bf16"}),
    (4, {"cell": "gru"}, {}, {}, {}),
]  # fmt: skip


def train(streams: int, model: Any, loss: Any, optim: Any, run: Any) -> None:
    """Two blocks of the step that a GPU runs by itself."""
    shape = BlockShape(2, streams)
    config = Config.from_dict(
        {"model": {"hidden": SIZE} | model, "loss": loss, "optim": {"damping": 1e-3} | optim}
        | {"run": {"batch": shape.streams, "bptt": shape.steps} | run}
    )
    counts = np.arange(VOCAB, 0, -1)
    network = build_model(config, counts, impl="triton").train()
    optimizer = build_optimizer(config, network, counts)
    optimizer.impl = "triton"
    step = make_step(network, optimizer, shape)
    assert type(step).__name__ == "GraphStep"
    words = np.ones((shape.steps, shape.streams), np.int64)
    for _ in range(2):
        step.train(Block(words, words, words > 0, words.size))


# ---------------------------------------------------------------------- calls of a layer


def call_layers() -> None:
    """Sampled layers in somebody's network."""
    target = torch.ones(3, 8, dtype=torch.long)
    mask, states = target > 0, torch.zeros(3, 8, SIZE, requires_grad=True)
    plain = blackout.BlackOut(SIZE, VOCAB, 500, impl="triton")
    for _ in range(2):
        plain(states, target).loss.backward()
    checkpoint(plain, states, target, use_reentrant=False).loss.backward()
    plain(states, target, mask, divisor=torch.tensor(3.0)).loss.backward()
    each = blackout.NCE(
        SIZE, VOCAB, 500, log_z=9.0, precision="bf16", ignore_index=-100, reduction="none",
        impl="triton",
    )  # fmt: skip
    each(states, target).output.sum().backward()
    halves = blackout.Sampled(
        SIZE, VOCAB, 500, storage="bf16", precision="bf16", target_weight="one", sharing="step",
        impl="triton",
    )  # fmt: skip
    found = halves(states.bfloat16(), target, mask, divisor=24)
    (found.loss + found.output.sum()).backward()
    summed = blackout.BlackOut(SIZE, VOCAB, 500, reduction="sum", impl="triton")
    summed(states, target).loss.backward()


def call_layers_of_one() -> None:
    """Sizes of 1 are constants to Triton, and constants have no methods."""
    for size, vocab, samples, sharing in [
        (1, 7, 1, "block"),
        (5, 2, 3, "step"),
        (16, 33, 1, "word"),
    ]:
        layer = blackout.Sampled(
            size, vocab, samples, sharing=sharing, precision="bf16", ignore_index=-1, impl="triton"
        )
        for target in (torch.zeros(1, dtype=torch.long), torch.zeros(2, 1, dtype=torch.long)):
            states = torch.zeros(*target.shape, size, requires_grad=True)
            layer(states, target, target == 0, divisor=torch.tensor(1)).loss.backward()


# ---------------------------------------------------------------------- the engine's functions


def compute() -> None:
    """What steps and calls are composed of where they are not whole."""
    table, bias, log_q = torch.zeros(VOCAB, SIZE), torch.zeros(VOCAB), torch.zeros(VOCAB).double()
    alias, step = torch.zeros(VOCAB, dtype=torch.long), torch.tensor(5)
    engine.fill_uniform(table, 0.1, 1 << 63, None)
    engine.fill_uniform(table.to(BF16), 0.1, 1 << 63, alias)
    for now in (5, 1 << 40, step):
        engine.draw_samples(log_q.exp(), alias, 1, now, 4, 500)
    engine.merge_copies(torch.zeros(4, 500, dtype=torch.long))
    for biases in (None, bias):
        engine.log_partition(table[:5], table, biases, F32)
        engine.log_partition(table[:5], table, biases, BF16)
    states, target = torch.zeros(3, 8, SIZE), torch.zeros(3, 8, dtype=torch.long)
    for objective, samples, given, product in [
        ("blackout", 500, None, F32),
        ("blackout-noise", 500, bias, BF16),
        ("sampled", 32768, bias, F32),
        ("nce", 500, bias, F32),
    ]:
        drawn = torch.zeros(3, samples, dtype=torch.long)
        log_z = torch.tensor(9.0) if objective == "nce" else 0.0
        words = target, drawn, None, log_q[target], log_q[drawn]
        _, saved = engine.sampled_forward(
            states, table, given, log_z, *words, objective, given is None, product
        )
        engine.sampled_backward(saved, target, drawn, torch.ones(3, 8), False, F32)
    for cell, gates in {"sigmoid": 1, "lstm": 4, "gru": 3}.items():
        matrix, state = torch.zeros(gates * SIZE, SIZE), torch.zeros(2, 4, SIZE)
        inputs, keep = torch.zeros(2, 4, gates * SIZE), torch.ones(2, 4, 1)
        for product in (F32, BF16):
            of_gates = torch.zeros(gates * SIZE)
            outputs, _, saved = engine.recurrence_forward(
                cell, inputs, state, matrix, of_gates, keep, product
            )
            engine.recurrence_backward(cell, saved, outputs, True)


def update() -> None:
    """New weights: numbers of the step on the host or on the GPU, factors for all rows or each."""
    rows, one = torch.arange(20), torch.ones(())
    on_host = RmsProp(one, 0.1, 0.999, 1e-3, Rounding(1, 2, 5))
    on_gpu = RmsProp(one, one.double(), 0.999, one.double(), Rounding(1, 2, torch.tensor(5)), one)
    touched, each = torch.zeros(VOCAB, dtype=torch.int32), torch.ones(20, 1)
    engine.exact_aging(touched, rows, 5, 0.999)
    engine.exact_aging(touched, rows, torch.tensor(5), 0.999)
    for dtype, size, change in [(F32, SIZE, on_host), (BF16, SIZE, on_gpu), (F32, 5000, on_host)]:
        table = torch.zeros(VOCAB, size, dtype=dtype)
        moment, row_moment, mean = torch.zeros(VOCAB, size), torch.zeros(VOCAB, 1), table.float()
        gradient = engine.collect_rows(rows, table[:20], VOCAB)
        engine.rmsprop_rows(table, moment, gradient, each, change)
        engine.rmsprop_rows(table, row_moment, gradient, 0.9, change)
        engine.adam_rows(table, mean, moment, gradient, each, each, change)
        engine.adam_rows(table, mean, row_moment, gradient, 0.9, 0.9, change)
        engine.squared_norm(gradient)
    dense = torch.zeros(SIZE, SIZE)
    for change in (on_host, on_gpu):
        engine.rmsprop_dense(dense, dense.clone(), dense, 0.9, change)
    many = torch.zeros(20000, dtype=torch.long)  # too many to compare each with each
    sum_rows(order_rows(many), torch.zeros(20000, 16))


def call_from_another_device() -> None:
    """A kernel runs where its tensors are, also where it is remembered; nowhere if they differ."""
    chances, alias = torch.zeros(VOCAB).double(), torch.zeros(VOCAB, dtype=torch.long)
    entered = []

    @contextmanager
    def device(number: int) -> Iterator[None]:
        entered.append(number)
        before, torch.cuda.current_device = torch.cuda.current_device, lambda: number
        yield
        torch.cuda.current_device = before

    torch.cuda.device, known = device, torch.Tensor.get_device
    torch.cuda.current_device = lambda: 1
    engine.draw_samples(chances, alias, 1, 5, 4, 500)
    assert entered == [0]
    torch.Tensor.get_device = lambda tensor: int(tensor is alias)
    with pytest.raises(RuntimeError, match="tensors are on"):
        engine.draw_samples(chances, alias, 1, 5, 4, 500)
    torch.cuda.current_device, torch.Tensor.get_device = lambda: 0, known


def main() -> None:
    """Does everything once; then there is no kernel left that was never compiled."""
    LAUNCHING.on_host = lambda number: number  # a tensor is on the GPU
    for module in OURS.values():
        if getattr(module, "launch", None) is launch and module is not LAUNCHING:
            module.launch = checked
    os.environ["TRITON_INTERPRET"] = "1"  # only so that the CPU is given this engine
    torch.set_num_threads(1)
    for case in STEPS:
        train(*case)
    call_layers()
    call_layers_of_one()
    compute()
    update()
    call_from_another_device()
    for name, module in OURS.items():
        for found in vars(module).values():
            if not isinstance(found, triton.JITFunction) or found.__module__ != name:
                continue
            compiled = len(found.device_caches[0][0])
            is_part = re.search(r"^ +return\b", found.src, re.MULTILINE)  # a kernel gives nothing
            assert compiled or is_part, f"{name}.{found.__name__} was never launched"
            if compiled:
                print(f"{name.removeprefix(engine.__name__ + '.')}.{found.__name__}: {compiled}")
    assert len(REMEMBERED) > 100, len(REMEMBERED)


if __name__ == "__main__":
    main()
