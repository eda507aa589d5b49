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
    from blackout.optim import RMSProp, clip_grad_norm_
    from blackout.output import NCE, BlackOut, Full, Sampled

__version__ = "0.1.0"

# Where each public name lives; PyTorch is imported with the first one that needs it.
_HOMES = {
    "BlackOut": "blackout.output",
    "Config": "blackout.config",
    "Full": "blackout.output",
    "LanguageModel": "blackout.models",
    "NCE": "blackout.output",
    "RMSProp": "blackout.optim",
    "Sampled": "blackout.output",
    "UserError": "blackout.errors",
    "clip_grad_norm_": "blackout.optim",
    "load": "blackout.models",
}

__all__ = [
    "NCE",
    "BlackOut",
    "Config",
    "Full",
    "LanguageModel",
    "RMSProp",
    "Sampled",
    "UserError",
    "clip_grad_norm_",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'blackout' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
