"""Whether the state of an optimiser is one for its parameters.

Native code changes moments where they lie: those of another vocabulary would be read and written
past their end. And the moments of another optimiser have other meanings under other names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from blackout.errors import UserError
from blackout.ops.reference.rmsprop import work_type

__all__ = ["check_moment", "check_saved", "kind_of", "work_type"]


def kind_of(name: str, value: Tensor, p: Tensor) -> torch.dtype:
    """The type of a saved entry of a parameter's state: no narrower than it was saved with."""
    kinds = {"step": torch.int64, "touched": torch.int32, "damping": torch.float64}
    return kinds.get(name, torch.promote_types(value.dtype, work_type(p)))


def check_moment(optimizer: str, name: str, value: Tensor, p: Tensor) -> None:
    """Refuses a moment that is not shaped like its parameter, or one number for each row."""
    if value.shape == p.shape or (
        name == "moment" and value.shape == (*p.shape[:1], *[1] * (p.ndim - 1))
    ):
        return
    raise UserError(
        f"{optimizer}: {name} is {tuple(value.shape)}, its parameter {tuple(p.shape)}: "
        "the state is one of another network"
    )


def check_saved(
    optimizer: str, p: Tensor, saved: Mapping[str, Any], names: Collection[str]
) -> None:
    """Refuses a parameter's saved state that is none of this optimiser's, or of another shape.

    ``names``: what the optimiser keeps. The clocks of rows and the damping are not always there.
    """
    optional = {"touched", "damping"} & set(names)
    tensors = all(isinstance(value, Tensor) for value in saved.values())
    if not tensors or not set(names) - optional <= saved.keys() <= set(names):
        raise UserError(
            f"{optimizer}: the state has {', '.join(sorted(saved))} for a parameter, and should "
            f"have {', '.join(sorted(names))}: it was saved by another optimizer"
        )
    for name, value in saved.items():
        lead = p.shape[:1] if name == "touched" else ()
        if name in ("step", "damping", "touched") and value.shape != lead:
            raise UserError(f"{optimizer}: the saved {name} is {tuple(value.shape)}, not {lead}")
        if name not in ("step", "damping", "touched"):
            check_moment(optimizer, name, value, p)
