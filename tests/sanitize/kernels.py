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
                native.words(
                    objective, objective == 3, words, n, k, size, at(hidden), at(table), half,
                    at(target), at(offsets[0]), at(samples), at(offsets[1]), at(logits),
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
                    *place, at(table), table_half, at(moment), 0.5, 0.1, 0.9, 1e-3, 0.0,
                    at(agings), row_moment, 77, THREADS,
                )  # fmt: skip
                square = (0.5 * sums) ** 2
                want = 0.1 * (square.mean(1, keepdims=True) if row_moment else square)
                np.testing.assert_allclose(moment, want, rtol=1e-3, atol=1e-5)
    dense, weight, moment = (floats(rng, n * size) for _ in range(3))
    moment = abs(moment)
    native.dense_squared_norm(at(dense), False, dense.size, THREADS)
    native.update_dense(
        dense.size, at(dense), False, at(weight), at(moment), 1.0, 0.1, 0.9, 1e-3, 0.9,
        THREADS,
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
        for isa in ("avx2", "avx512"):
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
    buffers(native)
    print(f"{native.isa()}: all kernels ran, {THREADS} threads")


if __name__ == "__main__":
    main()
