"""Chooses the engine: ``"reference"`` is plain PyTorch, ``"native"`` compiled code.

Callers ask for an ``impl`` and get an :class:`~blackout.ops.engine.Engine`. ``"auto"`` is the
native one where it computes: on the CPU for float32 and bfloat16 numbers.
"""

from __future__ import annotations

import functools
from typing import Literal

import torch

from blackout.errors import UserError
from blackout.ops import cpu, reference
from blackout.ops.engine import Engine

Impl = Literal["auto", "native", "reference"]
ENGINES: dict[str, Engine] = {"native": cpu, "reference": reference}
_NATIVE_TYPES = (torch.float32, torch.bfloat16)


@functools.lru_cache(maxsize=64)  # a block asks seven times
def engine_for(impl: str, device: torch.device, *dtypes: torch.dtype) -> Engine:
    """The engine that computes for tensors on ``device`` with these types.

    >>> engine_for("auto", torch.device("cpu"), torch.float32).name
    'native'
    >>> engine_for("auto", torch.device("cpu"), torch.float64).name
    'reference'
    """
    if impl not in ("auto", "native", "reference"):
        raise UserError(f'impl is {impl!r}, must be "auto", "native" or "reference"')
    computes = device.type == "cpu" and all(dtype in _NATIVE_TYPES for dtype in dtypes)
    if impl == "native" and not computes:
        types = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise UserError(
            f'impl "native" computes float32 and bfloat16 on the CPU, not {types} on {device.type}'
        )
    return ENGINES["native" if computes and impl != "reference" else "reference"]
