"""Chooses the version of an operation: ``"reference"`` plain PyTorch, ``"native"`` compiled code.

Callers ask for an ``impl`` and get a module with the functions of :mod:`blackout.ops.reference`;
every version has the same names and signatures. ``"auto"`` is the native version where it exists:
on the CPU for float32 and bfloat16 numbers.
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import torch

from blackout.errors import UserError
from blackout.ops import cpu, reference

Impl = Literal["auto", "native", "reference"]
_NATIVE_TYPES = (torch.float32, torch.bfloat16)


def operations(impl: str, device: torch.device, *dtypes: torch.dtype) -> ModuleType:
    """The module that computes for tensors on ``device`` with these types.

    >>> operations("auto", torch.device("cpu"), torch.float32).__name__
    'blackout.ops.cpu'
    >>> operations("auto", torch.device("cpu"), torch.float64).__name__
    'blackout.ops.reference'
    """
    if impl not in ("auto", "native", "reference"):
        raise UserError(f'impl is {impl!r}, must be "auto", "native" or "reference"')
    if impl == "reference":
        return reference
    if device.type == "cpu" and all(dtype in _NATIVE_TYPES for dtype in dtypes):
        return cpu
    if impl == "native":
        types = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise UserError(
            f'impl "native" computes float32 and bfloat16 on the CPU, not {types} on {device.type}'
        )
    return reference
