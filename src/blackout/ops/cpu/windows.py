"""Hashed n-gram features: native loops over windows, which lie in memory as they are read."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from blackout import _native
from blackout.ops import reference
from blackout.ops.cpu.arrays import buffer, converted, floats, integers
from blackout.ops.engine import Added, Windows


def window_values(numbers: Tensor, start: Tensor, target: Tensor, samples: Tensor) -> Added:
    """The features of targets (G, M) and samples (G, K), after histories (G, M, orders)."""
    start, target, samples = start.contiguous(), target.contiguous(), samples.contiguous()
    of_target = numbers.new_empty(target.shape)
    of_samples = buffer((*target.shape, samples.shape[1]), torch.float32)
    _native.window_values(
        *_words(start, target, samples),
        floats(numbers.detach()),
        len(numbers),
        floats(of_target),
        floats(of_samples),
        torch.get_num_threads(),
    )
    return Added(of_target, of_samples)


def window_gradient(
    numbers: Tensor, start: Tensor, target: Tensor, samples: Tensor, d: Added
) -> tuple[Tensor, Tensor]:
    """The touched numbers, ascending, and their gradients."""
    start, target, samples = start.contiguous(), target.contiguous(), samples.contiguous()
    of_target, of_samples = (converted(part, torch.float32) for part in d)
    sums = _sums(len(numbers))
    found = sums.add(
        floats(numbers.detach()),
        *_words(start, target, samples),
        floats(of_target),
        floats(of_samples),
        torch.get_num_threads(),
    )
    places, values = target.new_empty(found), target.new_empty(found, dtype=torch.float32)
    sums.take(integers(places), floats(values))
    return places, values


@functools.lru_cache(maxsize=1)
def _sums(size: int) -> _native.WindowSums:
    """Where gradients are added up: as large as the table, so one serves all."""
    return _native.WindowSums(size)


def _words(start: Tensor, target: Tensor, samples: Tensor) -> tuple[int, ...]:
    groups, words, orders = start.shape
    return (
        groups,
        words,
        samples.shape[1],
        orders,
        integers(start),
        integers(target),
        integers(samples),
    )


def add_windows(logits: Tensor, windows: Windows, first: int) -> None:
    """Adds to logits (N, C) of the words first, first + 1, … their features."""
    if logits.dtype != torch.float32 or not logits.is_contiguous():
        reference.add_windows(logits, windows, first)
        return
    start = windows.start.contiguous()
    _native.add_windows(
        floats(windows.numbers.detach()),
        len(windows.numbers),
        integers(start),
        start.shape[1],
        len(start),
        first,
        logits.shape[1],
        floats(logits),
        torch.get_num_threads(),
    )


def add_window_gradient(d_logits: Tensor, start: Tensor, first: int, d_numbers: Tensor) -> None:
    """Adds derivatives by such logits to those by the numbers."""
    d_logits, start = converted(d_logits, torch.float32), start.contiguous()
    _native.add_window_gradient(
        floats(d_logits),
        integers(start),
        start.shape[1],
        len(start),
        first,
        d_logits.shape[1],
        floats(d_numbers),
        len(d_numbers),
        torch.get_num_threads(),
    )
