"""Chooses the version of an operation: ``"reference"`` plain PyTorch, ``"native"`` compiled code.

Callers ask for an ``impl`` and get a module with the functions of :mod:`blackout.ops.reference`;
every version has the same names and signatures.
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import torch

from blackout.errors import UserError
from blackout.ops import reference

Impl = Literal["auto", "reference"]


def operations(impl: str, device: torch.device) -> ModuleType:
    """The module that computes for tensors on ``device``.

    >>> operations("auto", torch.device("cpu")).__name__
    'blackout.ops.reference'
    """
    if impl in ("auto", "reference"):
        return reference
    raise UserError(f'impl is {impl!r}, must be "auto" or "reference" (on {device})')
