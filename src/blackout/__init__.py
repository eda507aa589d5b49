"""BlackOut: language models, and any network with a huge softmax, over a million words.

>>> import torch, blackout
>>> layer = blackout.BlackOut(16, 200_000, samples=50)
>>> optimizer = blackout.RMSProp(layer.parameters(), lr=0.01, clip=1.0)
>>> output, loss = layer(torch.randn(8, 16), torch.randint(200_000, (8,)))
>>> loss.backward()
>>> optimizer.step()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackout.config import Config
    from blackout.errors import UserError
    from blackout.models import LanguageModel, load
    from blackout.optim import Adagrad, Adam, RMSProp, clip_grad_norm_
    from blackout.output import (
        NCE,
        Adaptive,
        BlackOut,
        Classes,
        Full,
        Hierarchical,
        Objective,
        Sampled,
        SelfNormalised,
        Spherical,
    )
    from blackout.proposals import Draw, Proposal

__version__ = "0.1.0"

# Where each public name lives; PyTorch is imported with the first one that needs it.
_HOMES = {
    "Adagrad": "blackout.optim",
    "Adam": "blackout.optim",
    "Adaptive": "blackout.output",
    "BlackOut": "blackout.output",
    "Classes": "blackout.output",
    "Config": "blackout.config",
    "Draw": "blackout.proposals",
    "Full": "blackout.output",
    "Hierarchical": "blackout.output",
    "LanguageModel": "blackout.models",
    "NCE": "blackout.output",
    "Objective": "blackout.output",
    "Proposal": "blackout.proposals",
    "RMSProp": "blackout.optim",
    "Sampled": "blackout.output",
    "SelfNormalised": "blackout.output",
    "Spherical": "blackout.output",
    "UserError": "blackout.errors",
    "clip_grad_norm_": "blackout.optim",
    "load": "blackout.models",
}

_PARTS = {"integrations", "losses", "mixture", "ngram", "optim", "output", "proposals", "rescore"}
"""Subpackages to work with, for those who write ``import blackout`` only."""

__all__ = [
    "NCE",
    "Adagrad",
    "Adam",
    "Adaptive",
    "BlackOut",
    "Classes",
    "Config",
    "Draw",
    "Full",
    "Hierarchical",
    "LanguageModel",
    "Objective",
    "Proposal",
    "RMSProp",
    "Sampled",
    "SelfNormalised",
    "Spherical",
    "UserError",
    "clip_grad_norm_",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "_native":
        return importlib.import_module("blackout.native_code").native_module()
    if name in _PARTS:
        return importlib.import_module(f"blackout.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'blackout' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
