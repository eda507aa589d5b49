"""What ranks do together, so that none of them fails alone and leaves the others waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from blackout.errors import UserError
from blackout.ranks.group import Ranks

__all__ = ["on_first", "texts", "together"]

T = TypeVar("T")


def texts(ranks: Ranks, text: str) -> list[str]:
    """A text of each rank, by rank.

    >>> texts(Ranks.alone(), "hello")
    ['hello']
    """
    mine = torch.frombuffer(bytearray(text.encode() + b"\n"), dtype=torch.uint8).to(ranks.device)
    lengths = [length for (length,) in ranks.gather_numbers([len(mine)], "agreement")]
    parts = ranks.gather_uneven(mine, lengths, "agreement")
    return [bytes(part.tolist())[:-1].decode() for part in parts]


def together(ranks: Ranks, work: Callable[[], T]) -> T:
    """What ``work`` gives here, once it has gone well on every rank.

    Where it fails on one, all fail, with that one's words; ``work`` exchanges nothing itself.

    >>> together(Ranks.alone(), lambda: 3)
    3
    """
    if ranks.size == 1:
        return work()
    error: Exception | None = None
    said = ""
    try:
        result = work()
    except Exception as raised:
        error = raised
        said = (
            str(raised) if isinstance(raised, UserError) else f"{type(raised).__name__}: {raised}"
        )
        said = said or type(raised).__name__
    told = texts(ranks, said)
    if error is not None:
        raise error
    first = next((rank for rank, text in enumerate(told) if text), None)
    if first is not None:
        raise UserError(f"rank {first}: {told[first]}")
    return result


def on_first(ranks: Ranks, work: Callable[[], str]) -> str:
    """What ``work`` gives on rank 0, which alone does it."""
    return texts(ranks, together(ranks, lambda: work() if ranks.rank == 0 else ""))[0]
