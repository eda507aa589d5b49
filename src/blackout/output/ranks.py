"""Layers on several ranks of ``torch.distributed``: samples of their own, gradients that add up."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from blackout.errors import UserError

_ADD_SPARSE = ("gloo", "mpi")  # backends whose all-reduce takes row-sparse gradients


def seed_of_rank(seed: int) -> int:
    """The seed that this rank draws with: another one on each, the given one where there is one.

    Ranks that drew the same samples would learn no more from them than one of them does.
    """
    if dist.is_available() and dist.is_initialized():
        return (seed + (dist.get_rank() << 40)) % 2**63
    return seed


def require_sparse_all_reduce(weight: Tensor) -> None:
    """Refuses row-sparse gradients inside a DistributedDataParallel that could not add them up.

    It would say so itself, in the middle of the backward pass, with an error of its backend.
    """
    around = getattr(DistributedDataParallel, "_active_ddp_module", None)
    if around is None:
        return
    backend = around.process_group._get_backend(weight.device).name()
    if backend not in _ADD_SPARSE:
        raise UserError(
            f"{backend} cannot add up row-sparse gradients for DistributedDataParallel: make the "
            'layer with sparse=False, give that process_group=torch.distributed.new_group(backend="'
            'gloo"), or leave the layer out of it and add up its gradients yourself'
        )
