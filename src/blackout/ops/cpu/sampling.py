"""Draws from an alias table, and copies among them."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.arrays import array, floats, integers
from blackout.ops.engine import Scalar


def draw_samples(
    threshold: Tensor, alias: Tensor, seed: int, step: Scalar, groups: int, samples: int
) -> Tensor:
    """The same words as the reference draws."""
    result = torch.empty((groups, samples), dtype=torch.int64, device="cpu")
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


def merge_copies(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Each word of a group once, in the order of the first draws.

    The number of columns is a multiple of 32: products in bfloat16 prepare themselves anew for
    every shape that they have not seen.
    """
    samples = samples.contiguous()
    groups, count = samples.shape
    words = torch.empty_like(samples)
    multiplicity = samples.new_empty((groups, count), dtype=torch.float32)
    columns = _native.merge_copies(
        integers(samples),
        groups,
        count,
        integers(words),
        floats(multiplicity),
        torch.get_num_threads(),
    )
    columns = min(-(-columns // 32) * 32, count)
    return words[:, :columns].contiguous(), multiplicity[:, :columns].contiguous()
