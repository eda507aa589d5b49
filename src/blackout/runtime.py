"""Where a program computes: its CPU threads and its device."""

from __future__ import annotations

import os

import torch

from blackout.errors import UserError


def set_threads(threads: int) -> int:
    """Lets PyTorch use this many CPU threads; 0 for all cores. Gives the number."""
    if threads < 0:
        raise UserError(f"threads is {threads}, must be 0 or more")
    threads = threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    return threads


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but PyTorch sees no GPU here")
    return torch.device(name)
