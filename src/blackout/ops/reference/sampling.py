"""Random numbers as pure functions of seed, step and place; draws, and copies among them."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.ops.engine import Scalar

GOLDEN = -7046029254386353131  # 2**64 / golden ratio, as a signed number
_MIX1 = -4658895280553007687
_MIX2 = -7723592293110705685


def mix64(x: Tensor) -> Tensor:
    """The splitmix64 finaliser on int64 bit patterns: a bijection whose output looks random."""
    x = (x ^ shift_right(x, 30)) * _MIX1
    x = (x ^ shift_right(x, 27)) * _MIX2
    return x ^ shift_right(x, 31)


def shift_right(x: Tensor, bits: int) -> Tensor:
    """x >> bits of bit patterns: zeros come in from the left."""
    if bits == 0:
        return x
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # >> keeps the sign: clear the copies of it


def whole(number: Scalar, device: torch.device) -> Tensor:
    """A whole number as int64 on the device; one that is there stays there."""
    if isinstance(number, Tensor):
        return number.to(device, torch.int64)
    return torch.full((), number, dtype=torch.int64, device=device)


def mixed(numbers: tuple[Scalar, ...], device: torch.device) -> Tensor:
    """A key () that depends on all of the numbers."""
    key = torch.zeros((), dtype=torch.int64, device=device)
    for number in numbers:
        key = mix64(key + whole(number, device) + GOLDEN)
    return key


def random_bits(seed: int, step: Scalar, groups: int, places: int, device: torch.device) -> Tensor:
    """53 random bits for each place of each group, (G, P): times 2**-53 they are uniform in [0, 1).

    A pure function of seed, step, group and place.
    """
    return random_bits_at(seed, step, groups, torch.arange(places, device=device))


def random_bits_at(seed: int, step: Scalar, groups: int, places: Tensor) -> Tensor:
    """The same for places (P,) of any numbers below 2**32, (G, P)."""
    device = places.device
    start = mix64(mix64(whole(seed, device) + GOLDEN) + whole(step, device) * GOLDEN)
    group = torch.arange(groups, device=device)[:, None] << 32
    return shift_right(mix64(start + (group + places + 1) * GOLDEN), 11)


def random_below(bits: Tensor, limit: Tensor | int) -> Tensor:
    """Numbers uniform in 0 … limit - 1 of :func:`random_bits`; 0 where the limit is 0."""
    return (bits.double() * 2.0**-53 * limit).long()  # 1 - 2**-53 times a limit never rounds to it


def draw_samples(
    threshold: Tensor, alias: Tensor, seed: int, step: Scalar, groups: int, samples: int
) -> Tensor:
    """Draws (G, K) words from an alias table, a pure function of seed, step, group and place.

    ``threshold`` (V,) float64 and ``alias`` (V,) int64: column w keeps w with chance
    ``threshold[w]`` and gives ``alias[w]`` otherwise.
    """
    vocab_size = len(threshold)
    bits = random_bits(seed, step, groups, samples, threshold.device)
    position = bits.double() * (vocab_size * 2.0**-53)
    column = position.long().clamp_(max=vocab_size - 1)
    keep = position - column < threshold[column]
    return torch.where(keep, column, alias[column])


def merge_copies(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Each word of a group once, ascending, (G, C), and how often it was drawn (G, C).

    C is the largest number of words in a group; the others are filled up with their first word,
    multiplicity 0.

    >>> merge_copies(torch.tensor([[7, 3, 7, 7], [2, 9, 4, 2]]))
    (tensor([[3, 7, 3],
            [2, 4, 9]]), tensor([[1., 3., 0.],
            [2., 1., 1.]]))
    """
    ordered = samples.sort(1).values
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    column = fresh.cumsum(1) - 1  # of each draw
    columns = int(column[:, -1].max()) + 1
    words = ordered[:, :1].repeat(1, columns).scatter_(1, column, ordered)
    counts = torch.zeros(words.shape, dtype=torch.float32, device=samples.device)
    return words, counts.scatter_add_(1, column, torch.ones_like(column, dtype=counts.dtype))
