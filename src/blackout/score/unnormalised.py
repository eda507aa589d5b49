"""Scores without the sum over the vocabulary, beside the exact ones: how far off, how much faster.

A word's score is u - c, where c is what training has drawn log Z to; the exact log-probability is
u - log Z. The error of a score is therefore log Z - c, the same for every word after a history.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blackout.models.language_model import LanguageModel
from blackout.perplexity import exp_mean
from blackout.score.perplexity import log_probabilities
from blackout.text.shards import Shard

__all__ = ["ScoreErrors", "Unnormalised"]


@dataclass
class ScoreErrors:
    """Mean and spread of the errors in log-probability of some words, added up as they come."""

    words: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, scores: npt.NDArray[np.float64], exact: npt.NDArray[np.float64]) -> None:
        error = scores - exact
        self.words += len(error)
        self.total += float(error.sum())
        self.squares += float(np.square(error).sum())

    @property
    def mean(self) -> float:
        return self.total / max(self.words, 1)

    @property
    def spread(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(0.0, self.squares / max(self.words, 1) - self.mean**2))


class Unnormalised:
    """The scores of a text, made piece by piece beside the exact ones.

    ``watch`` of :func:`blackout.score.perplexity.evaluate` is :meth:`add`.
    """

    def __init__(self, model: LanguageModel, shard: Shard) -> None:
        output = model.output
        self._pieces = log_probabilities(
            model,
            shard,
            lambda hidden, target, past: output.unnormalised_log_prob(hidden, None, target, past),
            normalised=False,
        )
        self.errors = ScoreErrors()
        self.total = self.seconds = 0.0

    def add(self, exact: npt.NDArray[np.float64]) -> None:
        """Takes the exact log-probabilities of the text's next piece."""
        started = time.perf_counter()
        _, scores = next(self._pieces)
        self.seconds += time.perf_counter() - started
        self.total += float(scores.sum())
        self.errors.add(scores, exact)

    def result(self) -> dict[str, float]:
        return {
            "unnormalised_perplexity": exp_mean(-self.total, self.errors.words),
            "log_z_mean": self.errors.mean,
            "log_z_spread": self.errors.spread,
            "unnormalised_words_per_second": self.errors.words / max(self.seconds, 1e-9),
        }

    def __str__(self) -> str:
        found = self.result()
        return (
            f"unnormalised    {found['unnormalised_perplexity']:.2f}\n"
            f"  log Z         {found['log_z_mean']:.4f} ± {found['log_z_spread']:.4f}, "
            "the scores' error in log-probability\n"
            f"  speed         {found['unnormalised_words_per_second']:,.0f} words/s"
        )
