"""Draws from an alias table."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import array, integers
from blackout.ops.engine import Scalar


def draw_samples(
    threshold: Tensor, alias: Tensor, seed: int, step: Scalar, groups: int, samples: int
) -> Tensor:
    """The same words as the reference draws."""
    result = torch.empty((groups, samples), dtype=torch.int64)
    _native.draw_samples(
        array(threshold, torch.float64),
        integers(alias),
        len(alias),
        seed % 2**64,
        int(step) % 2**64,
        groups,
        samples,
        integers(result),
        torch.get_num_threads(),
    )
    return result
