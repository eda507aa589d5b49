"""How a hidden state meets a class vector: by their product, or by the angle between them.

    u_w = <theta_w, s> / temperature,   or   <theta_w / |theta_w|, s / |s|> / temperature

and the bias on top. Cosines lie in ± 1: without a temperature no class of a million could ever be
likely. The same in training, where a few rows are looked at, as in evaluation, which goes through
all of them in tiles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from blackout.output.options import require_number

COSINE_TEMPERATURE = 0.1


class Geometry(NamedTuple):
    """What is done to states and class vectors before they are multiplied."""

    normalize: bool
    temperature: float

    @classmethod
    def of(cls, normalize: bool, temperature: float | None) -> Geometry:
        if temperature is None:
            temperature = COSINE_TEMPERATURE if normalize else 1.0
        require_number("temperature", temperature, lambda x: 0 < x < math.inf, "above 0")
        return cls(normalize, float(temperature))

    @property
    def plain(self) -> bool:
        """Whether logits are the products themselves."""
        return not self.normalize and self.temperature == 1

    def states(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., h) as the class vectors meet them, float32 or wider if changed."""
        if self.normalize:
            hidden = normalize(wide(hidden), dim=-1)
        return hidden if self.temperature == 1 else wide(hidden) / self.temperature

    def vectors(self, rows: Tensor) -> Tensor:
        """Rows of the table (..., h) as the hidden states meet them."""
        return normalize(wide(rows), dim=-1) if self.normalize else rows


def wide(values: Tensor) -> Tensor:
    """Numbers in float32 or wider: logits of 16 bits would be off by whole probabilities."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
