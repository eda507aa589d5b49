"""Chooses the engine: plain PyTorch, compiled code for the CPU, Triton kernels for a GPU.

Callers ask for an ``impl`` and get an :class:`~blackout.ops.engine.Engine`. ``"auto"`` is the
fastest that computes there: ``"native"`` on the CPU and ``"triton"`` on a GPU for float32 and
bfloat16 numbers, else ``"reference"``. Triton is an extra, imported when first asked for; without
it, or on a GPU that it does not support, a GPU computes in plain PyTorch.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from typing import Literal, cast

import torch

from blackout.errors import UserError
from blackout.native_code import has_native
from blackout.ops import cpu, reference
from blackout.ops.engine import Engine

Impl = Literal["auto", "native", "triton", "reference"]
ENGINES: dict[str, Engine] = {"native": cpu, "reference": reference}
"""Those that every installation has."""
_FAST_TYPES = (torch.float32, torch.bfloat16)
_CAPABILITY = (7, 0)  # the oldest GPUs that Triton compiles for


@functools.lru_cache(maxsize=64)  # a block asks seven times
def engine_for(impl: str, device: torch.device, *dtypes: torch.dtype) -> Engine:
    """The engine that computes for tensors on ``device`` with these types.

    >>> engine_for("auto", torch.device("cpu"), torch.float32).name
    'native'
    >>> engine_for("auto", torch.device("cpu"), torch.float64).name
    'reference'
    """
    if impl not in ("auto", "native", "triton", "reference"):
        raise UserError(f'impl is {impl!r}, must be "auto", "native", "triton" or "reference"')
    fast = all(dtype in _FAST_TYPES for dtype in dtypes)
    types = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    if impl == "native" and not (fast and device.type == "cpu"):
        raise UserError(
            f'impl "native" computes float32 and bfloat16 on the CPU, not {types} on {device.type}'
        )
    if impl == "native" and not has_native():
        raise UserError('impl "native": this installation has no native code')
    if impl == "triton" and not fast:
        raise UserError(f'impl "triton" computes float32 and bfloat16, not {types}')
    if impl == "triton" and (missing := triton_missing(device)):
        raise UserError(f'impl "triton" needs {missing}')
    if impl == "reference" or not fast:
        return reference
    if impl == "triton" or (device.type == "cuda" and not triton_missing(device)):
        return triton_engine()
    return cpu if device.type == "cpu" and has_native() else reference


def triton_missing(device: torch.device) -> str:
    """What Triton kernels lack to run on a device; "" where they run.

    >>> triton_missing(torch.device("meta"))
    'a GPU, not meta'
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton, which pip install 'blackout-lm[gpu]' brings"
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return ""  # its interpreter, for tests
    if device.type != "cuda":
        return f"a GPU, not {device.type}"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < _CAPABILITY:
        return f"a GPU of compute capability {_CAPABILITY[0]}.{_CAPABILITY[1]} or newer"
    return ""


@functools.cache
def triton_engine() -> Engine:
    """The Triton kernels; imports Triton."""
    return cast(Engine, importlib.import_module("blackout.ops.triton"))
