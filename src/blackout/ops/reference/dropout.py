"""What dropout keeps, as a pure function of a key and of the place of each number."""

from __future__ import annotations

import torch
from torch import Tensor

from blackout.ops.reference.sampling import GOLDEN, mix64, shift_right

_BITS = 16  # four numbers share the 64 bits of one key


def draw_key() -> int:
    """A key from PyTorch's generator, whose state a checkpoint keeps."""
    return int(torch.randint(2**62, ()))


def kept_of(chance: float) -> int:
    """Of 2**16 numbers those that stay where each is dropped with this chance."""
    return round((1 - chance) * 2**_BITS)


def kept(key: int, chance: float, shape: torch.Size, device: torch.device) -> Tensor:
    """Whether each number of an array stays, bool; each is dropped with this chance.

    >>> stays = kept(5, 0.25, torch.Size([100, 50]), torch.device("cpu"))
    >>> 0.74 < float(stays.float().mean()) < 0.76
    True
    """
    numbers = shape.numel()
    fours = torch.arange((numbers + 3) // 4, device=device)
    bits = mix64(fours * GOLDEN + key)
    parts = [shift_right(bits, _BITS * i) & (2**_BITS - 1) for i in range(4)]
    return (torch.stack(parts, 1) < kept_of(chance)).flatten()[:numbers].view(shape)


def kept_at(key: int, chance: float, places: Tensor) -> Tensor:
    """What :func:`kept` gives at some places, flat numbers, of a larger array.

    >>> whole = kept(5, 0.25, torch.Size([7, 3]), torch.device("cpu"))
    >>> bool((kept_at(5, 0.25, torch.tensor([4, 19])) == whole.flatten()[[4, 19]]).all())
    True
    """
    bits = mix64(places // 4 * GOLDEN + key)
    shifted = torch.stack([shift_right(bits, _BITS * i) for i in range(4)], -1)
    part = shifted.gather(-1, (places % 4)[..., None])[..., 0] & (2**_BITS - 1)
    return part < kept_of(chance)
