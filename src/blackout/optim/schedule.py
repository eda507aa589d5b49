"""The learning rate from epoch to epoch, steered by validation.

>>> schedule = Schedule(lr=0.1, decay=0.9, cut=0.5)
>>> [schedule.after_epoch(p) for p in (100.0, 90.0, 95.0, 80.0)]
[True, True, False, True]
>>> round(schedule.lr, 6)  # 0.1 · 0.9 · 0.9 · 0.5 · 0.9
0.03645
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Schedule:
    """After an epoch the rate is multiplied by ``cut`` if validation got worse, else by ``decay``.

    "Worse" is measured against the epoch before; the best model is kept by the best of all.
    """

    lr: float
    decay: float
    cut: float
    previous: float = math.inf
    best: float = math.inf

    def after_epoch(self, perplexity: float) -> bool:
        """Takes the epoch's validation perplexity; says whether it is the best so far."""
        self.lr *= self.cut if perplexity > self.previous else self.decay
        self.previous = perplexity
        is_best = perplexity < self.best
        self.best = min(self.best, perplexity)
        return is_best
