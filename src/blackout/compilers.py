"""What torch.compile must not take apart: native code, and gradients that it has no name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., object])
_callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)


def is_watched() -> bool:
    """Whether a compiler traces what runs now, or would trace the functions it calls.

    A function that it could make nothing of it runs as it is, and looks at what that calls.
    """
    return torch.compiler.is_compiling() or _callback() not in (None, False)


def untouched(function: _Function) -> _Function:
    """The function, left alone by compilers with all that it calls.

    Made where it is called: a compiler is slow to import, and only those who compile need it.
    """
    found: _Function = torch.compiler.disable(function)
    return found
