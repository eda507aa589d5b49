"""Hashed n-gram features that lie in windows of a ring of numbers (:class:`Windows`)."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.ops.engine import Added, Windows
from blackout.ops.reference.rmsprop import sum_duplicates


def window_values(numbers: Tensor, start: Tensor, target: Tensor, samples: Tensor) -> Added:
    """The features of targets (G, M) and samples (G, K), after histories (G, M, orders)."""
    mask = len(numbers) - 1
    of_target = numbers[(start + target[..., None]) & mask].sum(-1)
    of_samples = numbers.new_zeros(*target.shape, samples.shape[1])
    for one in start.unbind(-1):  # an order at a time: all of them would be so much more memory
        of_samples += numbers[(one[..., None] + samples[:, None, :]) & mask]
    return Added(of_target, of_samples)


def window_gradient(
    numbers: Tensor, start: Tensor, target: Tensor, samples: Tensor, d: Added
) -> tuple[Tensor, Tensor]:
    """The touched numbers, ascending, and their gradients.

    Targets touch theirs, samples those that are no longer 0, be the derivative 0 or not.
    """
    mask = len(numbers) - 1
    places = [((start + target[..., None]) & mask).reshape(-1)]
    values = [d.target[..., None].expand(start.shape).reshape(-1)]
    for one in start.unbind(-1):
        of_samples = ((one[..., None] + samples[:, None, :]) & mask).reshape(-1)
        had = numbers[of_samples] != 0
        places.append(of_samples[had])
        values.append(d.samples.reshape(-1)[had])
    return sum_duplicates(torch.cat(places), torch.cat(values))


def add_windows(logits: Tensor, windows: Windows, first: int) -> None:
    """Adds to logits (N, C) of the words first, first + 1, … their features."""
    for places in _places(windows.start, first, logits.shape[1], len(windows.numbers)):
        logits += windows.numbers[places]


def add_window_gradient(d_logits: Tensor, start: Tensor, first: int, d_numbers: Tensor) -> None:
    """Adds derivatives by such logits to those by the numbers."""
    for places in _places(start, first, d_logits.shape[1], len(d_numbers)):
        values = d_logits.reshape(-1).to(d_numbers.dtype)
        d_numbers.index_add_(0, places.reshape(-1), values)


def _places(start: Tensor, first: int, columns: int, size: int) -> list[Tensor]:
    words = torch.arange(first, first + columns, device=start.device)
    return [(one[:, None] + words) & (size - 1) for one in start.unbind(1)]
