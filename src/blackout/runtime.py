"""Where a program computes: its CPU threads and its device."""

from __future__ import annotations

import os

import torch

from blackout.config import check_whole
from blackout.errors import UserError
from blackout.memory import Need, free_memory, require


def set_threads(threads: int) -> int:
    """Lets PyTorch use this many CPU threads; 0 for all cores. Gives the number.

    Ranks of one machine that were started together share its cores.
    """
    check_whole("threads", threads, 0)
    threads = threads or max(1, (os.cpu_count() or 1) // _ranks_here())
    torch.set_num_threads(threads)
    return threads


def _ranks_here() -> int:
    """Ranks on this machine, as torchrun tells them."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(told)) if told.isdecimal() else 1


def require_memory(need: Need, device: torch.device) -> None:
    """Refuses what does not fit into the free memory of a device."""
    if device.type == "cuda":
        require(need, torch.cuda.mem_get_info(device)[0], "the GPU has")
    else:
        free = free_memory()
        require(need, None if free is None else free // _ranks_here())


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but PyTorch sees no GPU here")
    return torch.device(name)
