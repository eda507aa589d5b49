"""The native code, or what stands for it where there is none: ``from blackout import _native``.

A platform without it has the layers and the optimisers, in plain PyTorch; what needs it (reading
text, n-grams, ``impl="native"``) says so when it is asked for.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from blackout.errors import UserError

__all__ = ["has_native", "native_module"]


class _Missing:
    """Stands for the native module: whoever wants something from it is told that there is none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UserError(
            "this installation has no native code, which reading text, n-grams and training with "
            "the toolkit need: install a wheel for this platform, or the sources with a C++17 "
            "compiler; layers and optimisers work without"
        )


@functools.cache
def native_module() -> Any:
    """The native module, or what stands for it."""
    try:
        return importlib.import_module("blackout._native")
    except ModuleNotFoundError:
        return _Missing()


def has_native() -> bool:
    """Whether there is native code."""
    return not isinstance(native_module(), _Missing)
