"""Dropout whose noise an engine can make by itself, and a rank for its streams alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from blackout.ops.reference.dropout import draw_key, kept, kept_at


class Dropout(nn.Dropout):
    """``torch.nn.Dropout`` with noise that is a pure function of a key, one for each call.

    The key comes from PyTorch's generator; a step that an engine provides whole draws the same keys
    and drops the same numbers, and so does each of several ranks in its streams. In a step that is
    composed in one process on a GPU it is PyTorch's own.
    """

    streams: tuple[int, int] | None = None
    """The number of the first stream that is here, and of how many; None where all are here."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return values
        if self.streams is not None:
            stays = kept_at(draw_key(), self.p, self._places(values, *self.streams))
        elif values.device.type == "cpu":
            stays = kept(draw_key(), self.p, values.shape, values.device)
        else:
            return super().forward(values)
        return values * stays.to(values.dtype).mul_(1 / (1 - self.p))

    def _places(self, values: Tensor, first: int, total: int) -> Tensor:
        """Where values (T, b, h) of some streams stand in an array of all of them, (T, B, h)."""
        steps, streams, units = (torch.arange(n, device=values.device) for n in values.shape)
        rows = steps[:, None] * total + first + streams
        return rows[..., None] * len(units) + units
