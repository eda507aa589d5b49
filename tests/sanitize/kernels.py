"""Drives every native kernel of the engine with NumPy arrays alone: `make sanitize` runs it.

PyTorch stays out, so that the sanitizers see our code and our threads and nothing else.

    python tests/sanitize/kernels.py build/sanitize-thread/_native….so
    python tests/sanitize/kernels.py --list      the instruction sets of this machine
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from typing import Any

import numpy as np

THREADS = 3
SHAPES = [(1, 1, 1, 1, 2), (3, 5, 17, 7, 40), (4, 32, 500, 64, 900)]  # groups, words, K, h, V


def load(path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader("_native", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_native", loader))
    loader.exec_module(module)
    return module


def at(array: np.ndarray) -> int:
    assert array.flags["C_CONTIGUOUS"]
    return array.ctypes.data


def to_half(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_half(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return from_half(to_half(rng.standard_normal(shape)))  # exact in both formats


def formats(values: np.ndarray) -> list[tuple[np.ndarray, bool]]:
    return [(values.copy(), False), (to_half(values), True)]


def output_layer(
    native: Any, rng: np.random.Generator, shape: tuple[int, int, int, int, int]
) -> None:
    groups, words, k, size, vocab = shape
    n = groups * words
    threshold, alias = rng.random(vocab), rng.integers(vocab, size=vocab)
    samples = np.empty((groups, k), np.int64)
    native.draw_samples(at(threshold), at(alias), vocab, 1, 2, groups, k, at(samples), THREADS)
    assert samples.min() >= 0
    assert samples.max() < vocab
    merged, multiplicity = np.empty_like(samples), np.empty(samples.shape, np.float32)
    columns = native.merge_copies(at(samples), groups, k, at(merged), at(multiplicity), THREADS)
    assert columns == max(len(np.unique(row)) for row in samples)
    assert (multiplicity.sum(1) == k).all()
    target = rng.integers(vocab, size=n)
    log_q, bias = np.log(rng.random(vocab)), floats(rng, vocab)
    offsets = [np.empty(words.size, np.float32) for words in (target, samples)]
    for words_of, out in zip((target, samples), offsets, strict=True):
        given = log_q[words_of]
        native.offsets(at(given), at(bias), 0.5, at(words_of), words_of.size, at(out), THREADS)
        np.testing.assert_allclose(
            out, (log_q + 0.5 - bias)[words_of].ravel(), rtol=1e-5, atol=1e-6
        )
    hidden, factor = floats(rng, n, size), rng.random(n, dtype=np.float32)
    value, d_target = np.empty(n, np.float32), np.empty(n, np.float32)
    for table, half in formats(floats(rng, vocab, size)):
        rows = np.empty((n, size), np.float32)
        native.gather(at(table), half, at(target), n, size, at(rows), False, THREADS)
        plain = from_half(table) if half else table
        assert np.array_equal(rows, plain[target])
        for objective in range(4):
            for logits, logits_half in formats(floats(rng, n, k)):
                for copies in (0, at(multiplicity)):
                    native.words(
                        objective, objective == 3, words, n, k, size, at(hidden), at(table), half,
                        at(target), at(offsets[0]), at(samples), at(offsets[1]), copies, at(logits),
                        logits_half, at(value), at(d_target), THREADS,
                    )  # fmt: skip
                    assert np.isfinite(value).all()
                    assert np.isfinite(d_target).all()
        for product, product_half in formats(floats(rng, n, size)):
            out = np.empty((n, size), np.float32)
            native.hidden_gradient(
                n, size, at(product), product_half, at(table), half, at(target), at(d_target),
                at(factor), at(out), THREADS,
            )  # fmt: skip
            plain_product = from_half(product) if product_half else product
            want = (plain_product + d_target[:, None] * plain[target]) * factor[:, None]
            np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    for scaled, half in formats(np.empty((n, size), np.float32)):
        for target_rows, rows_half in formats(np.empty((n, size), np.float32)):
            native.scale_hidden(
                n, size, at(hidden), at(factor), at(d_target), at(scaled), half, at(target_rows),
                rows_half, THREADS,
            )  # fmt: skip
            native.convert(at(scaled), half, at(target_rows), rows_half, scaled.size, THREADS)


def fill_uniform(native: Any, rng: np.random.Generator, n: int, size: int) -> None:
    rows = rng.permutation(n)
    whole = np.empty((n, size), np.float32)
    native.fill_uniform(at(whole), False, n, size, 0, 7, 0.5, THREADS)
    assert abs(whole).max() < 0.5
    for table, half in formats(np.empty((n, size), np.float32)):
        native.fill_uniform(at(table), half, n, size, at(rows), 7, 0.5, THREADS)
        plain = from_half(table) if half else table
        np.testing.assert_allclose(plain, whole[rows], rtol=2**-8 if half else 0)


def log_sum(native: Any, rng: np.random.Generator, words: int, size: int) -> None:
    for logits, half in formats(floats(rng, words, size)):
        maximum, total = np.full(words, -np.inf, np.float32), np.zeros(words, np.float32)
        bias = floats(rng, size)
        native.log_sum(at(logits), half, words, size, at(bias), at(maximum), at(total), THREADS)
        plain = (from_half(logits) if half else logits) + bias
        want = np.log(np.exp(plain.astype(np.float64)).sum(1))
        np.testing.assert_allclose(maximum + np.log(total), want, rtol=1e-5, atol=1e-5)


def rmsprop(native: Any, rng: np.random.Generator, n: int, size: int, vocab: int) -> None:
    gradient_rows = rng.integers(vocab, size=n)
    rows, start = np.empty(n, np.int64), np.empty(n + 1, np.int64)
    order, touched = np.empty(n, np.int32), np.zeros(vocab, np.int32)
    distinct = native.collect_rows(at(gradient_rows), n, at(rows), at(start), at(order))
    assert np.array_equal(rows[:distinct], np.unique(gradient_rows))
    agings = np.empty(distinct, np.float32)
    native.exact_aging(at(touched), at(rows), distinct, 5, 0.9, at(agings), THREADS)
    np.testing.assert_allclose(agings, 0.9**5, rtol=1e-6)
    for values, half in formats(floats(rng, n, size)):
        place = (size, at(rows), at(start), at(order), at(values), half, distinct)
        plain = from_half(values) if half else values
        sums = np.zeros((vocab, size))
        np.add.at(sums, gradient_rows, plain)
        out = np.empty((distinct, size), np.float32)
        native.sum_rows(*place, at(out), THREADS)
        np.testing.assert_allclose(out, sums[rows[:distinct]], rtol=1e-4, atol=1e-4)
        norm = native.squared_norm(*place, THREADS)
        np.testing.assert_allclose(norm, (sums**2).sum(), rtol=1e-4)
        for table, table_half in formats(floats(rng, vocab, size)):
            for row_moment in (False, True):
                moment = np.zeros((vocab, 1 if row_moment else size), np.float32)
                native.update_rows(
                    *place, at(table), table_half, at(moment), 0.5, 0.1, 0.9, 1e-3, 0.0, 0.0,
                    at(agings), row_moment, 77, at(rows), THREADS,
                )  # fmt: skip
                mean, second = np.zeros((vocab, size), np.float32), np.zeros_like(moment)
                native.adam_rows(
                    *place, at(table), table_half, at(second), 0.5, 0.1, 0.9, 1e-3,
                    0.1, 0.0, at(agings), row_moment, 77, at(rows), at(mean), 0.0, at(agings),
                    THREADS,
                )  # fmt: skip
                want = (1 - 0.9**5) * 0.5 * sums
                np.testing.assert_allclose(mean, want, rtol=1e-3, atol=1e-4)
                square = (0.5 * sums) ** 2
                want = 0.1 * (square.mean(1, keepdims=True) if row_moment else square)
                np.testing.assert_allclose(moment, want, rtol=1e-3, atol=1e-5)
    dense, weight, moment = (floats(rng, n * size) for _ in range(3))
    moment = abs(moment)
    native.dense_squared_norm(at(dense), False, dense.size, THREADS)
    native.update_dense(
        dense.size, at(dense), False, at(weight), at(moment), 1.0, 0.1, 0.9, 1e-3, 0.0, 0.9,
        THREADS,
    )  # fmt: skip
    mean = np.zeros_like(dense)
    native.adam_dense(
        dense.size, at(dense), False, at(weight), at(moment), 1.0, 0.1, 0.9, 1e-3, 0.1, 0.9,
        at(mean), 0.9, THREADS,
    )  # fmt: skip
    assert np.isfinite(weight).all()


def recurrence(native: Any, rng: np.random.Generator, streams: int, size: int) -> None:
    x, keep = floats(rng, streams, size), (rng.random(streams) > 0.5).astype(np.float32)
    result = np.empty((streams, size), np.float32)
    for product, half in formats(floats(rng, streams, size)):
        operand = product.copy()
        plain = from_half(product) if half else product
        for activation in range(3):
            native.step_forward(
                activation, streams, size, at(product), half, at(x), at(keep), at(result),
                at(operand), THREADS,
            )  # fmt: skip
            if activation == 1:
                np.testing.assert_allclose(result, np.tanh(plain + x), rtol=1e-4, atol=1e-5)
            gradient = np.empty_like(result)
            native.step_backward(
                activation, streams, size, at(product), half, at(x), at(result), 0, at(gradient),
                at(operand), THREADS,
            )  # fmt: skip
            assert np.isfinite(gradient).all()


def products(native: Any, rng: np.random.Generator, rows: int, depth: int, columns: int) -> None:
    left, right = floats(rng, rows, depth), floats(rng, depth, columns)
    want = np.einsum("ik,kj->ij", left.astype(np.float64), right)  # no threads of a BLAS
    numbers = native.panel_numbers(depth, columns)
    for a, a_half in formats(left) + formats(np.ascontiguousarray(left.T)):
        steps = (depth, 1) if a.shape == left.shape else (1, rows)  # no shape here is square
        for b, b_half in formats(right) + formats(np.ascontiguousarray(right.T)):
            as_columns = b.shape != right.shape
            for panels, panels_half in formats(np.empty(numbers, np.float32)):
                for out, out_half in formats(np.empty((rows, columns), np.float32)):
                    native.pack(
                        at(b), b_half, b.shape[1], 0, at(panels), panels_half, depth, columns,
                        as_columns, THREADS,
                    )  # fmt: skip
                    native.product(
                        at(a), a_half, *steps, at(panels), panels_half, rows, depth, columns,
                        at(out), out_half, columns, False, 1, THREADS,
                    )  # fmt: skip
                    plain = from_half(out) if out_half else out
                    np.testing.assert_allclose(plain, want, rtol=2**-7, atol=depth**0.5 * 1e-2)


def batches(native: Any, rng: np.random.Generator, rows: int, depth: int, columns: int) -> None:
    """Products of operands as they lie: few, by all threads together; many, each by one."""
    for batch in (1, 2 * THREADS):
        left, right = floats(rng, batch, rows, depth), floats(rng, batch, depth, columns)
        want = np.einsum("bik,bkj->bij", left.astype(np.float64), right)
        turned = np.ascontiguousarray(right.transpose(0, 2, 1))
        for (a, half), (b, _), (c, _) in zip(*map(formats, (left, right, turned)), strict=True):
            for data, steps in ((b, (columns, 1)), (c, (1, depth))):
                for out, out_half in formats(np.empty((batch, rows, columns), np.float32)):
                    native.multiply(
                        batch, rows, depth, columns, at(a), half, rows * depth, depth, 1,
                        at(data), half, depth * columns, *steps,
                        at(out), out_half, rows * columns, columns, THREADS,
                    )  # fmt: skip
                    plain = from_half(out) if out_half else out
                    np.testing.assert_allclose(plain, want, rtol=2**-7, atol=depth**0.5 * 1e-2)


def chain(words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The deepest binary tree: at each node a word, or all that come after it."""
    nodes = np.arange(words - 1)
    up = np.concatenate([nodes, nodes[-1:], nodes - 1]).astype(np.int32)
    place = np.zeros(2 * words - 1, np.int32)
    place[words - 1 :] = 1
    return up, place, np.arange(words, dtype=np.int32)


def whole_step(
    native: Any,
    rng: np.random.Generator,
    cell: int,
    half: bool,
    sharing: str,
    dropout: float,
    tree: bool = False,
) -> None:
    """Some blocks of a network of two layers with biases; the loss must fall."""
    steps, streams, size, vocab, k = 4, 6, 19, 50, 23
    width = {3: 4, 4: 3}.get(cell, 1) * size
    held: list[np.ndarray] = []  # native code has their addresses

    def parameter(number: int, *shape: int) -> Any:
        sparse = shape[0] == vocab
        weight = 0.1 * floats(rng, *shape)
        state = np.zeros(shape, np.float32), np.zeros(vocab, np.int32), np.zeros((), np.int64)
        held.extend((weight, *state))
        moment, touched, step = state
        rows = vocab if sparse else 1
        return native.StepParameter(
            weight=at(weight), half=False, rows=rows, size=weight.size // rows, moment=at(moment),
            row_moment=False, touched=at(touched) if sparse else 0, step=at(step), update_rate=0,
            decay=0, beta=0.9, damping=1e-6, weight_decay=0.0, correct_bias=True, seed=1,
            number=number,
        ), weight  # fmt: skip

    embedding, (table, weight) = parameter(0, vocab, size)[0], parameter(1, vocab, size)
    shapes = [(width, size), (width, size), (width,), (width,)]
    first, second = (
        [parameter(2 + 4 * layer + i, *shape)[0] for i, shape in enumerate(shapes)]
        for layer in range(2)
    )
    if cell < 3:
        first[0] = None  # a simple cell takes rows of the table as they are
    bias, bias_weight = parameter(10, vocab, 1)
    threshold, alias = np.ones(vocab), np.arange(vocab)
    log_q = np.full(vocab, -np.log(vocab))
    up, place, first_row = chain(vocab)
    groups = {"step": steps, "block": 1, "word": steps * streams}[sharing]
    step = native.TrainStep(
        native.StepNetwork(
            steps=steps, streams=streams, size=size, vocab=vocab, cell=cell, layers=2, forget=True,
            half=half, clip=1.0, dropout=dropout, kept=round((1 - dropout) * 2**16),
        ),
        native.StepOutput(
            objective=0, keep_copies=True, merge=True, target_one=False, groups=groups,
            group_words=steps * streams // groups, samples=k, size=size, vocab=vocab, always=[1],
            seed=1,
        ),
        native.StepTables(
            weight=at(weight), half=False, bias=at(bias_weight), log_z=0, constant_log_z=0.0,
            threshold=at(threshold), alias=at(alias), log_q=at(log_q), words=vocab if tree else 0,
            up=at(up), place=at(place), first=at(first_row),
        ),
        embedding, [tuple(first), tuple(second)], table, bias, None,
    )  # fmt: skip
    inputs, targets = (rng.integers(vocab, size=(steps, streams)) for _ in range(2))
    mask = rng.random((steps, streams)) > 0.1
    state = np.zeros((2, 2 if cell == 3 else 1, streams, size), np.float32)
    keys = [5, 6, 7] if dropout else []
    for block in range(8):
        where = at(inputs), at(targets), at(mask), at(state)
        step.train(*where, keys, block, [0.01] * 11, THREADS)
    losses = [loss for loss, _ in step.results()]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


def buffers(native: Any) -> None:
    held = [native.buffer(size) for size in (1, 5000, 3 << 20, 3 << 20)]
    for index, array in enumerate(held):
        array[:] = index
    assert all((array == index).all() for index, array in enumerate(held))
    del held, array
    native.drop_idle_buffers()


def main() -> None:
    if sys.argv[1] == "--list":
        print("portable")
        for isa in ("avx2", "avx512", "avx512bf16"):
            code = "from blackout import _native; _native.isa()"
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "BLACKOUT_ISA": isa},
                stderr=subprocess.DEVNULL,
                check=False,
            )
            if done.returncode == 0:
                print(isa)
        return
    native, rng = load(sys.argv[1]), np.random.default_rng(0)
    assert native.pool() == "own"
    for shape in SHAPES:
        output_layer(native, rng, shape)
    for words, size in ((1, 1), (9, 33), (64, 512)):
        fill_uniform(native, rng, words, size)
        log_sum(native, rng, words, size)
        recurrence(native, rng, words, size)
    for n, size, vocab in ((1, 1, 1), (50, 7, 20), (700, 65, 300)):
        rmsprop(native, rng, n, size, vocab)
    for rows, depth, columns in ((1, 3, 2), (7, 5, 19), (131, 70, 331), (50, 1031, 70)):
        products(native, rng, rows, depth, columns)
        batches(native, rng, rows, depth, columns)
    for cell in range(5):
        whole_step(native, rng, cell, cell % 2 == 1, ("step", "block", "word")[cell % 3], 0.0)
        whole_step(native, rng, cell, cell % 2 == 0, "step", 0.2)
        whole_step(native, rng, cell, cell % 2 == 0, "block", 0.0, tree=True)
    buffers(native)
    print(f"{native.isa()}: all kernels ran, {THREADS} threads")


if __name__ == "__main__":
    main()
