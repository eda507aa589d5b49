"""Where log-probabilities leave a network: each of them is one, or the command says so.

log p = u - log Σ exp(u) is at most 0, but its two halves are rounded apart. A trained network's
logits are so small that no figure shows it. Logits of a million are known to a tenth at best: what
comes out may be a probability above 1, and averages over such numbers look like any others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from blackout.errors import UserError
from blackout.models.language_model import LanguageModel

__all__ = ["NotALogProbability", "checked"]

# How far rounding may lift a log-probability above 0, by the number format of the products. A
# network trained with large blocks has logits of some hundreds, where bfloat16 numbers lie 2 apart.
_ROUNDING = {torch.bfloat16: 2.0}
_FLOAT32_ROUNDING = 1e-3


class NotALogProbability(UserError):
    """A network gives NaN, an infinity or a probability above 1."""


def checked(
    values: npt.NDArray[np.float64], model: LanguageModel, *, may_be_impossible: bool = False
) -> npt.NDArray[np.float64]:
    """Natural log-probabilities that a network gave, at most 0.

    ``may_be_impossible``: -∞ may be among them, for what was not asked or has no probability.
    """
    product = getattr(model.output, "product_dtype", torch.float32)
    highest = _ROUNDING.get(product, _FLOAT32_ROUNDING)
    lowest = -np.inf if may_be_impossible else np.finfo(np.float64).min
    wrong = ~((values <= highest) & (values >= lowest))  # NaN is wrong too
    if wrong.any():
        where = "the network" if model.folder is None else str(model.folder)
        raise NotALogProbability(
            f"{where}: gives a word the log-probability {values[wrong][0]:g}: its weights are "
            "damaged, or too large for exact scores"
        )
    return np.minimum(values, 0.0)
