"""The learning rate in the course of training, as a factor of its first value.

``linear`` and ``cosine`` lead from 1 to 0 over the epochs planned, block by block. ``validation``
is the paper's rule: after an epoch the factor is multiplied by ``cut`` if validation got worse,
else by ``decay``. ``constant`` stays.

>>> schedule = Schedule("validation", decay=0.9, cut=0.5)
>>> [schedule.after_epoch(p) for p in (100.0, 90.0, 95.0, 80.0)]
[True, True, False, True]
>>> round(schedule.factor(), 6)  # 0.9 · 0.9 · 0.5 · 0.9
0.3645
>>> [Schedule("linear").factor(progress) for progress in (0, 0.25, 1)]
[1, 0.75, 0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Schedule:
    """What is left of the learning rate, and how validation goes.

    "Worse" is measured against the epoch before; the best model is kept by the best of all.
    """

    shape: str
    decay: float = 1.0
    cut: float = 1.0
    left: float = 1.0
    """What the epochs so far have left of the rate; 1 but for ``validation``."""
    previous: float = math.inf
    best: float = math.inf
    epochs_since_best: int = 0

    def factor(self, progress: float = 0.0) -> float:
        """The factor when ``progress``, between 0 and 1, of the planned training is done."""
        if self.shape == "linear":
            return 1 - progress
        if self.shape == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        return self.left

    def after_epoch(self, perplexity: float) -> bool:
        """Takes the epoch's validation perplexity; says whether it is the best so far."""
        if self.shape == "validation":
            self.left *= self.cut if perplexity > self.previous else self.decay
        self.previous = perplexity
        is_best = perplexity < self.best
        self.best = min(self.best, perplexity)
        self.epochs_since_best = 0 if is_best else self.epochs_since_best + 1
        return is_best
