"""Products of bfloat16 operands whose results stay in float32."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def half_product(states: Tensor, rows: Tensor) -> Tensor:
    """``states @ rows.mT`` (N, n), computed in bfloat16, in float32 where PyTorch can give that.

    >>> half_product(torch.ones(2, 3), torch.ones(4, 3)).dtype
    torch.float32
    """
    operands = states.to(torch.bfloat16), rows.to(torch.bfloat16).mT
    if _keeps_sums(states.device.type):
        return torch.mm(*operands, out_dtype=torch.float32)  # type: ignore[call-overload]
    return torch.mm(*operands).float()


@functools.cache
def _keeps_sums(device: str) -> bool:
    """Whether this PyTorch gives products on that device in another type than their operands'."""
    if device != "cuda":
        return False
    one = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        torch.mm(one, one, out_dtype=torch.float32)  # type: ignore[call-overload]
    except (TypeError, RuntimeError):
        return False
    return True
