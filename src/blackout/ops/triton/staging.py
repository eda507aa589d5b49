"""The numbers of a block on their way to the device.

All that a block is told (words, rates, steps) lies in one array, so that one copy brings it. On a
GPU it travels on a stream of its own while the block before is still computed, from pinned memory
that is not written again before it has left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_AHEAD = 4  # blocks whose numbers may be under way


class Staging:
    """Whole numbers and real ones on a device, which the host fills for each block."""

    def __init__(self, wholes: int, reals: int, device: torch.device) -> None:
        self._count = wholes
        self._length = wholes + (reals + 1) // 2  # two real numbers in the place of a whole one
        self._all = torch.zeros(self._length, dtype=torch.int64, device=device)
        self.wholes = self._all[:wholes]
        self.reals = self._all[wholes:].view(torch.float32)[:reals]
        self._on_gpu = device.type == "cuda"
        self._slots = [self._slot(device) for _ in range(_AHEAD)]
        self._next = 0
        self._stream: Any = torch.cuda.Stream(device) if self._on_gpu else None

    def _slot(self, device: torch.device) -> dict[str, Any]:
        host = torch.zeros(self._length, dtype=torch.int64, pin_memory=self._on_gpu)
        array = host.numpy()
        arrays = array[: self._count], array[self._count :].view(np.float32)
        slot: dict[str, Any] = {"host": host, "arrays": arrays}
        if self._on_gpu:
            slot["there"] = torch.empty_like(host, device=device)
            slot["arrived"], slot["taken"] = torch.cuda.Event(), torch.cuda.Event()
        return slot

    def begin(self) -> tuple[np.ndarray, np.ndarray]:
        """Arrays on the host to be filled; then call :meth:`send`."""
        slot = self._slots[self._next]
        if self._on_gpu:
            slot["arrived"].synchronize()  # long ago: some blocks
        arrays: tuple[np.ndarray, np.ndarray] = slot["arrays"]
        return arrays

    def send(self) -> None:
        """Brings what was filled in to the device, before what is launched there next."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        if not self._on_gpu:
            self._all.copy_(slot["host"])
            return
        now = torch.cuda.current_stream()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(slot["taken"])
            slot["there"].copy_(slot["host"], non_blocking=True)
            slot["arrived"].record()
        now.wait_event(slot["arrived"])
        self._all.copy_(slot["there"])
        slot["taken"].record()
