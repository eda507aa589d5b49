"""Layers inside what changes whole networks: compilers, autocast, function transforms.

The layer's arithmetic is native code with row-sparse gradients, which the compiler can neither
trace nor improve on; traced all the same, it falls into a dozen small graphs, slower than none. So
a compiled network has one break, where the layer is. And the layer has its own options for the
format of its products: autocast decides what the network hands to it, not how it computes
log-probabilities.

``torch.export`` takes what a finished network is asked, ``log_prob``, ``topk`` and ``predict``, in
plain PyTorch; a training loss that draws samples is no part of a graph without state. Tracing and
the transforms of ``torch.func`` (``grad``, ``vmap``, ...) see no numbers that native code could
read, and are refused in one line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from blackout.compilers import is_watched, untouched
from blackout.errors import UserError
from blackout.output.targets import require_tensor

_Method = TypeVar("_Method", bound=Callable[..., Any])


def undisturbed(method: _Method) -> _Method:
    """A method (self, hidden, ...) that runs as it is, whatever the network around it does."""
    scores = method.__name__ != "forward"

    @functools.wraps(method)
    def called(self: Any, hidden: Tensor, *arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_exporting() and scores:
            return method(self, hidden, *arguments, **named)
        if torch.compiler.is_exporting():
            raise UserError("torch.export takes a layer's log_prob, topk and predict, not its loss")
        if is_watched():
            return untouched(called)(self, hidden, *arguments, **named)
        _require_numbers(hidden)
        if torch.is_autocast_enabled(hidden.device.type):
            with torch.autocast(hidden.device.type, enabled=False):
                return method(self, hidden, *arguments, **named)
        return method(self, hidden, *arguments, **named)

    return called  # type: ignore[return-value]


def _require_numbers(hidden: Tensor) -> None:
    """Refuses what stands for a tensor and holds no numbers."""
    require_tensor("hidden", hidden)
    if hidden.is_meta:
        raise UserError("hidden is on the meta device, where there are no numbers to compute with")
    if torch.jit.is_tracing():
        raise UserError("an output layer cannot be traced; torch.export takes its log_prob or topk")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise UserError(
            "an output layer cannot be inside grad, vmap and the like of torch.func; "
            "torch.autograd.grad works, and so does torch.func.functional_call"
        )
